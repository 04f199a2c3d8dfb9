"""Our tree building beside the published builder and torch.topk; ../README.md says how to run it."""
