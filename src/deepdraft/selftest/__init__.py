"""Proves the client on the machine it runs on: against the server of known truth, errors beside targets.

timing   latencies, token times and token counts under every pattern of events
fault    failures are counted as failures
cache    a rerun served from a cache is flagged, a clean one is not
cost     what the client itself costs
"""

from deepdraft.selftest.runner import run_selftest

__all__ = ["run_selftest"]
