"""Depth-aware speculation: what a pass costs (`costs`), what drafts give (`acceptance`), what may be spent on finding
out (`purse`), and what follows for the next step (`policy`, `shares`).

Pure: figures in, decisions out. Nothing here knows a model, a tree's tokens, a cache or a clock.
"""
