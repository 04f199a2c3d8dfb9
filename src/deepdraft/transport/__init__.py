"""Bytes in, bytes out: HTTP/1.1 to one server, event streams stamped at the socket, and the client's own lag.

Knows nothing of inference: what an event means, which status is a failure and which path exists is for the
rooms above. No proxies, no redirects followed, no HTTP/2, no compression.
"""
