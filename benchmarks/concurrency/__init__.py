"""Throughput of our server against concurrency; ../README.md says how to run it."""
