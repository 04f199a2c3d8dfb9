"""Milliseconds a token against context, speculation off, on and automatic; ../README.md says how to run it."""
