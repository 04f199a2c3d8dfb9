"""Models on disk: Hugging Face folders and GGUF files, seen alike through `Checkpoint`.

`open_checkpoint` is the way in. What the layers do with the weights is `models`' work; text and tokens are
`tokenizer`'s, which this room only fills with what the files say.
"""
