"""Benchmarks of our own hot paths, each against a named ceiling or peer; README.md says how to run them."""
