// The C functions that Python calls through ctypes, and the threads behind them.
//
// Threads are started for a call and joined before it returns: nothing spins, nothing survives a fork, and no more threads
// run than the caller allows. A direction is one thread's work from beginning to end; with more threads than directions,
// the sentences are shared out.
#include <atomic>
#include <functional>
#include <thread>

#include "encoder.h"
#include "lstm.h"

namespace {

using namespace elmo;

enum Status { OK = 0, OUT_OF_MEMORY = 1, NOT_IN_THIS_BUILD = 2, FAILED = 3, INTERRUPTED = 4 };

// Runs every job on at most `num_threads` threads, this one included; the first failure is what is returned.
int run_all(long num_jobs, long num_threads, const int* stop, const std::function<int(long)>& job) {
  std::atomic<long> next{0};
  std::atomic<int> status{OK};
  const auto work = [&] {
    for (long i; (i = next.fetch_add(1)) < num_jobs && status == OK && !stopped(stop);) {
      int found = FAILED;
      try {
        found = job(i);
      } catch (const std::bad_alloc&) {
        found = OUT_OF_MEMORY;
      } catch (...) {
      }
      if (found != OK) status = found;
    }
  };
  std::vector<std::thread> others;
  try {
    for (long i = 1; i < std::min(num_threads, num_jobs); i++) others.emplace_back(work);
  } catch (...) {  // fewer threads than hoped for
  }
  work();
  for (auto& thread : others) thread.join();
  return stopped(stop) && status == OK ? int(INTERRUPTED) : int(status);
}

}  // namespace

extern "C" {

// Bits: 1 the processor runs this build, 2 it has bfloat16 products, 4 it has 8-bit products.
int elmo_supports() {
  __builtin_cpu_init();
#if defined(__AVX512F__)
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512dq") ||
      !__builtin_cpu_supports("avx512vl"))
    return 0;
#else
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return 0;
#endif
  int bits = 1;
#if defined(__AVX512BF16__)
  if (!__builtin_cpu_supports("avx512bf16")) return 0;
  bits |= 2;
#endif
#if defined(__AVX512VNNI__)
  if (!__builtin_cpu_supports("avx512vnni")) return 0;
  bits |= 4;
#endif
  return bits;
}

int64_t elmo_panel() { return PANEL; }

void* elmo_pack(const float* weight, int64_t inputs, int64_t outputs, const float* bias, int64_t dtype, int64_t gates) {
  try {
    return pack(weight, inputs, outputs, bias, int(dtype), gates != 0);
  } catch (...) {
    return nullptr;
  }
}

void elmo_drop(void* matrix) { delete static_cast<Matrix*>(matrix); }

int64_t elmo_bytes(const void* matrix) { return static_cast<const Matrix*>(matrix)->words.size() * int64_t(sizeof(Word)); }

int elmo_contextualize(const Task* task) {
  const long directions = task->num_directions;
  const long groups = std::max<long>(1, std::min<long>(task->num_threads / directions, task->num_sentences));
  return run_all(directions * groups, task->num_threads, task->stop, [&](long job) -> int {
    std::vector<long> sentences;
    for (long s = job / directions; s < task->num_sentences; s += groups) sentences.push_back(s);
    const bool known = with_dtype(int(task->dtype), [&](auto type) {
      Stream<decltype(type)>(*task, job % directions, sentences).run();
    });
    return known ? OK : NOT_IN_THIS_BUILD;
  });
}

int elmo_encode(const Words* task) {
  const long threads = std::max<int64_t>(1, task->num_threads);
  const long turns = (task->num_words + threads * WORDS_AT_ONCE - 1) / (threads * WORDS_AT_ONCE);
  const long shares = std::max(1L, turns * threads);  // as many for each thread
  const long each = std::max(1L, (task->num_words + shares - 1) / shares);
  const long jobs = (task->num_words + each - 1) / each;
  return run_all(jobs, threads, task->stop, [&](long job) -> int {
    Encoder(*task).run(job * each, std::min(each, task->num_words - job * each));
    return OK;
  });
}

// One product of given rows (M, inputs) for tests and measurements: out (M, outputs padded to panels).
int elmo_product(const void* matrix, const float* rows, int64_t num_rows, float* out, int64_t repeats) {
  const Matrix& m = *static_cast<const Matrix*>(matrix);
  return run_all(1, 1, nullptr, [&](long) -> int {
    const bool known = with_dtype(m.dtype, [&](auto type) {
      using D = decltype(type);
      const long words = row_words(m.dtype, m.inputs);
      Array<Word> converted(num_rows * words);
      Array<float> scales(num_rows), padded(round_up(m.inputs, 64));
      for (long r = 0; r < num_rows; r++) {
        std::memcpy(padded.data(), rows + r * m.inputs, m.inputs * sizeof(float));
        scales[r] = D::convert(padded.data(), m.inputs, converted.data() + r * words);
      }
      for (long i = 0; i < repeats; i++)
        product<D>(converted.data(), words, num_rows, m, scales.data(), out, m.outputs, PANEL);
    });
    return known ? OK : NOT_IN_THIS_BUILD;
  });
}

}  // extern "C"
