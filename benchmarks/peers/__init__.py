"""Our client beside its peers on one server of known truth: what each costs, and what each gets wrong.

`python -m benchmarks.peers --venvs DIR` from the repository's root; `benchmarks/README.md` says how to set it up.
"""
