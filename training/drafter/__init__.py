"""The recipe of the drafter that ships with the package: its text, its settings, its measurement.

The training itself is `deepdraft.infer.drafter_training`, the code of `deepdraft train-drafter`.
"""
