// Feed-forward of few rows: the router, rows grouped by expert, two passes over the groups: gate and up, then down.
//
// An expert's weights are read once for all its rows. Work is split for threads by an expert's inner units in the
// first pass, and in the second by columns of the output, which one thread adds up over all experts. So nothing is
// written by two, and a row's experts are added in the order of their numbers, whatever the threads.

#include "experts.h"

#include <algorithm>
#include <new>
#include <vector>

#include "buffer.h"
#include "instruction_sets.h"
#include "piece.h"
#include "router.h"
#include "threads.h"

namespace deepdraft {
namespace {

constexpr int kTasksPerThread = 4;
constexpr int kLineFloats = 16;           // a cache line: threads don't write to the same one
constexpr int kMostRows = 256;            // at a time: what lies between the passes stays in the caches
constexpr double kReadRows = 4;           // reading weights takes as long as multiplying them by so many rows
constexpr double kMinTaskWork = 1 << 18;  // numbers read and multiplied; some 10 us
constexpr double kMinSharedWork = 1 << 21;  // less is not worth waking anyone

thread_local Buffer router_scores, inner_numbers;

// One expert, or the shared one, with the rows that pass it.
struct Group {
  const void *gate_up, *down;
  int dim;  // inner units
  int first_place, num_rows;
  double work_per_unit(int hidden_dim) const { return 3.0 * hidden_dim * (num_rows + kReadRows); }
};

struct Task {
  int group, first, stop;  // inner units
};

// A row at an expert: a place. Those of a group lie side by side.
struct Places {
  std::vector<Group> groups;
  std::vector<const float *> x;
  std::vector<float *> inner;  // gates, then ups: [2 dim]
  std::vector<float *> out;
  std::vector<float> weights;

  void add(int place, const float *row, float *inner_row, float *out_row, float weight) {
    x[place] = row;
    inner[place] = inner_row;
    out[place] = out_row;
    weights[place] = weight;
  }
};

std::vector<Choice> route(const DeepdraftExperts &experts, const float *x, int num_rows,
                          const InstructionSet &set) {
  if (experts.num_experts == 0) return {};
  const long num_scores = static_cast<long>(num_rows) * experts.num_experts;
  float *scores = router_scores.floats(num_scores);
  std::vector<const float *> rows(num_rows);
  std::vector<float *> out(num_rows);
  for (int row = 0; row < num_rows; ++row) {
    rows[row] = x + static_cast<long>(row) * experts.hidden_dim;
    out[row] = scores + static_cast<long>(row) * experts.num_experts;
  }
  set.multiply({rows.data(), out.data(), experts.router, nullptr, num_rows, experts.hidden_dim, 0,
                experts.num_experts, DEEPDRAFT_FLOAT32, false});
  set.sigmoid(scores, static_cast<int>(num_scores));
  return choose(experts, scores, num_rows);
}

Places placed(const DeepdraftExperts &experts, const std::vector<Choice> &chosen, const float *x, float *out,
              int num_rows) {
  const bool has_shared = experts.shared_gate_up != nullptr;
  const int num_shared = has_shared ? num_rows : 0;
  const long shared_step = padded(2L * experts.shared_dim), step = padded(2L * experts.inner_dim);
  float *shared_inner = inner_numbers.floats(num_shared * shared_step + static_cast<long>(chosen.size()) * step);
  float *inner = shared_inner + num_shared * shared_step;
  const size_t num_places = num_shared + chosen.size();
  Places places;
  places.x.resize(num_places), places.inner.resize(num_places), places.out.resize(num_places);
  places.weights.resize(num_places);
  if (has_shared) {
    places.groups.push_back({experts.shared_gate_up, experts.shared_down, experts.shared_dim, 0, num_rows});
    for (int row = 0; row < num_rows; ++row) {
      const long at = static_cast<long>(row) * experts.hidden_dim;
      places.add(row, x + at, shared_inner + row * shared_step, out + at, 1.0f);
    }
  }
  std::vector<int> counts(experts.num_experts), next(experts.num_experts);
  for (const Choice &choice : chosen) ++counts[choice.expert];
  int place = num_shared;
  for (int expert = 0; expert < experts.num_experts; ++expert) {
    next[expert] = place;
    if (counts[expert] == 0) continue;
    const void *up = experts.gate_up[expert], *down = experts.down[expert];
    places.groups.push_back({up, down, experts.inner_dim, place, counts[expert]});
    place += counts[expert];
  }
  for (size_t i = 0; i < chosen.size(); ++i) {
    const int at = next[chosen[i].expert]++;
    const long from = static_cast<long>(i) / experts.num_experts_per_tok * experts.hidden_dim;
    places.add(at, x + from, inner + (at - num_shared) * step, out + from, chosen[i].weight);
  }
  return places;
}

double work(const Places &places, int hidden_dim) {
  double whole = 0;
  for (const Group &group : places.groups) whole += group.dim * group.work_per_unit(hidden_dim);
  return whole;
}

// Inner units split so that tasks are about equal, and not too small to be worth handing out.
std::vector<Task> tasks(const Places &places, int hidden_dim, double task_work) {
  std::vector<Task> found;
  for (size_t i = 0; i < places.groups.size(); ++i) {
    const Group &group = places.groups[i];
    const double units = std::min<double>(task_work / group.work_per_unit(hidden_dim), group.dim);
    const int step = static_cast<int>(padded(std::max(static_cast<long>(units), 1L)));
    for (int first = 0; first < group.dim; first += step) {
      found.push_back({static_cast<int>(i), first, std::min(first + step, group.dim)});
    }
  }
  return found;
}

const void *rows_from(const DeepdraftExperts &experts, const void *weights, int row, int dim) {
  const int number_bytes = experts.dtype == DEEPDRAFT_FLOAT32 ? 4 : 2;
  return static_cast<const char *>(weights) + static_cast<long>(row) * dim * number_bytes;
}

// Inner numbers of some units: silu(gate) * up * weight. next: weights that are read after these.
void gate_up(const DeepdraftExperts &experts, const Places &places, const Task &task, const void *next,
             const InstructionSet &set) {
  const Group &group = places.groups[task.group];
  Product product{&places.x[group.first_place], &places.inner[group.first_place], group.gate_up,
                  rows_from(experts, group.gate_up, group.dim + task.first, experts.hidden_dim),
                  group.num_rows, experts.hidden_dim, task.first, task.stop, experts.dtype, false};
  set.multiply(product);
  product.first += group.dim;
  product.stop += group.dim;
  product.next = next;
  set.multiply(product);
  for (int place = group.first_place; place < group.first_place + group.num_rows; ++place) {
    float *gates = places.inner[place] + task.first;
    set.gate(gates, gates + group.dim, task.stop - task.first, places.weights[place]);
  }
}

// Columns first <= column < stop of the output, over all experts.
void down(const DeepdraftExperts &experts, const Places &places, int first, int stop, const InstructionSet &set) {
  bool adds = experts.shared_gate_up == nullptr;
  for (size_t i = 0; i < places.groups.size(); ++i) {
    const Group &group = places.groups[i];
    const Group *next = i + 1 < places.groups.size() ? &group + 1 : nullptr;
    set.multiply({&places.inner[group.first_place], &places.out[group.first_place], group.down,
                  next ? rows_from(experts, next->down, first, next->dim) : nullptr,
                  group.num_rows, group.dim, first, stop, experts.dtype, adds});
    adds = true;
  }
}

void run_alone(const DeepdraftExperts &experts, const Places &places, const InstructionSet &set) {
  const std::vector<Group> &groups = places.groups;
  for (size_t i = 0; i < groups.size(); ++i) {
    const void *next = i + 1 < groups.size() ? groups[i + 1].gate_up : groups[0].down;
    gate_up(experts, places, {static_cast<int>(i), 0, groups[i].dim}, next, set);
  }
  down(experts, places, 0, experts.hidden_dim, set);
}

void run_together(const DeepdraftExperts &experts, const Places &places, DeepdraftThreads &threads, double whole,
                  const InstructionSet &set) {
  const int most_tasks = kTasksPerThread * threads.num_threads(), hidden_dim = experts.hidden_dim;
  const double task_work = std::max(whole / most_tasks, kMinTaskWork);
  const std::vector<Task> all = tasks(places, hidden_dim, task_work);
  threads.run(static_cast<int>(all.size()), [&](int task) { gate_up(experts, places, all[task], nullptr, set); });
  const int num_lines = (hidden_dim + kLineFloats - 1) / kLineFloats;
  const int num_tasks = std::min({num_lines, most_tasks, std::max(static_cast<int>(whole / task_work), 1)});
  threads.run(num_tasks, [&](int task) {
    const int first = num_lines * task / num_tasks * kLineFloats;
    const int stop = std::min(num_lines * (task + 1) / num_tasks * kLineFloats, hidden_dim);
    down(experts, places, first, stop, set);
  });
}

void feed_forward(const DeepdraftExperts &experts, const float *x, float *out, int num_rows,
                  DeepdraftThreads &threads, const InstructionSet &set) {
  const std::vector<Choice> chosen = route(experts, x, num_rows, set);
  const Places places = placed(experts, chosen, x, out, num_rows);
  if (experts.shared_gate_up == nullptr) std::fill_n(out, static_cast<long>(num_rows) * experts.hidden_dim, 0.0f);
  const double whole = work(places, experts.hidden_dim);
  if (whole < kMinSharedWork || threads.num_threads() == 1) return run_alone(experts, places, set);
  run_together(experts, places, threads, whole, set);
}

}  // namespace
}  // namespace deepdraft

extern "C" {

int32_t deepdraft_feed_forward(const DeepdraftExperts *experts, const float *x, float *out, int32_t num_rows,
                               DeepdraftThreads *threads, int32_t instruction_set) {
  try {
    const auto &set = deepdraft::instruction_sets()[instruction_set];
    for (int first = 0; first < num_rows; first += deepdraft::kMostRows) {
      const long at = static_cast<long>(first) * experts->hidden_dim;
      const int count = std::min(deepdraft::kMostRows, num_rows - first);
      deepdraft::feed_forward(*experts, x + at, out + at, count, *threads, set);
    }
    return 0;
  } catch (const std::bad_alloc &) {
    return 1;
  }
}

}
