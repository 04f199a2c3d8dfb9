// Work for threads: every request, key head and group of query rows, its tokens split where threads would idle; the
// splits merged exactly by their sums of exponentials.

#include "attention.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <new>
#include <vector>

#include "buffer.h"
#include "instruction_sets.h"
#include "piece.h"
#include "threads.h"

namespace deepdraft {
namespace {

constexpr int kTasksPerThread = 4;     // evens out tasks of unequal size, and cores that something else keeps busy
constexpr double kReadRows = 8;        // reading a token takes as long as multiplying it by so many query rows
constexpr double kMinTaskWork = 1 << 20;  // numbers read and multiplied; some 20 to 50 us
constexpr float kLn2 = 0.693147180559945309f;

thread_local Buffer working, unsplit, split_results;

// Some rows of one request and key head, and the pieces their tokens are split into.
struct Group {
  int request, kv_head, first_row, num_rows, num_tokens;
  int num_splits = 1;
  long result = 0;  // where its pieces' sums, maxima and weights are, in floats
  double work() const { return num_tokens * (num_rows + kReadRows); }
  long result_floats(int value_dim) const { return padded(static_cast<long>(num_rows) * (value_dim + 2)); }
};

std::vector<Group> groups(const DeepdraftAttention &attention) {
  std::vector<Group> found;
  const int group_size = attention.num_heads / attention.num_kv_heads;
  for (int request = 0; request < attention.num_requests; ++request) {
    const int query_len = attention.qo_indptr[request + 1] - attention.qo_indptr[request];
    const int kv_len = attention.kv_lens[request], num_rows = query_len * group_size;
    for (int kv_head = 0; kv_head < attention.num_kv_heads; ++kv_head) {
      for (int first = 0; first < num_rows; first += kMaxRows) {
        const int count = std::min(kMaxRows, num_rows - first);
        const bool is_causal = attention.tail_masks[request] == nullptr;
        const int last_query = (first + count - 1) / group_size;
        const int num_tokens = is_causal ? std::min(kv_len, attention.prefix_lens[request] + last_query + 1) : kv_len;
        found.push_back({request, kv_head, first, count, num_tokens});
      }
    }
  }
  return found;
}

struct Task {
  int group, split;
};

double work(const std::vector<Group> &of) {
  double whole = 0;
  for (const Group &group : of) whole += group.work();
  return whole;
}

// Tokens split so that tasks are about equal, and not too small to be worth a merge.
std::vector<Task> tasks(std::vector<Group> &of, const DeepdraftAttention &attention, int num_threads) {
  const double whole = work(of);
  const double task_work = std::max(whole / (kTasksPerThread * num_threads), kMinTaskWork / attention.key_dim);
  std::vector<Task> found;
  long result = 0;
  for (size_t i = 0; i < of.size(); ++i) {
    Group &group = of[i];
    if (num_threads > 1) {
      const int most = (group.num_tokens + kBlockKeys - 1) / kBlockKeys;
      group.num_splits = std::clamp(static_cast<int>(group.work() / task_work), 1, most);
    }
    group.result = result;
    if (group.num_splits > 1) result += group.num_splits * group.result_floats(attention.value_dim);
    for (int split = 0; split < group.num_splits; ++split) found.push_back({static_cast<int>(i), split});
  }
  return found;
}

Piece piece(const DeepdraftAttention &attention, const Group &group, int split, float *result) {
  const long num_blocks = (group.num_tokens + kBlockKeys - 1) / kBlockKeys;
  const int first = static_cast<int>(num_blocks * split / group.num_splits) * kBlockKeys;
  const int stop = static_cast<int>(num_blocks * (split + 1) / group.num_splits) * kBlockKeys;
  float *maxima = result + static_cast<long>(group.num_rows) * attention.value_dim;
  return {&attention, group.request, group.kv_head, group.first_row, group.num_rows, first,
          std::min(stop, group.num_tokens), result, maxima, maxima + group.num_rows};
}

// The group's out and lse from the results of its pieces, which lie one after the other.
void merge(const DeepdraftAttention &attention, const Group &group, const float *results) {
  const int dim = attention.value_dim, num_rows = group.num_rows;
  const int group_size = attention.num_heads / attention.num_kv_heads;
  const long step = group.result_floats(dim), maxima = static_cast<long>(num_rows) * dim;
  for (int row = 0; row < num_rows; ++row) {
    const long query = attention.qo_indptr[group.request] + (group.first_row + row) / group_size;
    const long head = static_cast<long>(group.kv_head) * group_size + (group.first_row + row) % group_size;
    const long to = query * attention.num_heads + head;
    float *out = attention.out + to * dim;
    float max = results[maxima + row];
    for (int split = 1; split < group.num_splits; ++split) max = std::max(max, results[split * step + maxima + row]);
    float weight = 0;
    for (int split = 0; split < group.num_splits; ++split) {
      const float *of = results + split * step;
      weight += of[maxima + num_rows + row] * std::exp2(of[maxima + row] - max);
    }
    for (int split = 0; split < group.num_splits; ++split) {
      const float *of = results + split * step, *sums = of + static_cast<long>(row) * dim;
      const float share = std::exp2(of[maxima + row] - max) / weight;
      if (split == 0) {
        for (int d = 0; d < dim; ++d) out[d] = sums[d] * share;
      } else {
        for (int d = 0; d < dim; ++d) out[d] += sums[d] * share;
      }
    }
    attention.lse[to] = (max + std::log2(weight)) * kLn2;
  }
}

void attend(const DeepdraftAttention &attention, DeepdraftThreads &threads, Kernel kernel) {
  std::vector<Group> of = groups(attention);
  if (of.empty()) return;
  const bool is_small = work(of) * attention.key_dim < kMinTaskWork;  // not worth waking anyone
  const std::vector<Task> all = tasks(of, attention, is_small ? 1 : threads.num_threads());
  const Group &last = of.back();
  float *results = split_results.floats(last.result + last.num_splits * last.result_floats(attention.value_dim));
  std::unique_ptr<std::atomic<int>[]> left(new std::atomic<int>[of.size()]);
  for (size_t i = 0; i < of.size(); ++i) left[i].store(of[i].num_splits, std::memory_order_relaxed);
  std::atomic<bool> has_memory{true};
  const auto attend_task = [&](int task) {
    try {
      const Group &group = of[all[task].group];
      const long size = group.result_floats(attention.value_dim);
      float *scratch = working.floats(scratch_floats(attention.key_dim, attention.value_dim));
      if (group.num_splits == 1) {
        float *result = unsplit.floats(size);
        kernel(piece(attention, group, 0, result), scratch);
        merge(attention, group, result);
        return;
      }
      kernel(piece(attention, group, all[task].split, results + group.result + all[task].split * size), scratch);
      if (left[all[task].group].fetch_sub(1, std::memory_order_acq_rel) == 1) {
        merge(attention, group, results + group.result);
      }
    } catch (const std::bad_alloc &) {
      has_memory.store(false, std::memory_order_relaxed);
    }
  };
  if (is_small) {
    for (size_t task = 0; task < all.size(); ++task) attend_task(static_cast<int>(task));
  } else {
    threads.run(static_cast<int>(all.size()), attend_task);
  }
  if (!has_memory.load()) throw std::bad_alloc();
}

}  // namespace
}  // namespace deepdraft

extern "C" {

int32_t deepdraft_attend(const DeepdraftAttention *attention, DeepdraftThreads *threads, int32_t instruction_set) {
  try {
    deepdraft::attend(*attention, *threads, deepdraft::instruction_sets()[instruction_set].attend);
    return 0;
  } catch (const std::bad_alloc &) {
    return 1;
  }
}

}
