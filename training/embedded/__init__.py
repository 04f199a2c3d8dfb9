"""The recipe of the model that ships with the package: text, vocabulary, training, evaluation, export.

Leaves out serving: the exported folder is read by `deepdraft.infer`, which shares no code with this package but one
step of the optimizer.
"""
