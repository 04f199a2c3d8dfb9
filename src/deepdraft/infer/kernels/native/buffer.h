// Memory that a thread keeps for its next call: fresh pages would cost more than a short call.
#ifndef DEEPDRAFT_BUFFER_H
#define DEEPDRAFT_BUFFER_H

#include <cstdlib>
#include <new>

namespace deepdraft {

class Buffer {
 public:
  Buffer() = default;
  Buffer(const Buffer &) = delete;
  ~Buffer() { std::free(memory_); }

  // At least `count` floats, at a cache line's start; not what was there before. Throws std::bad_alloc.
  float *floats(long count) {
    if (count <= count_) return memory_;
    std::free(memory_);
    void *memory = nullptr;
    count_ = posix_memalign(&memory, 64, sizeof(float) * count) == 0 ? count : 0;
    memory_ = count_ ? static_cast<float *>(memory) : nullptr;
    if (memory_ == nullptr) throw std::bad_alloc();
    return memory_;
  }

 private:
  float *memory_ = nullptr;
  long count_ = 0;
};

}  // namespace deepdraft
#endif
