"""Benchmarks of the stack's parts: `deepdraft bench`. Each part is run alone, beside what the machine can do (a copy,
a read, a matrix product, measured in the same turn) and beside a named peer, and gives `records.component` lines.

    clock       seconds of a run, and the machine's own rates
    turns       the part, its peers and the rates one after the other, again and again
    attention   one layer of latent attention over paged KV: what `kernels` runs
    kernels, moe, tree, decode_round                the parts

Nothing is printed or written here. A part never knows that it is measured.
"""
