"""Attention over paged KV on this machine, beside what the machine can do: the figures behind the default page size
and behind the constants of `infer/kernels`.

    python -m benchmarks.attention [--context-len 1k,8k,32k,128k] [--page-size 1,16,64,256] [--threads N]
                                   [--only PART ...] [--backend NAME] [--cell-s 0.15] [--full]

`attention`: each cell is one layer of one request, the least of several runs in ms, and in brackets how near that is
to the row's ceiling. The ceiling is measured just before the row: the time to move the KV rows once at the rate of a
plain copy (read + write), or to do the multiplications at the rate of a square float32 matrix product, whichever is
longer. KV rows of 1k tokens fit the processor's cache, for which a copy from memory is no ceiling. Columns: all
tokens in one run of slots, then pages in random order, as in a pool where requests come and go. Rows: decode (1
query), trees of 16 and 64 nodes, a prefill chunk of 1,024 queries (in the expanded form). The plan is made
beforehand, as it is once for all layers of a step; what that costs is under `pages`.

`pages`: what a page size costs and saves. `forms`: from how many queries on the expanded form pays. `kernels`:
torch's fused kernel beside public operations. `requests`: short requests together and one by one.

The default run takes under 3 minutes on 2 idle cores; cells of more than 0.5 x 10^12 operations are left out without
--full. Leaves out the rest of a step: projections, experts, sampling.
"""
