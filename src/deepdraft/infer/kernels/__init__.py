"""Attention over paged KV: one signature (`attention`), what it is given (`plan`), and its back ends."""
