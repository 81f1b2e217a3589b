// A phase: work that several threads do together, divided into pieces.
//
// All threads call the same phases in the same order. In a phase, each free thread takes the next piece, and leaves when
// all pieces are done. So nobody waits for a thread that starts late or was suspended, unless it holds a piece. A waiting
// thread spins for a short time and then yields the processor between checks.
#pragma once
#include <atomic>
#include <memory>
#include <thread>

namespace elmo {

// Waits a moment between two checks of a condition: first in this thread, after some checks by leaving the processor.
inline void pause(long checks) {
  constexpr long SPINS = 1000;  // about ten microseconds
  if (checks >= SPINS) {
    std::this_thread::yield();
    return;
  }
#if defined(__aarch64__)
  asm volatile("isb");  // `yield` takes no time on most processors
#else
  __builtin_ia32_pause();
#endif
}

class Phase {
 public:
  // Calls piece(i) for 0 <= i < count, each on one thread. It must not throw, because the others would wait forever.
  template <class Piece>
  void share(long count, Piece piece) {
    for (long i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < count;) {
      piece(i);
      done_.fetch_add(1, std::memory_order_release);
    }
    for (long checks = 0; done_.load(std::memory_order_acquire) < count; checks++) pause(checks);
  }

 private:
  alignas(64) std::atomic<long> next_{0};
  alignas(64) std::atomic<long> done_{0};
};

// A phase in which each thread begins at its own part of the pieces and then helps the others. Where consecutive phases
// touch the same memory in the same order of pieces, most of it stays in the caches of one core.
class PlacedPhase {
 public:
  explicit PlacedPhase(long count) : count_(count), taken_(new std::atomic<bool>[count]()) {}

  // Calls piece(i) for each piece, on one thread; `thread` is the index of the caller among `num_threads`.
  template <class Piece>
  void share(long thread, long num_threads, Piece piece) {
    const long first = thread * count_ / num_threads;
    for (long k = 0; k < count_; k++) {
      const long i = (first + k) % count_;
      if (taken_[i].load(std::memory_order_relaxed) || taken_[i].exchange(true, std::memory_order_relaxed)) continue;
      piece(i);
      done_.fetch_add(1, std::memory_order_release);
    }
    for (long checks = 0; done_.load(std::memory_order_acquire) < count_; checks++) pause(checks);
  }

 private:
  long count_;
  std::unique_ptr<std::atomic<bool>[]> taken_;
  alignas(64) std::atomic<long> done_{0};
};

}  // namespace elmo
