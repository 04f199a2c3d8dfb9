// Threads that share a loop.
#ifndef DEEPDRAFT_THREADS_H
#define DEEPDRAFT_THREADS_H

#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "attention.h"

struct DeepdraftThreads {
  DeepdraftThreads(int num_threads, void *gomp_parallel);
  ~DeepdraftThreads();

  int num_threads() const { return num_threads_; }

  // task(i) for each i below num_tasks, each once; tasks go to whichever thread is free. Returns when all are done.
  void run(int num_tasks, const std::function<void(int)> &task);

 private:
  using Parallel = void (*)(void (*)(void *), void *, unsigned, unsigned);

  void work();
  void wait_for_work();

  const int num_threads_;
  const Parallel parallel_;
  const pid_t process_;  // a forked child has none of the threads
  std::vector<std::thread> others_;
  std::mutex one_call_;  // callers take turns
  std::mutex state_;
  std::condition_variable begun_, ended_;
  long round_ = 0;
  int num_busy_ = 0;
  bool is_closing_ = false;
  const std::function<void(int)> *task_ = nullptr;
  int num_tasks_ = 0;
  std::atomic<int> next_{0};
};

#endif
