// Mask and softmax of a block's scores, as they come.
#ifndef DEEPDRAFT_SOFTMAX_H
#define DEEPDRAFT_SOFTMAX_H

#include "tile.h"

namespace deepdraft {
namespace {

// Scores that a row does not see become -infinity: those of tail tokens among first .. first + count - 1.
void mask_scores(const Work &work, const Tile &tile, int first, int count) {
  const uint8_t *seen = work.attention.tail_masks[work.piece.request];
  const int from = first < work.prefix_len ? work.prefix_len - first : 0;
  for (int row = 0; row < tile.num_rows; ++row) {
    const int query = (work.piece.first_row + tile.first + row) / work.group_size;
    float *scores = work.scores + row * tile.row_step;
    for (int key = from; key < count; ++key) {
      const int other = first + key - work.prefix_len;
      const bool is_seen = seen != nullptr ? seen[(long)query * work.query_len + other] != 0 : other <= query;
      if (!is_seen) scores[key * tile.key_step] = kNever;
    }
  }
}

// Scores become shares 2^(score - max); maxima and weights are brought up to date, and work.shrink says by how much
// what was summed up so far must shrink.
template <int V>
void lane_softmax(const Work &work, const Tile &tile, int count) {
  float *scores = work.scores;
  for (int v = 0; v < V; ++v) {
    Floats most[2] = {load(scores + v * W), all(kNever)};
    for (int key = 1; key < count; ++key) {
      most[key & 1] = greater(load(scores + (key * V + v) * W), most[key & 1]);
    }
    const int rows = least(W, tile.num_rows - v * W);
    float *maxima = work.piece.maxima + tile.first + v * W, *weights = work.piece.weights + tile.first + v * W;
    const Floats before = load_some(maxima, rows);
    const Floats max = greater(greater(most[0], most[1]), before);
    Floats weight[2] = {};
    for (int key = 0; key < count; ++key) {
      float *score = scores + (key * V + v) * W;
      const Floats share = exp2_of(load(score) - max);
      store(score, share);
      weight[key & 1] += share;
    }
    const Floats shrink = exp2_of(before - max);
    store(work.shrink + v * W, shrink);
    store_some(weights, load_some(weights, rows) * shrink + (weight[0] + weight[1]), rows);
    store_some(maxima, max, rows);
  }
}

void row_softmax(const Work &work, const Tile &tile, int count) {
  const int whole = (count + W - 1) / W * W;
  for (int row = 0; row < tile.num_rows; ++row) {
    float *scores = work.scores + row * kBlockKeys;
    for (int key = count; key < whole; ++key) scores[key] = kNever;
    Floats most = all(kNever);
    for (int key = 0; key < whole; key += W) most = greater(load(scores + key), most);
    float &maximum = work.piece.maxima[tile.first + row], &weight = work.piece.weights[tile.first + row];
    const float before = maximum, block_max = greatest(most);
    maximum = block_max > before ? block_max : before;
    const Floats max = all(maximum);
    Floats added = {};
    for (int key = 0; key < whole; key += W) {
      const Floats share = exp2_of(load(scores + key) - max);
      store(scores + key, share);
      added += share;
    }
    const float shrink = exp2_of(all(before) - max)[0];
    work.shrink[row] = shrink;
    weight = weight * shrink + sum(added);
  }
}

}  // namespace
}  // namespace deepdraft
#endif
