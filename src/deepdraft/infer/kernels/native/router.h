// Which experts each row goes to, and with what weights (layers/experts.py has the definition).
#ifndef DEEPDRAFT_ROUTER_H
#define DEEPDRAFT_ROUTER_H

#include <vector>

#include "experts.h"

namespace deepdraft {

struct Choice {
  int expert;
  float weight;
};

// [T, K], a row's best expert first, of equal ones that with the lower number; scores [T, E].
std::vector<Choice> choose(const DeepdraftExperts &experts, const float *scores, int num_rows);

}  // namespace deepdraft
#endif
