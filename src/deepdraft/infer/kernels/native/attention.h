// The C interface of the native attention back end: what one call is given and the functions that `library.py` calls.
//
// Letters: T query rows of all requests together, R requests, P pages listed, S slots of the pool, Hq query heads, Hk
// key heads, Dk and Dv widths of a key and a value; as in plan.py. Query head h reads key head h / (Hq / Hk).
#ifndef DEEPDRAFT_ATTENTION_H
#define DEEPDRAFT_ATTENTION_H

#include <stdint.h>

#define DEEPDRAFT_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

enum { DEEPDRAFT_FLOAT32 = 0, DEEPDRAFT_BFLOAT16 = 1, DEEPDRAFT_FLOAT16 = 2 };

// Checked by the caller: lengths fit each other, pages lie in the pool, every row sees a key.
typedef struct {
  const float *queries;  // [T, Hq, Dk]
  const void *keys;      // [S, Hk, Dk] of `dtype`; a row's numbers lie side by side
  const void *values;    // [S, Hk, Dv]; the same address as `keys` where latent rows are both
  float *out;            // [T, Hq, Dv]
  float *lse;            // [T, Hq], natural logarithm
  const int32_t *qo_indptr;   // [R + 1]
  const int32_t *kv_indptr;   // [R + 1], in pages
  const int32_t *kv_indices;  // [P]
  const int32_t *kv_lens;     // [R], tokens
  const int32_t *prefix_lens; // [R], tokens that every query sees; those behind them, at most q, are the tail
  const uint8_t *const *tail_masks;  // [R]: [q, q], not 0 where query i sees tail token j; NULL: where j <= i
  int64_t key_slot_bytes, key_head_bytes;  // from one slot, or head, to the next
  int64_t value_slot_bytes, value_head_bytes;
  int32_t num_requests, num_heads, num_kv_heads, key_dim, value_dim, page_size;
  int32_t dtype;
  float scale;
} DeepdraftAttention;

typedef struct DeepdraftThreads DeepdraftThreads;

// Threads to share work among, the caller's own included. gomp_parallel: GOMP_parallel of an OpenMP runtime that is
// in the process already, whose threads then serve us too; NULL: own threads, which sleep while nothing runs.
DEEPDRAFT_API DeepdraftThreads *deepdraft_threads_new(int32_t num_threads, void *gomp_parallel);
DEEPDRAFT_API void deepdraft_threads_delete(DeepdraftThreads *threads);

// Of the sources that the library was built from (build.py).
DEEPDRAFT_API const char *deepdraft_fingerprint(void);

// Names of the instruction sets that were built and that this processor has, best first, with commas between.
DEEPDRAFT_API const char *deepdraft_instruction_sets(void);

// Attention of one layer for all requests. instruction_set: place in the list above. Returns 0; 1: out of memory.
DEEPDRAFT_API int32_t deepdraft_attend(const DeepdraftAttention *attention, DeepdraftThreads *threads,
                                       int32_t instruction_set);

#ifdef __cplusplus
}
#endif
#endif
