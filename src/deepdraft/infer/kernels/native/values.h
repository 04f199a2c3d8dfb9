// Sums of values, each times its share, while the next block is fetched.
#ifndef DEEPDRAFT_VALUES_H
#define DEEPDRAFT_VALUES_H

#include "tile.h"

namespace deepdraft {
namespace {

// sums[row][column] = sums * shrink + shares @ values, for R rows and C vectors of columns (kPart: the first `part`
// columns of one vector); values of type T.
template <typename T, int R, int C, bool kPart, bool kFetch>
void add_values(const char *const *values, const Fetch *fetch, int count, long column, int part, const float *shares,
                const Tile &tile, const float *shrink, float *sums, long sum_step) {
  Floats sum[R][C];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) {
      const float *so_far = sums + r * sum_step + c * W;
      sum[r][c] = (kPart ? load_some(so_far, part) : load(so_far)) * shrink[r];
    }
  }
  const long row_step = tile.row_step, key_step = tile.key_step;
  constexpr int kLine = kLineBytes / sizeof(T);
  const long stop = kPart ? column + part : column + C * W;
  // Of a latent row every other line is fetched with the scores.
  const bool is_shared = kFetch && fetch->shared_dim > 0;
  const long first_line = (column + kLine - 1) / kLine;
  const long from = (is_shared ? first_line | 1 : first_line) * kLine, step = is_shared ? 2 * kLine : kLine;
  for (int key = 0; key < count; ++key) {
    const T *value = (const T *)values[key] + column;
    if (kFetch) {
      for (long d = from; d < stop; d += step) __builtin_prefetch(fetch->values[key] + sizeof(T) * d, 0, 2);
    }
    Floats numbers[C];
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) numbers[c] = kPart ? load_some(value, part) : load(value + c * W);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const Floats share = all(shares[r * row_step + key * key_step]);
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) sum[r][c] += share * numbers[c];
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) {
      float *to = sums + r * sum_step + c * W;
      if (kPart) {
        store_some(to, sum[r][c], part);
      } else {
        store(to, sum[r][c]);
      }
    }
  }
}

template <typename T, int C, bool kPart, bool kFetch>
void add_columns_of(const Work &work, const Tile &tile, int row, const char *const *values, const Fetch *fetch,
                    int count, long column, int part) {
  const long step = work.attention.value_dim;
  const float *shares = work.scores + row * tile.row_step, *shrink = work.shrink + row;
  float *sums = work.piece.sums + (tile.first + row) * step + column;
  switch (least(kValueRows, tile.num_rows - row)) {
    case 1:
      return add_values<T, 1, C, kPart, kFetch>(values, fetch, count, column, part, shares, tile, shrink, sums, step);
    case 2:
      return add_values<T, 2, C, kPart, kFetch>(values, fetch, count, column, part, shares, tile, shrink, sums, step);
    case 3:
      return add_values<T, 3, C, kPart, kFetch>(values, fetch, count, column, part, shares, tile, shrink, sums, step);
    default:
      return add_values<T, 4, C, kPart, kFetch>(values, fetch, count, column, part, shares, tile, shrink, sums, step);
  }
}

template <typename T, int C, bool kPart>
void add_columns(const Work &work, const Tile &tile, const char *const *values, const Fetch *fetch, int count,
                 long column, int part) {
  for (int row = 0; row < tile.num_rows; row += kValueRows) {
    if (row == 0 && fetch != nullptr) {
      add_columns_of<T, C, kPart, true>(work, tile, row, values, fetch, count, column, part);
    } else {
      add_columns_of<T, C, kPart, false>(work, tile, row, values, nullptr, count, column, part);
    }
  }
}

template <typename T>
void tile_values(const Work &work, const Tile &tile, const char *const *values, int count, const Fetch *fetch) {
  const int dim = work.attention.value_dim;
  int column = 0;
  for (; column + kValueVectors * W <= dim; column += kValueVectors * W) {
    add_columns<T, kValueVectors, false>(work, tile, values, fetch, count, column, 0);
  }
  for (; column + W <= dim; column += W) add_columns<T, 1, false>(work, tile, values, fetch, count, column, 0);
  if (column < dim) add_columns<T, 1, true>(work, tile, values, fetch, count, column, dim - column);
}

}  // namespace
}  // namespace deepdraft
#endif
