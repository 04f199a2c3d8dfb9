// A block of tokens: where their rows are, and narrow ones widened to float32.
#ifndef DEEPDRAFT_BLOCK_H
#define DEEPDRAFT_BLOCK_H

#include "tile.h"

namespace deepdraft {
namespace {

// The addresses of up to kBlockKeys tokens from `first` on; in the places left, the first one's again.
void list_rows(const Work &work, int first, Block &block) {
  const DeepdraftAttention &attention = work.attention;
  const int32_t *pages = attention.kv_indices + attention.kv_indptr[work.piece.request];
  const char *keys = (const char *)attention.keys + work.piece.kv_head * attention.key_head_bytes;
  const char *values = (const char *)attention.values + work.piece.kv_head * attention.value_head_bytes;
  block.first = first;
  block.count = least(kBlockKeys, work.piece.stop_token - first);
  int page = first / attention.page_size, within = first % attention.page_size;
  for (int key = 0; key < block.count; ++key) {
    const int64_t slot = (int64_t)pages[page] * attention.page_size + within;
    block.keys[key] = keys + slot * attention.key_slot_bytes;
    block.values[key] = values + slot * attention.value_slot_bytes;
    if (++within == attention.page_size) {
      within = 0;
      ++page;
    }
  }
  for (int key = block.count; key < kBlockKeys; ++key) {
    block.keys[key] = block.keys[0];
    block.values[key] = block.values[0];
  }
}

// Rows as float32, one after the other; the next block's are fetched.
template <typename Narrow>
void widen(const char *const *rows, int count, const char *const *next, int dim, float *wide, const char **listed) {
  const long step = padded(dim);
  const int whole = dim / W * W;
  for (int key = 0; key < count; ++key) {
    const Narrow *row = (const Narrow *)rows[key];
    float *to = wide + key * step;
    if (next != nullptr) {
      for (int d = 0; d < dim; d += 2 * kLineFloats) __builtin_prefetch(next[key] + 2 * d, 0, 2);
    }
    for (int d = 0; d < whole; d += W) store(to + d, load(row + d));
    if (whole < dim) store(to + whole, load_some(row + whole, dim - whole));
    listed[key] = (const char *)to;
  }
  for (int key = count; key < kBlockKeys; ++key) listed[key] = listed[0];
}

// A block's rows as float32, the next block's being fetched.
void widen_block(const Work &work, const Block &block, const Block *next, const char **keys, const char **values) {
  const DeepdraftAttention &attention = work.attention;
  const auto widen_rows = attention.dtype == DEEPDRAFT_BFLOAT16 ? widen<BFloat16> : widen<Float16>;
  widen_rows(block.keys, block.count, next ? next->keys : nullptr, attention.key_dim, work.wide_keys, keys);
  if (is_latent(attention)) {
    for (int key = 0; key < block.count; ++key) values[key] = keys[key];
    return;
  }
  widen_rows(block.values, block.count, next ? next->values : nullptr, attention.value_dim, work.wide_values, values);
}

}  // namespace
}  // namespace deepdraft
#endif
