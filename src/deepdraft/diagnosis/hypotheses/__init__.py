"""Possible causes, one file each: how far the data support it, what it predicts, which experiment decides."""
