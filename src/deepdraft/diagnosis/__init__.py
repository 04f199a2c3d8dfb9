"""Diagnosis: from the points of a results file to what breaks, why, and what to change.

Works on records alone; nothing is run, asked or timed here. `cases_of` brings runs and what their reader knows
together, `explanation` applies every rule, `text` and `object` print it.
"""
