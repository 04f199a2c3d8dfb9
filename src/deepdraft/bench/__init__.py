"""Sends the requests of a sweep and records what came back. It judges nothing: figures and guards are made from the
records afterwards, by `metrics` and `guards`."""
