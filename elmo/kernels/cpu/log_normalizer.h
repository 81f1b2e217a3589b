// The logarithm of the sum of exp(logit) over all words, for many states: the normalizer of the full softmax.
//
// The words are rows and the states are columns of the product. A piece is a panel of states and a group of words; its
// logits are computed in chunks that stay in the cache and are never stored. Every piece keeps the largest logit of each
// state and the sum of the exponentials relative to it; the pieces of a state are added in the order of the words, so the
// result is the same for any number of threads.
// N states, V words, P columns.
#pragma once
#include <cmath>

#include "products.h"
#include "threads.h"

namespace elmo {

struct LogNormalizerTask {
  const float* weight;  // (V, P)
  const float* bias;    // (V)
  const float* hidden;  // (N, P)
  float* out;           // (N)
  int64_t vocab_size, proj_dim, num_states, num_threads;
  const int* stop;  // not zero: end early; null: never
};

class LogNormalizer {
 public:
  // Whether `long` can count every array of a call. The object must not be made otherwise.
  static bool fits(const LogNormalizerTask& task) {
    const int64_t N = task.num_states + PANEL, V = task.vocab_size + GROUP, P = task.proj_dim;
    return countable({V, P}) && countable({N, P}) && countable({V / GROUP, N});
  }

  explicit LogNormalizer(const LogNormalizerTask& task)
      : task_(task), dim_(task.proj_dim), words_(task.vocab_size), states_(task.num_states), panels_(panels_of(states_)),
        groups_((words_ + GROUP - 1) / GROUP), columns_(panels_ * dim_ * PANEL), largest_(groups_ * panels_ * PANEL),
        sums_(groups_ * panels_ * PANEL) {}

  int run() {
    const long threads = task_.num_threads;
    int status = run_all(panels_, threads, task_.stop, [&](long panel) -> int {
      pack_columns<Float32>([&](long n) { return task_.hidden + n * dim_; }, dim_, states_, columns_.data(), panel, panel + 1,
                            dim_ * PANEL);
      return OK;
    });
    if (status != OK) return status;
    // neighbouring pieces have the same words, so that their rows are read from memory once
    status = run_all(panels_ * groups_, threads, task_.stop, [&](long i) -> int {
      alignas(64) float logits[CHUNK * PANEL];
      score(i % panels_, i / panels_, logits);
      return OK;
    });
    for (long panel = 0; panel < panels_ && status == OK; panel++) add_groups(panel);
    return status;
  }

 private:
  static constexpr long GROUP = 1024;         // words of a piece
  static constexpr long CHUNK = 128;          // words whose logits stay in the L1 or L2 cache
  // stand for infinities, whose differences would not be numbers; the exponential of LOWEST is 0 or 2^-126
  static constexpr float LOWEST = -1e30f, HIGHEST = 1e30f;

  long place(long panel, long group) const { return (group * panels_ + panel) * PANEL; }

  void score(long panel, long group, float* logits) {
    Floats largest[4], sum[4];
    for (int j = 0; j < 4; j++) largest[j] = all(LOWEST), sum[j] = all(0.0f);
    const Right states{columns_.data() + panel * dim_ * PANEL, 0};
    const long end = std::min(words_, (group + 1) * GROUP);
    for (long first = group * GROUP; first < end; first += CHUNK) {
      const long count = std::min(end - first, CHUNK);
      gemm<Float32>(rows_of(task_.weight + first * dim_, dim_), 0, count, states, 0, 1, dim_, logits, PANEL, 0, false);
      Floats before[4], part[4];
      for (int j = 0; j < 4; j++) before[j] = largest[j], part[j] = all(0.0f);
      for (long w = 0; w < count; w++) {
        const Floats bias = all(task_.bias[first + w]);
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
          float* at = logits + w * PANEL + j * LANES;
          const Floats logit = min(all(HIGHEST), max(all(LOWEST), add(load(at), bias)));  // NaN stays NaN
          store(at, logit);
          largest[j] = max(largest[j], logit);
        }
      }
      for (long w = 0; w < count; w++)
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
          const Floats logit = load(logits + w * PANEL + j * LANES);
          part[j] = add(part[j], exp2(mul(sub(logit, largest[j]), all(LOG2_E))));
        }
      for (int j = 0; j < 4; j++)
        sum[j] = fma(sum[j], exp2(mul(sub(before[j], largest[j]), all(LOG2_E))), part[j]);
    }
    for (int j = 0; j < 4; j++) {
      store(largest_.data() + place(panel, group) + j * LANES, largest[j]);
      store(sums_.data() + place(panel, group) + j * LANES, sum[j]);
    }
  }

  // Adds the groups of a panel of states, in the order of the words.
  void add_groups(long panel) {
    alignas(64) float tops[PANEL], sums[PANEL];
    for (int j = 0; j < 4; j++) {
      Floats largest = all(LOWEST), sum = all(0.0f);
      for (long group = 0; group < groups_; group++)
        largest = max(largest, load(largest_.data() + place(panel, group) + j * LANES));
      for (long group = 0; group < groups_; group++) {
        const long at = place(panel, group) + j * LANES;
        const Floats factor = exp2(mul(sub(load(largest_.data() + at), largest), all(LOG2_E)));
        sum = fma(load(sums_.data() + at), factor, sum);
      }
      store(tops + j * LANES, largest);
      store(sums + j * LANES, sum);
    }
    // not std::log, whose symbol in glibc is newer than those of the wheel's oldest systems
    for (long n = panel * PANEL; n < std::min(states_, (panel + 1) * PANEL); n++)
      task_.out[n] = float(tops[n % PANEL] + std::log1p(double(sums[n % PANEL]) - 1.0));
  }

  const LogNormalizerTask& task_;
  long dim_, words_, states_, panels_, groups_;
  Array<Word> columns_;          // (panels, P, PANEL)
  Array<float> largest_, sums_;  // (groups, panels, PANEL)
};

}  // namespace elmo
