#include "router.h"

#include <cstddef>
#include <limits>
#include <utility>

namespace deepdraft {
namespace {

constexpr float kLeastSum = 1e-20f;  // keeps the quotient finite where all chosen scores are 0
constexpr float kNever = -std::numeric_limits<float>::infinity();

// The first of the greatest that is not taken; there must be one, even where all numbers are NaN.
int best(const float *numbers, const std::vector<char> &is_taken) {
  int found = -1;
  for (int i = 0; i < static_cast<int>(is_taken.size()); ++i) {
    if (!is_taken[i] && (found < 0 || numbers[i] > numbers[found])) found = i;
  }
  return found;
}

// A group's rank is the sum of its two best ranks; those of all but the best groups become -infinity.
void close_groups(const DeepdraftExperts &experts, float *ranks) {
  const int size = experts.num_experts / experts.num_groups;
  std::vector<float> group_ranks(experts.num_groups);
  for (int group = 0; group < experts.num_groups; ++group) {
    float first = kNever, second = kNever;
    for (int i = group * size; i < (group + 1) * size; ++i) {
      if (ranks[i] > second) second = ranks[i];
      if (second > first) std::swap(first, second);
    }
    group_ranks[group] = first + second;
  }
  std::vector<char> is_open(experts.num_groups);
  for (int i = 0; i < experts.num_groups_per_tok; ++i) is_open[best(group_ranks.data(), is_open)] = true;
  for (int expert = 0; expert < experts.num_experts; ++expert) {
    if (!is_open[expert / size]) ranks[expert] = kNever;
  }
}

}  // namespace

std::vector<Choice> choose(const DeepdraftExperts &experts, const float *scores, int num_rows) {
  const int num_experts = experts.num_experts, num_chosen = experts.num_experts_per_tok;
  std::vector<Choice> chosen(static_cast<size_t>(num_rows) * num_chosen);
  std::vector<float> ranks(num_experts);
  std::vector<char> is_taken;
  for (int row = 0; row < num_rows; ++row) {
    const float *of = scores + static_cast<long>(row) * num_experts;
    Choice *to = chosen.data() + static_cast<long>(row) * num_chosen;
    for (int expert = 0; expert < num_experts; ++expert) ranks[expert] = of[expert] + experts.selection_bias[expert];
    if (experts.num_groups_per_tok < experts.num_groups) close_groups(experts, ranks.data());
    is_taken.assign(num_experts, false);
    float sum = kLeastSum;
    for (int i = 0; i < num_chosen; ++i) {
      const int expert = best(ranks.data(), is_taken);
      is_taken[expert] = true;
      to[i] = {expert, of[expert]};
      sum += of[expert];
    }
    const float scale = experts.is_normalised ? experts.weight_scale / sum : experts.weight_scale;
    for (int i = 0; i < num_chosen; ++i) to[i].weight *= scale;
  }
  return chosen;
}

}  // namespace deepdraft
