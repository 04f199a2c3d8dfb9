// The C interface of a product of few rows with a matrix. Letters: T rows, I numbers of a row, O of a result.
#ifndef DEEPDRAFT_LINEAR_H
#define DEEPDRAFT_LINEAR_H

#include "attention.h"

#ifdef __cplusplus
extern "C" {
#endif

// out [T, O] = x [T, I] times the transpose of weights [O, I], which are of `dtype`. A row's result depends on no other
// row. Returns 0; 1: out of memory.
DEEPDRAFT_API int32_t deepdraft_linear(const void *weights, const float *x, float *out, int32_t num_rows,
                                       int32_t dim, int32_t num_columns, int32_t dtype, DeepdraftThreads *threads,
                                       int32_t instruction_set);

#ifdef __cplusplus
}
#endif
#endif
