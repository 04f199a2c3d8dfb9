"""Training of DFlash drafters for any target the stack can run: text of the target, its features, steps, evaluation.

Leaves out drafting in the engine (`deepdraft.infer.drafters`), which reads the folder that is exported here.
"""
