#include "instruction_sets.h"

#include <string>

namespace deepdraft {

const std::vector<InstructionSet> &instruction_sets() {
  static const std::vector<InstructionSet> found = [] {
    std::vector<InstructionSet> sets;
#if defined(DEEPDRAFT_AVX512)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) {
      sets.push_back({"avx512", avx512::attend, avx512::multiply, avx512::gate, avx512::sigmoid});
    }
#endif
#if defined(DEEPDRAFT_AVX2)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
      sets.push_back({"avx2", avx2::attend, avx2::multiply, avx2::gate, avx2::sigmoid});
    }
#endif
    sets.push_back({"portable", portable::attend, portable::multiply, portable::gate, portable::sigmoid});
    return sets;
  }();
  return found;
}

}  // namespace deepdraft

extern "C" {

const char *deepdraft_fingerprint(void) { return DEEPDRAFT_FINGERPRINT; }

const char *deepdraft_instruction_sets(void) {
  static const std::string names = [] {
    std::string joined;
    for (const auto &set : deepdraft::instruction_sets()) {
      if (!joined.empty()) joined += ",";
      joined += set.name;
    }
    return joined;
  }();
  return names.c_str();
}

}
