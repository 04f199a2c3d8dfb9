"""Deepdraft: measures, explains and improves long-context LLM serving with speculative decoding."""

from deepdraft.version import VERSION

__all__ = ["VERSION"]
