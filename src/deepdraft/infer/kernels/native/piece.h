// What the scheduler (attention.cpp) gives a kernel (kernel.cpp): some query rows of one request and key head, and a
// range of its tokens. Only plain data: kernels are compiled for several instruction sets and must not share code.
#ifndef DEEPDRAFT_PIECE_H
#define DEEPDRAFT_PIECE_H

#include "attention.h"

namespace deepdraft {

constexpr int kMaxLanes = 16;    // numbers in the widest vector
constexpr int kBlockKeys = 64;   // tokens taken at a time: their rows stay in the second-level cache
constexpr int kMaxRows = 128;    // query rows of a piece
constexpr int kTileRows = 2 * kMaxLanes;

// Row m of a request and key head is head m % group_size of the group, of query m / group_size. So rows lie in the
// order of the queries, and a piece of a causal prompt stops at its last query's token.
struct Piece {
  const DeepdraftAttention *attention;
  int request, kv_head;
  int first_row, num_rows;
  int first_token, stop_token;
  // Over the piece's tokens, s being a row's scores times log2(e):
  float *sums;      // [num_rows, Dv]: of 2^(s - max) * value
  float *maxima;    // [num_rows]: greatest s
  float *weights;   // [num_rows]: of 2^(s - max)
};

// Floats a kernel works in: queries, scores, and a block of keys and values as float32.
static constexpr long padded(long count) { return (count + kMaxLanes - 1) / kMaxLanes * kMaxLanes; }

static constexpr long scratch_floats(int key_dim, int value_dim) {
  return (kMaxRows + kTileRows + kBlockKeys) * padded(key_dim) + kBlockKeys * padded(value_dim) +
         kBlockKeys * kTileRows + 4 * kTileRows;
}

using Kernel = void (*)(const Piece &piece, float *scratch);

namespace portable { void attend(const Piece &piece, float *scratch); }
namespace avx2 { void attend(const Piece &piece, float *scratch); }
namespace avx512 { void attend(const Piece &piece, float *scratch); }

}  // namespace deepdraft
#endif
