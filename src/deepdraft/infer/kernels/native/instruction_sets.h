// The instruction sets that were built and that this processor has, best first.
#ifndef DEEPDRAFT_INSTRUCTION_SETS_H
#define DEEPDRAFT_INSTRUCTION_SETS_H

#include <vector>

#include "piece.h"
#include "product.h"

namespace deepdraft {

struct InstructionSet {
  const char *name;
  Kernel attend;
  Multiply multiply;
  Gate gate;
  Sigmoid sigmoid;
};

const std::vector<InstructionSet> &instruction_sets();

}  // namespace deepdraft
#endif
