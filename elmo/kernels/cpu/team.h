// Several threads that go through the same phases of one job together.
//
// Each thread calls the same phases in the same order. What a phase has to do is taken piece by piece by whoever is free,
// and a thread leaves a phase when all its pieces are done: a thread that starts late or is held up elsewhere is not
// waited for, only the piece it holds is. Waiting is a short spin, then the processor is given away at every look.
#pragma once
#include <immintrin.h>
#include <sched.h>

#include <atomic>

namespace elmo {

class Phase {
 public:
  // piece(i) for 0 <= i < count, each on one thread; must not throw, or the others would wait for ever.
  template <class Piece>
  void share(long count, Piece piece) {
    for (long i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < count;) {
      piece(i);
      done_.fetch_add(1, std::memory_order_release);
    }
    for (long looks = 0; done_.load(std::memory_order_acquire) < count; looks++)
      if (looks < SPINS) _mm_pause();
      else sched_yield();
  }

 private:
  static constexpr long SPINS = 1000;  // some ten microseconds
  alignas(64) std::atomic<long> next_{0};
  alignas(64) std::atomic<long> done_{0};
};

}  // namespace elmo
