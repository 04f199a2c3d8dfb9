// What the feed-forward (experts.cpp) asks of an instruction set (product.cpp). Only plain data, as in piece.h.
#ifndef DEEPDRAFT_PRODUCT_H
#define DEEPDRAFT_PRODUCT_H

#include "attention.h"

namespace deepdraft {

// out[row][column] = row . weights[column], or += it, for columns first <= column < stop.
struct Product {
  const float *const *rows;  // [num_rows], `dim` numbers at each address
  float *const *out;         // [num_rows], where column 0 is
  const void *weights;       // [columns, dim] of `dtype`
  const void *next;          // weights that are read after these, to be fetched meanwhile; NULL: not said
  int num_rows, dim, first, stop;
  int dtype;
  bool adds;
};

using Multiply = void (*)(const Product &product);
// gates[i] = silu(gates[i]) * ups[i] * weight
using Gate = void (*)(float *gates, const float *ups, int count, float weight);
using Sigmoid = void (*)(float *numbers, int count);

#define DEEPDRAFT_PRODUCTS(set)                                          \
  namespace set {                                                       \
  void multiply(const Product &product);                                \
  void gate(float *gates, const float *ups, int count, float weight);   \
  void sigmoid(float *numbers, int count);                              \
  }

DEEPDRAFT_PRODUCTS(portable)
DEEPDRAFT_PRODUCTS(avx2)
DEEPDRAFT_PRODUCTS(avx512)

}  // namespace deepdraft
#endif
