// Scores: queries times keys, while the next block is fetched.
#ifndef DEEPDRAFT_SCORES_H
#define DEEPDRAFT_SCORES_H

#include "tile.h"

namespace deepdraft {
namespace {

// scores[key][lane] of kKeys keys and the rows in V vectors; queries [dim][lane].
template <int V, bool kFetch>
void lane_scores(const char *const *keys, const Fetch *fetch, int at, const float *queries, int dim, float *scores) {
  Floats sum[kKeys][V] = {};
  const float *key[kKeys];
  for (int k = 0; k < kKeys; ++k) key[k] = (const float *)keys[k];
  for (int first = 0; first < dim; first += kLineFloats) {
    if (kFetch && (first % (2 * kLineFloats) == 0 || first >= fetch->shared_dim)) {
      for (int k = 0; k < kKeys; ++k) __builtin_prefetch(fetch->keys[at + k] + 4 * first, 0, 2);
    }
    const int stop = least(first + kLineFloats, dim);
    for (int d = first; d < stop; ++d) {
      Floats query[V];
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) query[v] = load(queries + (long)d * V * W + v * W);
#pragma GCC unroll 8
      for (int k = 0; k < kKeys; ++k) {
        const Floats number = all(key[k][d]);
#pragma GCC unroll 2
        for (int v = 0; v < V; ++v) sum[k][v] += number * query[v];
      }
    }
  }
#pragma GCC unroll 8
  for (int k = 0; k < kKeys; ++k) {
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) store(scores + (k * V + v) * W, sum[k][v]);
  }
}

// scores[row][key] of R rows and four keys of type T; queries [row][dim], zeros up to a whole vector.
template <typename T, int R, bool kFetch>
void dot_scores(const char *const *keys, const Fetch *fetch, int at, const float *queries, long query_step, int dim,
                float *scores) {
  constexpr int kLine = kLineBytes / sizeof(T);
  Floats sum[R][4] = {};
  const int whole = dim / W * W;
  const auto add = [&](int d, const Floats(&key)[4]) __attribute__((always_inline)) {
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const Floats query = load(queries + r * query_step + d);
#pragma GCC unroll 4
      for (int k = 0; k < 4; ++k) sum[r][k] += query * key[k];
    }
  };
  const T *k0 = (const T *)keys[0], *k1 = (const T *)keys[1], *k2 = (const T *)keys[2], *k3 = (const T *)keys[3];
  for (int d = 0; d < whole; d += W) {
    if (kFetch && (d % (2 * kLine) == 0 || (d >= fetch->shared_dim && d % kLine == 0))) {
#pragma GCC unroll 4
      for (int k = 0; k < 4; ++k) __builtin_prefetch(fetch->keys[at + k] + sizeof(T) * d, 0, 2);
    }
    const Floats key[4] = {load(k0 + d), load(k1 + d), load(k2 + d), load(k3 + d)};
    add(d, key);
  }
  if (whole < dim) {
    const int rest = dim - whole;
    const Floats key[4] = {load_some(k0 + whole, rest), load_some(k1 + whole, rest), load_some(k2 + whole, rest),
                           load_some(k3 + whole, rest)};
    add(whole, key);
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    const Four four = sums(sum[r]);
    __builtin_memcpy(scores + r * kBlockKeys, &four, sizeof four);
  }
}

// Scores of up to four rows.
template <typename T, bool kFetch>
void dot_scores_of(const Work &work, int num_rows, const float *queries, const char *const *keys, int count,
                   const Fetch *fetch, float *scores) {
  const int dim = work.attention.key_dim;
  const long step = work.query_step;
  for (int key = 0; key < count; key += 4, scores += 4) {
    switch (num_rows) {
      case 1: dot_scores<T, 1, kFetch>(keys + key, fetch, key, queries, step, dim, scores); break;
      case 2: dot_scores<T, 2, kFetch>(keys + key, fetch, key, queries, step, dim, scores); break;
      case 3: dot_scores<T, 3, kFetch>(keys + key, fetch, key, queries, step, dim, scores); break;
      default: dot_scores<T, 4, kFetch>(keys + key, fetch, key, queries, step, dim, scores);
    }
  }
}

template <typename T>
void few_scores(const Work &work, const Tile &tile, const char *const *keys, int count, const Fetch *fetch) {
  for (int row = 0; row < tile.num_rows; row += 4) {
    const float *queries = work.queries + (tile.first + row) * work.query_step;
    const int num_rows = least(4, tile.num_rows - row);
    float *scores = work.scores + row * kBlockKeys;
    if (row == 0 && fetch != nullptr) {
      dot_scores_of<T, true>(work, num_rows, queries, keys, count, fetch, scores);
    } else {
      dot_scores_of<T, false>(work, num_rows, queries, keys, count, nullptr, scores);
    }
  }
}

// Scores of a tile; fetch may be NULL. keys go on to a whole number of kKeys. Rows are lanes only of wide keys.
template <typename T>
void tile_scores(const Work &work, const Tile &tile, const char *const *keys, int count, const Fetch *fetch) {
  if (tile.num_vectors == 0) return few_scores<T>(work, tile, keys, count, fetch);
  const float *queries = work.queries + tile.first * work.query_step;
  const int dim = work.attention.key_dim;
  const auto scores_of = tile.num_vectors == 1
                             ? (fetch != nullptr ? lane_scores<1, true> : lane_scores<1, false>)
                             : (fetch != nullptr ? lane_scores<kMostQueryVectors, true>
                                                 : lane_scores<kMostQueryVectors, false>);
  for (int key = 0; key < count; key += kKeys) {
    scores_of(keys + key, fetch, key, queries, dim, work.scores + key * tile.key_step);
  }
}

}  // namespace
}  // namespace deepdraft
#endif
