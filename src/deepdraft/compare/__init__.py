"""Two or more configurations side by side: which points may be compared, what the difference is and how sure, where
one stops being faster than the other. Works on runs that are at hand; measures nothing.

    pairing       which points of two runs are alike enough
    interleaving  whether their trials alternated
    verdict       one figure at one point: better, worse, no difference, cannot tell
    comparison    two runs as a whole, with the crossover
    gate          regressions beyond a limit, for CI
    best          more than two: the best per context length, and the frontier
    table, json   what is printed

The first run is the baseline (A); ratios are the other's figure over the baseline's.
"""
