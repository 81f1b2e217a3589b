// The threads of a call, and the status that it returns.
#pragma once
#include <algorithm>
#include <atomic>
#include <functional>
#include <initializer_list>
#include <limits>
#include <new>
#include <thread>
#include <vector>

#include "matrix.h"

namespace elmo {

enum Status { OK = 0, OUT_OF_MEMORY = 1, NOT_IN_THIS_BUILD = 2, FAILED = 3, INTERRUPTED = 4, OUT_OF_RANGE = 5 };

// The status of work(). An exception becomes a status, because it must not reach the C caller.
template <class Work>
int guarded(Work work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return OUT_OF_MEMORY;
  } catch (...) {
    return FAILED;
  }
}

// Runs every job on at most `num_threads` threads, including this one. Returns OK or the status of a failed job.
inline int run_all(long num_jobs, long num_threads, const int* stop, const std::function<int(long)>& job) {
  std::atomic<long> next{0};
  std::atomic<int> status{OK};
  const auto work = [&] {
    for (long i; (i = next.fetch_add(1)) < num_jobs && status == OK && !stopped(stop);) {
      const int result = guarded([&] { return job(i); });
      if (result != OK) status = result;
    }
  };
  std::vector<std::thread> others;
  try {
    for (long i = 1; i < std::min(num_threads, num_jobs); i++) others.emplace_back(work);
  } catch (...) {  // the system allows fewer threads
  }
  work();
  for (auto& thread : others) thread.join();
  return stopped(stop) && status == OK ? int(INTERRUPTED) : int(status);
}

template <class T>
bool in_range(const T* ids, long count, long low, long high) {
  bool fine = true;
  for (long i = 0; i < count; i++) fine &= low <= ids[i] && ids[i] < high;
  return fine;
}

// Whether `long`, the type of all indices, can count an array of this shape. It has 32 bits on Windows, 64 elsewhere.
inline bool countable(std::initializer_list<int64_t> shape) {
  double elements = 1;
  for (int64_t size : shape) elements *= double(size);
  return elements < double(std::numeric_limits<long>::max());
}

}  // namespace elmo
