"""Draft trees (DDTree, Ringel and Romano, arXiv 2604.12989): what a drafter holds likely (`marginals`), the tree made
of it (`build`, `draft_tree`) and the way the target's tokens take through it (`walk`).

A tree is data on the host: nothing here knows a model, a cache or a request. Node 0 is the bonus token, which the
target has chosen already; it counts neither as a node of a budget nor as accepted.
"""
