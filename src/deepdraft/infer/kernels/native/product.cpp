// Products of few rows with a matrix that is read once, and the activations. Compiled once for each instruction set
// (build.py).
//
// A dot product's numbers are the lanes. Four rows of weights and up to kMostRows rows of x are in registers at once.
// All rows of x pass a block of weights, which stays in the first-level cache, while the next block is fetched into
// the second: without that, memory idles while many rows are computed. A row's numbers are added up in the same order
// whatever the other rows are.

#include "product.h"
#include "simd.h"

namespace deepdraft {
namespace {

constexpr int kColumns = 4;  // rows of weights in registers at once
#if DEEPDRAFT_LANES == 16
constexpr int kMostRows = 6;  // 32 registers
#else
constexpr int kMostRows = 2;  // 16 registers
#endif
constexpr int kBlockBytes = 12 << 10;  // of weights
constexpr int kLineBytes = 64;
constexpr float kLog2E = 1.44269504088896341f;

DEEPDRAFT_INLINE int least(int a, int b) { return a < b ? a : b; }

DEEPDRAFT_INLINE void put(const Floats (&products)[1], float *to, bool adds) {
  *to = sum(products[0]) + (adds ? *to : 0);
}

DEEPDRAFT_INLINE void put(const Floats (&products)[kColumns], float *to, bool adds) {
  Four four = sums(products);
  if (adds) {
    Four before;
    __builtin_memcpy(&before, to, sizeof before);
    four += before;
  }
  __builtin_memcpy(to, &four, sizeof four);
}

// The product of each of R rows with N rows of weights; kFetch: as much is fetched from `fetched` on.
template <typename T, int R, int N, bool kFetch>
DEEPDRAFT_INLINE void dots(const float *const *rows, const T *weights, int dim, float *const *out, int column,
                           bool adds, const char *fetched) {
  Floats products[R][N] = {};
  const float *x[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) x[r] = rows[r];
  const int whole = dim / W * W;
  for (int d = 0; d < whole; d += W) {
    Floats weight[N];
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) {
      const long at = (long)n * dim + d;
      if (kFetch && d % (kLineBytes / (int)sizeof(T)) == 0) __builtin_prefetch(fetched + at * sizeof(T), 0, 2);
      weight[n] = load(weights + at);
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const Floats number = load(x[r] + d);
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) products[r][n] += number * weight[n];
    }
  }
  if (whole < dim) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const Floats number = load_some(x[r] + whole, dim - whole);
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) products[r][n] += number * load_some(weights + (long)n * dim + whole, dim - whole);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) put(products[r], out[r] + column, adds);
}

// Some columns, and what is to be fetched while they are computed: as much as their weights from `next` on.
struct Block {
  int first, stop;
  const char *next;
};

// The block's columns of one tile of R rows. Tiles take turns at fetching.
template <typename T, int R>
void columns(const Product &product, const Block &block, int first_row, int tile, int num_tiles) {
  const float *const *rows = product.rows + first_row;
  float *const *out = product.out + first_row;
  const T *weights = (const T *)product.weights;
  const long dim = product.dim;
  const bool adds = product.adds;
  int column = block.first;
  for (int turn = tile; column + kColumns <= block.stop; column += kColumns, ++turn) {
    const T *of = weights + column * dim;
    if (turn == num_tiles) turn = 0;
    if (turn == 0 && block.next != nullptr) {
      const char *fetched = block.next + (column - block.first) * dim * sizeof(T);
      dots<T, R, kColumns, true>(rows, of, product.dim, out, column, adds, fetched);
    } else {
      dots<T, R, kColumns, false>(rows, of, product.dim, out, column, adds, nullptr);
    }
  }
  for (; column < block.stop; ++column) {
    dots<T, R, 1, false>(rows, weights + column * dim, product.dim, out, column, adds, nullptr);
  }
}

template <typename T>
void multiply_by(const Product &product) {
  const int num_tiles = (product.num_rows + kMostRows - 1) / kMostRows;
  const long row_bytes = (long)product.dim * sizeof(T);
  const int fitting = (int)(kBlockBytes / row_bytes) / kColumns * kColumns;
  const int block_columns = fitting > kColumns ? fitting : kColumns;
  for (int first = product.first; first < product.stop; first += block_columns) {
    const int stop = least(first + block_columns, product.stop);
    const void *next = stop < product.stop ? (const char *)product.weights + stop * row_bytes : product.next;
    const Block block{first, stop, (const char *)next};
    for (int tile = 0; tile < num_tiles; ++tile) {
      const int row = product.num_rows * tile / num_tiles;
      switch (product.num_rows * (tile + 1) / num_tiles - row) {
        case 1: columns<T, 1>(product, block, row, tile, num_tiles); break;
        case 2: columns<T, 2>(product, block, row, tile, num_tiles); break;
#if DEEPDRAFT_LANES == 16
        case 3: columns<T, 3>(product, block, row, tile, num_tiles); break;
        case 4: columns<T, 4>(product, block, row, tile, num_tiles); break;
        case 5: columns<T, 5>(product, block, row, tile, num_tiles); break;
        default: columns<T, 6>(product, block, row, tile, num_tiles);
#endif
      }
    }
  }
}

// 1 / (1 + e^-x), without overflow.
DEEPDRAFT_INLINE Floats sigmoid_of(Floats x) {
  const Floats power = exp2_of((x < 0.0f ? x : -x) * kLog2E);
  return (x < 0.0f ? power : all(1.0f)) / (power + 1.0f);
}

}  // namespace

namespace DEEPDRAFT_SET {

void multiply(const Product &product) {
  switch (product.dtype) {
    case DEEPDRAFT_BFLOAT16: return multiply_by<BFloat16>(product);
    case DEEPDRAFT_FLOAT16: return multiply_by<Float16>(product);
    default: return multiply_by<float>(product);
  }
}

void gate(float *gates, const float *ups, int count, float weight) {
  int i = 0;
  for (; i + W <= count; i += W) {
    const Floats gate = load(gates + i);
    store(gates + i, gate * sigmoid_of(gate) * load(ups + i) * weight);
  }
  if (i < count) {
    const Floats gate = load_some(gates + i, count - i);
    store_some(gates + i, gate * sigmoid_of(gate) * load_some(ups + i, count - i) * weight, count - i);
  }
}

void sigmoid(float *numbers, int count) {
  int i = 0;
  for (; i + W <= count; i += W) store(numbers + i, sigmoid_of(load(numbers + i)));
  if (i < count) store_some(numbers + i, sigmoid_of(load_some(numbers + i, count - i)), count - i);
}

}  // namespace DEEPDRAFT_SET
}  // namespace deepdraft
