"""Text to tokens and back: a model's own vocabulary, its chat template, and text that is streamed as it comes.

Knows nothing of weights or of the engine; `checkpoint` fills it from a model's files.
"""
