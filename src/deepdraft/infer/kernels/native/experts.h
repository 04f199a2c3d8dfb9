// The C interface of the native feed-forward: one layer's weights, and the call that takes few rows through them.
//
// Letters: T rows, H hidden width, I inner width of an expert, J of the shared one, E experts, K experts a row.
#ifndef DEEPDRAFT_EXPERTS_H
#define DEEPDRAFT_EXPERTS_H

#include "attention.h"

#ifdef __cplusplus
extern "C" {
#endif

// Checked by the caller: groups divide E, the open ones have K experts. A plain MLP is a shared one, and E = 0.
typedef struct {
  const float *router;          // [E, H]
  const float *selection_bias;  // [E]
  const void *const *gate_up;   // [E]: [2 I, H] of `dtype` each, gate first
  const void *const *down;      // [E]: [H, I]
  const void *shared_gate_up;   // [2 J, H]; NULL: there is none
  const void *shared_down;      // [H, J]
  int32_t hidden_dim, inner_dim, shared_dim;
  int32_t num_experts, num_experts_per_tok, num_groups, num_groups_per_tok;
  int32_t is_normalised;  // weights of a row divided by their sum
  int32_t dtype;
  float weight_scale;
} DeepdraftExperts;

// out = shared(x), plus the sum of weight * expert(x) over a row's chosen experts, for x and out [T, H] in float32.
// T > 0. A row's result depends on no other row. Returns 0; 1: out of memory.
DEEPDRAFT_API int32_t deepdraft_feed_forward(const DeepdraftExperts *experts, const float *x, float *out,
                                             int32_t num_rows, DeepdraftThreads *threads, int32_t instruction_set);

#ifdef __cplusplus
}
#endif
#endif
