// A phase: work that several threads do together, divided into pieces.
//
// All threads call the same phases in the same order. In a phase, each free thread takes the next piece, and leaves when
// all pieces are done. So nobody waits for a thread that starts late or was suspended, unless it holds a piece. A waiting
// thread spins for a short time and then yields the processor between checks.
#pragma once
#include <atomic>
#include <thread>

namespace elmo {

// Leaves the core to its other hardware thread for a moment.
inline void pause() {
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
    for (long checks = 0; done_.load(std::memory_order_acquire) < count; checks++)
      if (checks < SPINS) pause();
      else std::this_thread::yield();
  }

 private:
  static constexpr long SPINS = 1000;  // about ten microseconds
  alignas(64) std::atomic<long> next_{0};
  alignas(64) std::atomic<long> done_{0};
};

}  // namespace elmo
