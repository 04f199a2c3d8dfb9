#include "threads.h"

#include <system_error>

DeepdraftThreads::DeepdraftThreads(int num_threads, void *gomp_parallel)
    : num_threads_(num_threads), parallel_(reinterpret_cast<Parallel>(gomp_parallel)), process_(getpid()) {
  if (parallel_ != nullptr) return;
  try {
    for (int other = 1; other < num_threads; ++other) others_.emplace_back([this] { wait_for_work(); });
  } catch (const std::system_error &) {
    // The system grants no more threads: those there are do the work.
  }
}

DeepdraftThreads::~DeepdraftThreads() {
  if (getpid() != process_) {
    for (auto &other : others_) other.detach();
    return;
  }
  {
    std::lock_guard<std::mutex> held(state_);
    is_closing_ = true;
  }
  begun_.notify_all();
  for (auto &other : others_) other.join();
}

void DeepdraftThreads::run(int num_tasks, const std::function<void(int)> &task) {
  const bool is_alone = num_threads_ <= 1 || (parallel_ == nullptr && others_.empty()) || getpid() != process_;
  if (num_tasks <= 1 || is_alone) {
    for (int i = 0; i < num_tasks; ++i) task(i);
    return;
  }
  std::lock_guard<std::mutex> turn(one_call_);
  task_ = &task;
  num_tasks_ = num_tasks;
  next_.store(0, std::memory_order_relaxed);
  if (parallel_ != nullptr) {
    parallel_([](void *threads) { static_cast<DeepdraftThreads *>(threads)->work(); }, this, num_threads_, 0);
    return;
  }
  {
    std::lock_guard<std::mutex> held(state_);
    num_busy_ = static_cast<int>(others_.size());
    ++round_;
  }
  begun_.notify_all();
  work();
  std::unique_lock<std::mutex> held(state_);
  ended_.wait(held, [this] { return num_busy_ == 0; });
}

void DeepdraftThreads::work() {
  for (int i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < num_tasks_;) (*task_)(i);
}

void DeepdraftThreads::wait_for_work() {
  for (long done = 0;;) {
    {
      std::unique_lock<std::mutex> held(state_);
      begun_.wait(held, [&] { return is_closing_ || round_ != done; });
      if (is_closing_) return;
      done = round_;
    }
    work();
    std::lock_guard<std::mutex> held(state_);
    if (--num_busy_ == 0) ended_.notify_one();
  }
}

extern "C" {

DeepdraftThreads *deepdraft_threads_new(int32_t num_threads, void *gomp_parallel) {
  return new (std::nothrow) DeepdraftThreads(num_threads, gomp_parallel);
}

void deepdraft_threads_delete(DeepdraftThreads *threads) { delete threads; }

}
