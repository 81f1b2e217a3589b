// The C functions that Python calls through ctypes, and the threads behind them.
//
// Threads are started in a call and joined before it returns: no thread is left behind, nothing breaks after a fork, and
// no more threads run than the caller allows. One thread computes one direction, unless there are more threads than
// directions or the weights are too large for the caches (see Plan).
#include <memory>

#include "encoder.h"
#include "lstm.h"
#include "threads.h"

namespace {

using namespace elmo;

constexpr long SHARED_CACHE = 32 << 20;  // bytes, shared by a few cores, on most current processors

// How the work is divided among threads. If there are more threads than directions, they take different sentences or, if
// there are too few sentences, different columns of the same products.
struct Plan {
  long groups, members;  // groups of sentences; threads that compute one direction of a group together
  bool in_turn;          // all threads compute one direction, then the next one
};

Plan make_plan(const Task& task) {
  const long directions = task.num_directions, threads = std::max<int64_t>(1, task.num_threads);
  // With few rows, the time is spent on reading weights. If the weights that all directions need in one step fit in the
  // cache that the cores share, the directions run at the same time. Otherwise one direction after the other is faster.
  const LayerWeights& layer = task.layers[0];
  const long words = layer.recurrent->words.size() + (layer.projection ? layer.projection->words.size() : 0);
  const bool few = task.num_sentences <= TILE_ROWS, large = directions * words * long(sizeof(Word)) > SHARED_CACHE;
  if (directions > 1 && threads > 1 && few && large) return {1, threads, true};
  const long groups = std::max<long>(1, std::min<long>(threads / directions, task.num_sentences));
  return {groups, std::max<long>(1, threads / (directions * groups)), false};
}

template <class D>
int stream_all(const Task& task) {
  const Plan plan = make_plan(task);
  const long directions = task.num_directions, count = directions * plan.groups;
  std::vector<std::unique_ptr<Stream<D>>> streams(count);
  std::vector<Phase> constructions(count);
  const auto run_stream = [&](long i) -> int {
    constructions[i].share(1, [&](long) {  // by the first thread
      try {
        std::vector<long> sentences;
        for (long s = i / directions; s < task.num_sentences; s += plan.groups) sentences.push_back(s);
        streams[i].reset(new Stream<D>(task, i % directions, sentences, plan.members));
      } catch (...) {  // the status below reports it; the other threads must not wait
      }
    });
    if (!streams[i]) return OUT_OF_MEMORY;
    streams[i]->run();
    return OK;
  };
  return run_all(plan.in_turn ? plan.members : count * plan.members, task.num_threads, task.stop, [&](long job) -> int {
    if (!plan.in_turn) return run_stream(job % count);
    int status = OK;
    for (long i = 0; i < count && status == OK; i++) status = run_stream(i);
    return status;
  });
}

}  // namespace

extern "C" {

// Bits: 1 = the processor can run this build, 2 = it has bfloat16 products, 4 = it has 8-bit products.
int elmo_supports() {
#if defined(__aarch64__)  // every 64-bit ARM processor has NEON
  return 1;
#else
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
#endif
}

int64_t elmo_panel() { return PANEL; }

void* elmo_pack(const float* weight, int64_t inputs, int64_t outputs, const float* bias, int64_t dtype, int64_t gates) {
  if (!countable({inputs, outputs + 4 * PANEL})) return nullptr;
  try {
    return pack(weight, inputs, outputs, bias, int(dtype), gates != 0);
  } catch (...) {
    return nullptr;
  }
}

void elmo_drop(void* matrix) { delete static_cast<Matrix*>(matrix); }

int64_t elmo_bytes(const void* matrix) { return static_cast<const Matrix*>(matrix)->words.size() * int64_t(sizeof(Word)); }

int elmo_contextualize(const Task* task) {
  const int64_t R = task->num_directions, S = task->num_sentences;
  if (!countable({task->num_mixes, task->out_rows, R, task->proj_dim}) || !countable({task->num_words, task->proj_dim}) ||
      !countable({R, task->num_layers, S, std::max(task->proj_dim, task->cell_dim)}) || !countable({task->offsets[S]}))
    return OUT_OF_MEMORY;
  const long num_tokens = task->offsets[task->num_sentences];
  if (!in_range(task->tokens, num_tokens, 0, task->num_words) || !in_range(task->places, num_tokens, -1, task->out_rows))
    return OUT_OF_RANGE;
  return guarded([&] {
    int status = NOT_IN_THIS_BUILD;
    with_dtype(int(task->dtype), [&](auto type) { status = stream_all<decltype(type)>(*task); });
    return status;
  });
}

int elmo_encode(const Words* task) {
  const long threads = std::max<int64_t>(1, task->num_threads);
  if (!countable({task->num_words, std::max(task->columns, task->out_dim)})) return OUT_OF_MEMORY;
  if (!in_range(task->ids, task->num_words * task->columns, 0, task->num_filters ? task->num_chars : 0)) return OUT_OF_RANGE;
  return guarded([&] {
    Encoder encoder(*task);
    return run_all(threads, threads, task->stop, [&](long) -> int {
      encoder.run();
      return OK;
    });
  });
}

// One product of rows (M, inputs), for tests and measurements: out (M, outputs padded to panels).
int elmo_product(const void* matrix, const float* rows, int64_t num_rows, float* out, int64_t repeats) {
  const Matrix& m = *static_cast<const Matrix*>(matrix);
  if (!countable({num_rows, std::max(row_words(m.dtype, m.inputs), m.outputs)})) return OUT_OF_MEMORY;
  return guarded([&]() -> int {
    const bool has_dtype = with_dtype(m.dtype, [&](auto type) {
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
    return has_dtype ? OK : NOT_IN_THIS_BUILD;
  });
}

}  // extern "C"
