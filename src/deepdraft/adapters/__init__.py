"""Servers over HTTP, each engine in its own words: what it is, what it can do, what it says about a request.

The rest of Deepdraft talks to an `Adapter`; `detect` finds the right one. `reading.trace_of` turns a transport's
exchange into a record. Judging figures is for `metrics` and `guards`, sending measured requests for `bench`.
"""
