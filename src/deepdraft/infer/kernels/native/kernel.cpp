// Attention of some query rows to a range of tokens, whatever the pages: blocks of tokens, softmax as they come.
//
// Each block's rows are listed by address, so pages of any size cost the same arithmetic; narrow rows are widened,
// once for all query rows where there are many. While a block is computed, the next one's rows are fetched into the
// cache: without that, one query row reads at two thirds of the rate.
//
// Query rows are taken in tiles. In a tile of more than half a vector, rows are the vector's lanes: a key's number
// times the rows' numbers of the same dimension, nothing to be added up across lanes, softmax for all rows at once.
// Fewer rows are taken one by one, dimensions being the lanes. Compiled once for each instruction set (build.py).

#include "block.h"
#include "piece.h"
#include "scores.h"
#include "softmax.h"
#include "tile.h"
#include "values.h"

namespace deepdraft {
namespace {

int next_tile(const Work &work, int first, Tile &tile) {
  const int rest = work.piece.num_rows - first;
  tile.first = first;
  if (kMostQueryVectors > 1 && rest >= 2 * W) {
    tile.num_rows = 2 * W;
    tile.num_vectors = 2;
  } else {
    tile.num_vectors = rest > W / 2 ? 1 : 0;
    tile.num_rows = least(rest, tile.num_vectors ? W : W / 2);
  }
  tile.row_step = tile.num_vectors ? 1 : kBlockKeys;
  tile.key_step = tile.num_vectors ? tile.num_vectors * W : 1;
  return first + tile.num_rows;
}

// Queries times scale and log2(e), as the tiles want them.
void pack_queries(const Work &work) {
  const DeepdraftAttention &attention = work.attention;
  const Piece &piece = work.piece;
  const int dim = attention.key_dim;
  const float scale = attention.scale * kLog2E;
  Tile tile;
  for (int first = 0; first < piece.num_rows;) {
    first = next_tile(work, first, tile);
    float *packed = work.queries + tile.first * work.query_step;
    const int lanes = tile.num_vectors * W;
    if (lanes > tile.num_rows) __builtin_memset(packed, 0, sizeof(float) * dim * lanes);
    for (int row = 0; row < tile.num_rows; ++row) {
      const int of_request = piece.first_row + tile.first + row;
      const long query = attention.qo_indptr[piece.request] + of_request / work.group_size;
      const long head = (long)piece.kv_head * work.group_size + of_request % work.group_size;
      const float *from = attention.queries + (query * attention.num_heads + head) * dim;
      if (lanes) {
        for (int d = 0; d < dim; ++d) packed[(long)d * lanes + row] = from[d] * scale;
        continue;
      }
      float *to = packed + row * work.query_step;
      for (int d = 0; d < dim; ++d) to[d] = from[d] * scale;
      for (int d = dim; d < work.query_step; ++d) to[d] = 0;
    }
  }
}

// How many of the block's tokens any row of the tile sees.
int seen_count(const Work &work, const Tile &tile, const Block &block) {
  if (work.attention.tail_masks[work.piece.request] != nullptr) return block.count;
  const int last = (work.piece.first_row + tile.first + tile.num_rows - 1) / work.group_size;
  return least(block.count, work.prefix_len + last + 1 - block.first);
}

// A block with rows of type T; fetch: NULL where nothing is to be fetched meanwhile.
template <typename T>
void attend_rows(const Work &work, const Block &block, const char *const *keys, const char *const *values,
                 const Fetch *fetch) {
  Tile tile;
  for (int first = 0; first < work.piece.num_rows;) {
    first = next_tile(work, first, tile);
    const int count = seen_count(work, tile, block);
    if (count <= 0) continue;
    tile_scores<T>(work, tile, keys, count, fetch);
    if (block.first + count > work.prefix_len) mask_scores(work, tile, block.first, count);
    switch (tile.num_vectors) {
      case 0: row_softmax(work, tile, count); break;
      case 1: lane_softmax<1>(work, tile, count); break;
      default: lane_softmax<2>(work, tile, count);
    }
    tile_values<T>(work, tile, values, count, fetch);
    fetch = nullptr;
  }
}

void attend_block(const Work &work, const Block &block, const Block *next) {
  const DeepdraftAttention &attention = work.attention;
  if (attention.dtype != DEEPDRAFT_FLOAT32 && work.piece.num_rows > kNarrowRows) {
    const char *keys[kBlockKeys], *values[kBlockKeys];
    widen_block(work, block, next, keys, values);
    return attend_rows<float>(work, block, keys, values, nullptr);
  }
  Fetch of_next{nullptr, nullptr, is_latent(attention) ? attention.value_dim : 0};
  if (next != nullptr) of_next.keys = next->keys, of_next.values = next->values;
  const Fetch *fetch = next != nullptr ? &of_next : nullptr;
  switch (attention.dtype) {
    case DEEPDRAFT_BFLOAT16: return attend_rows<BFloat16>(work, block, block.keys, block.values, fetch);
    case DEEPDRAFT_FLOAT16: return attend_rows<Float16>(work, block, block.keys, block.values, fetch);
    default: return attend_rows<float>(work, block, block.keys, block.values, fetch);
  }
}

}  // namespace

namespace DEEPDRAFT_SET {

void attend(const Piece &piece, float *scratch) {
  const DeepdraftAttention &attention = *piece.attention;
  const int query_len = attention.qo_indptr[piece.request + 1] - attention.qo_indptr[piece.request];
  const long key_step = padded(attention.key_dim), value_step = padded(attention.value_dim);
  float *queries = scratch, *wide_keys = queries + (kMaxRows + kTileRows) * key_step;
  float *wide_values = wide_keys + kBlockKeys * key_step, *scores = wide_values + kBlockKeys * value_step;
  const Work work{attention, piece,
                  query_len, attention.prefix_lens[piece.request],
                  attention.num_heads / attention.num_kv_heads, key_step,
                  queries, scores, wide_keys, wide_values, scores + kBlockKeys * kTileRows};
  for (int row = 0; row < piece.num_rows; ++row) {
    piece.maxima[row] = kLowest;
    piece.weights[row] = 0;
  }
  __builtin_memset(piece.sums, 0, sizeof(float) * piece.num_rows * attention.value_dim);
  pack_queries(work);
  Block blocks[2];
  int now = 0;
  if (piece.first_token < piece.stop_token) list_rows(work, piece.first_token, blocks[now]);
  for (int first = piece.first_token; first < piece.stop_token; first += kBlockKeys, now ^= 1) {
    const bool is_last = first + kBlockKeys >= piece.stop_token;
    if (!is_last) list_rows(work, first + kBlockKeys, blocks[now ^ 1]);
    attend_block(work, blocks[now], is_last ? nullptr : &blocks[now ^ 1]);
  }
}

}  // namespace DEEPDRAFT_SET
}  // namespace deepdraft
