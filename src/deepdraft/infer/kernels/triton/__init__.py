"""Attention over paged KV, and moving its rows, as Triton kernels for NVIDIA and AMD GPUs.

`tile` and `lists` need torch alone; the modules with kernels import triton, which comes with a CUDA or ROCm build of
torch, so nothing outside `triton_backend` imports them.
"""
