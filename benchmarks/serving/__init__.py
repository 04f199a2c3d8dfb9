"""Our server beside others on the same weights; ../README.md says how to run it."""
