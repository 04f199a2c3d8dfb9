// Products of few rows with a matrix, whose columns are split among threads where it is large.

#include "linear.h"

#include <algorithm>
#include <new>
#include <vector>

#include "instruction_sets.h"
#include "threads.h"

namespace deepdraft {
namespace {

constexpr int kMostRows = 256;            // at a time: they stay in the caches
constexpr int kTasksPerThread = 4;
constexpr int kLineFloats = 16;           // a cache line: threads don't write to the same one
constexpr double kReadRows = 4;           // reading weights takes as long as multiplying them by so many rows
constexpr double kMinTaskWork = 1 << 18;  // numbers read and multiplied; some 10 us
constexpr double kMinSharedWork = 1 << 21;  // less is not worth waking anyone

void linear(Product product, int num_columns, DeepdraftThreads &threads, const InstructionSet &set) {
  const double work = static_cast<double>(num_columns) * product.dim * (product.num_rows + kReadRows);
  if (threads.num_threads() == 1 || work < kMinSharedWork) {
    product.stop = num_columns;
    return set.multiply(product);
  }
  const int num_lines = (num_columns + kLineFloats - 1) / kLineFloats;
  const int num_tasks = std::max(1, std::min({num_lines, kTasksPerThread * threads.num_threads(),
                                              static_cast<int>(work / kMinTaskWork)}));
  threads.run(num_tasks, [&](int task) {
    Product part = product;
    part.first = static_cast<int>(static_cast<long>(num_lines) * task / num_tasks) * kLineFloats;
    const int stop = static_cast<int>(static_cast<long>(num_lines) * (task + 1) / num_tasks) * kLineFloats;
    part.stop = std::min(stop, num_columns);
    set.multiply(part);
  });
}

}  // namespace
}  // namespace deepdraft

extern "C" {

int32_t deepdraft_linear(const void *weights, const float *x, float *out, int32_t num_rows, int32_t dim,
                         int32_t num_columns, int32_t dtype, DeepdraftThreads *threads, int32_t instruction_set) {
  try {
    const auto &set = deepdraft::instruction_sets()[instruction_set];
    const float *x_rows[deepdraft::kMostRows];
    float *out_rows[deepdraft::kMostRows];
    for (int first = 0; first < num_rows; first += deepdraft::kMostRows) {
      const int count = std::min(deepdraft::kMostRows, num_rows - first);
      for (int row = 0; row < count; ++row) {
        x_rows[row] = x + static_cast<int64_t>(first + row) * dim;
        out_rows[row] = out + static_cast<int64_t>(first + row) * num_columns;
      }
      deepdraft::linear({x_rows, out_rows, weights, nullptr, count, dim, 0, 0, dtype, false}, num_columns, *threads,
                        set);
    }
    return 0;
  } catch (const std::bad_alloc &) {
    return 1;
  }
}

}
