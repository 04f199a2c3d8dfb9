"""The two kernels of attention over paged KV: one over pieces of the KV axis, one that merges them.

Grid of `attend_split`: (tiles of query rows, requests x key heads, splits of the prefix + 1); tiles that read the
same tokens start together and share them in the L2 cache. The query rows of one program are nodes x heads, so each
token is read once for all of them; a latent row is read once as key and value. The last split is the tail, the
request's own queries, under a mask of bits. Lengths are read from the device, the grid depends on maxima alone, and
a split with nothing to do says so by a log-sum-exp of -inf. Splitting is Flash-Decoding's (Dao et al. 2023), the
merge that of arXiv 2501.01005, 2.2. Offsets into the cache are 64-bit: a pool exceeds 2^31 numbers.

Triton's interpreter computes nonsense in bfloat16, so under it (`IS_WIDE`) everything is float32; so it is where
queries and cache have different types.
"""
# ruff: noqa: N803  -- constants are upper-case in Triton's own style
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["num_splits", "min_split_len", "tail_words"])
def attend_split(
    queries,  # [T, Hq, Dk]
    keys,  # [S, Hk, Dk]
    values,  # [S, Hk, Dv]; not read where IS_LATENT
    part_out,  # float32 [T, Hq, num_splits + 1, Dv]
    part_lse,  # float32 [T, Hq, num_splits + 1], logarithms to base 2
    qo_indptr,
    kv_indptr,
    kv_indices,
    kv_lens,
    tail_bits,  # int64 [T, tail_words]
    scale_log2,  # scale / ln 2
    query_row_stride,
    query_head_stride,
    key_slot_stride,
    key_head_stride,
    value_slot_stride,
    value_head_stride,
    num_splits,
    min_split_len,
    tail_words,
    NUM_KV_HEADS: tl.constexpr,
    GROUP_SIZE: tl.constexpr,  # query heads that share a key head
    PAGE_SIZE: tl.constexpr,
    IS_LATENT: tl.constexpr,
    KEY_DIM: tl.constexpr,  # columns of a key multiplied first; where IS_LATENT they are the value
    REST_DIM: tl.constexpr,  # the key's other columns (rotary); 0: none
    VALUE_DIM: tl.constexpr,
    BLOCK_KEY: tl.constexpr,  # the three widths, each raised to a power of two >= 16
    BLOCK_REST: tl.constexpr,
    BLOCK_VALUE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,  # divides 64
    IS_WIDE: tl.constexpr,
):
    request = tl.program_id(1) // NUM_KV_HEADS
    kv_head = tl.program_id(1) % NUM_KV_HEADS
    split = tl.program_id(2)
    first_query = tl.load(qo_indptr + request)
    num_queries = tl.load(qo_indptr + request + 1) - first_query
    if tl.program_id(0) * BLOCK_M >= num_queries * GROUP_SIZE:
        return
    prefix_len = tl.load(kv_lens + request) - num_queries
    is_tail = split == num_splits
    split_len = tl.cdiv(tl.maximum(tl.cdiv(prefix_len, num_splits), min_split_len), BLOCK_N) * BLOCK_N
    first = tl.where(is_tail, prefix_len, tl.minimum(split * split_len, prefix_len))
    stop = tl.where(is_tail, prefix_len + num_queries, tl.minimum(first + split_len, prefix_len))

    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    is_row = rows < num_queries * GROUP_SIZE
    is_masked_row = rows < tl.where(is_tail, num_queries * GROUP_SIZE, 0)
    row_queries = (first_query + rows // GROUP_SIZE).to(tl.int64)
    row_heads = kv_head * GROUP_SIZE + rows % GROUP_SIZE
    query_rows = queries + (row_queries * query_row_stride + row_heads * query_head_stride)[:, None]
    key_columns = tl.arange(0, BLOCK_KEY)[None, :]
    rest_columns = tl.arange(0, BLOCK_REST)[None, :]
    value_columns = tl.arange(0, BLOCK_VALUE)[None, :]
    query = tl.load(query_rows + key_columns, mask=is_row[:, None] & (key_columns < KEY_DIM), other=0.0)
    if IS_WIDE:
        query = query.to(tl.float32)
    if REST_DIM > 0:
        is_asked = is_row[:, None] & (rest_columns < REST_DIM)
        query_rest = tl.load(query_rows + KEY_DIM + rest_columns, mask=is_asked, other=0.0)
        if IS_WIDE:
            query_rest = query_rest.to(tl.float32)

    pages = kv_indices + tl.load(kv_indptr + request)
    most = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    out = tl.zeros([BLOCK_M, BLOCK_VALUE], tl.float32)
    for start in range(first, stop, BLOCK_N):
        tokens = start + tl.arange(0, BLOCK_N)
        is_token = tokens < stop
        page = tl.load(pages + tokens // PAGE_SIZE, mask=is_token, other=0).to(tl.int64)
        slots = page * PAGE_SIZE + tokens % PAGE_SIZE
        key_rows = keys + (slots * key_slot_stride + kv_head * key_head_stride)[:, None]
        key = tl.load(key_rows + key_columns, mask=is_token[:, None] & (key_columns < KEY_DIM), other=0.0)
        if IS_WIDE:
            key = key.to(tl.float32)
        scores = tl.dot(query, tl.trans(key), input_precision="ieee")
        if REST_DIM > 0:
            is_cached = is_token[:, None] & (rest_columns < REST_DIM)
            rest = tl.load(key_rows + KEY_DIM + rest_columns, mask=is_cached, other=0.0)
            if IS_WIDE:
                rest = rest.to(tl.float32)
            scores = tl.dot(query_rest, tl.trans(rest), scores, input_precision="ieee")

        # One word holds all the block's columns: in the tail, start - prefix_len is a multiple of BLOCK_N.
        columns = start - prefix_len
        words = tl.load(tail_bits + row_queries * tail_words + columns // 64, mask=is_masked_row, other=0)
        bits = (words[:, None] >> (columns % 64 + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]) & 1
        is_seen = is_token[None, :] & ((bits != 0) | (columns < 0))  # all see the prefix
        scores = tl.where(is_seen, scores * scale_log2, float("-inf"))

        new_most = tl.maximum(most, tl.max(scores, 1))
        finite = tl.where(new_most == float("-inf"), 0.0, new_most)  # a block may hold nothing that a row sees
        shrink = tl.exp2(most - finite)
        weights = tl.exp2(scores - finite[:, None])
        total = total * shrink + tl.sum(weights, 1)
        if IS_LATENT:
            value = key
        else:
            value_rows = values + (slots * value_slot_stride + kv_head * value_head_stride)[:, None]
            is_value = is_token[:, None] & (value_columns < VALUE_DIM)
            value = tl.load(value_rows + value_columns, mask=is_value, other=0.0)
            if IS_WIDE:
                value = value.to(tl.float32)
        out = tl.dot(weights.to(value.dtype), value, out * shrink[:, None], input_precision="ieee")
        most = new_most

    divisor = tl.where(total > 0, total, 1.0)  # an empty split: most is -inf, and so is its log-sum-exp
    part = (row_queries * (NUM_KV_HEADS * GROUP_SIZE) + row_heads) * (num_splits + 1) + split
    tl.store(part_lse + part, most + tl.log2(divisor), mask=is_row)
    is_written = (is_row & (total > 0))[:, None] & (value_columns < VALUE_DIM)
    tl.store(part_out + part[:, None] * VALUE_DIM + value_columns, out / divisor[:, None], mask=is_written)


@triton.jit(do_not_specialize=["num_parts"])
def merge_splits(
    part_out,  # float32 [T, Hq, num_parts, Dv]
    part_lse,  # float32 [T, Hq, num_parts], logarithms to base 2
    out,  # [T, Hq, Dv]
    lse,  # float32 [T, Hq], natural logarithms
    num_query_rows,  # int32, on the device: rows beyond are no one's and become 0 and -inf
    num_parts,
    NUM_HEADS: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    BLOCK_VALUE: tl.constexpr,
    BLOCK_PARTS: tl.constexpr,
):
    """Grid: (T x Hq, blocks of value columns)"""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK_VALUE + tl.arange(0, BLOCK_VALUE)
    is_column = columns < VALUE_DIM
    num_own_parts = tl.where(row < tl.load(num_query_rows) * NUM_HEADS, num_parts, 0)
    most = tl.full([1], float("-inf"), tl.float32)
    total = tl.zeros([1], tl.float32)
    merged = tl.zeros([BLOCK_VALUE], tl.float32)
    for start in range(0, num_own_parts, BLOCK_PARTS):
        parts = start + tl.arange(0, BLOCK_PARTS)
        part = row * num_parts + parts
        lses = tl.load(part_lse + part, mask=parts < num_own_parts, other=float("-inf"))
        is_part = lses > float("-inf")  # elsewhere nothing was written
        rows = tl.load(
            part_out + part[:, None] * VALUE_DIM + columns[None, :],
            mask=is_part[:, None] & is_column[None, :],
            other=0.0,
        )
        new_most = tl.maximum(most, tl.max(lses, 0))
        finite = tl.where(new_most == float("-inf"), 0.0, new_most)
        shrink = tl.exp2(most - finite)
        shares = tl.exp2(lses - finite)
        total = total * shrink + tl.sum(shares, 0)
        merged = merged * shrink + tl.sum(shares[:, None] * rows, 0)
        most = new_most
    divisor = tl.where(total > 0, total, 1.0)
    tl.store(out + row * VALUE_DIM + columns, merged / divisor, mask=is_column)
    if tl.program_id(1) == 0:
        natural = (most + tl.log2(divisor)) * 0.6931471805599453  # ln 2
        tl.store(lse + row + tl.arange(0, 1), natural)
