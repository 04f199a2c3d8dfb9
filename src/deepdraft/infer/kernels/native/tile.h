// What the parts of a kernel share: query rows computed together, a block of tokens, and where the work is.
#ifndef DEEPDRAFT_TILE_H
#define DEEPDRAFT_TILE_H

#include "piece.h"
#include "simd.h"

namespace deepdraft {
namespace {

#if DEEPDRAFT_LANES == 16
constexpr int kValueVectors = 4, kMostQueryVectors = 2;  // 32 registers
#else
constexpr int kValueVectors = 2, kMostQueryVectors = 1;  // 16 registers
#endif
constexpr int kValueRows = 4;  // rows whose sums are in registers at once
constexpr int kKeys = 8;       // keys whose scores are in registers at once
constexpr int kNarrowRows = W < 8 ? W / 2 : 4;  // so few rows that numbers are best widened as they are used
constexpr float kLog2E = 1.44269504088896341f, kLowest = -3.40282347e38f;
constexpr float kNever = -__builtin_inff();
constexpr int kLineBytes = 64, kLineFloats = 16;  // a cache line

DEEPDRAFT_INLINE int least(int a, int b) { return a < b ? a : b; }

// Rows of one piece that are computed together.
struct Tile {
  int first, num_rows;  // of the piece's rows
  int num_vectors;      // of rows as lanes; 0: rows are not lanes
  // Where a score is: scores[row * row_step + key * key_step].
  int row_step, key_step;
};

bool is_latent(const DeepdraftAttention &attention) {
  return attention.values == attention.keys && attention.value_dim <= attention.key_dim;
}

// One block of tokens.
struct Block {
  int first, count;
  const char *keys[kBlockKeys], *values[kBlockKeys];  // as cached
};

// The next block's rows, fetched into the second-level cache while scores, and then sums of values, are computed: of
// latent rows, which are both, every other line with each, so that memory is asked for as much all the time.
struct Fetch {
  const char *const *keys, *const *values;
  int shared_dim;  // numbers of a key that are a value too
};

struct Work {
  const DeepdraftAttention &attention;
  const Piece &piece;
  int query_len, prefix_len, group_size;
  long query_step;  // floats of one packed query row, or of all rows' numbers of one dimension
  float *queries, *scores, *wide_keys, *wide_values, *shrink;
};

}  // namespace
}  // namespace deepdraft
#endif
