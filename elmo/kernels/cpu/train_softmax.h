// The softmax of training: loss and gradients of states against given words, in one pass and bounded memory.
//
// The words are rows and the states are columns: e = exp(rows x states + offsets - reference) of one panel of states is
// a right operand (for the gradient of the states) and its rows are a left operand (for the gradient of the rows). The
// reference of a state is the logit of its true word, which is known beforehand, so no pass has to look for the largest
// logit; the rare state whose other logits are far above it is computed again with the largest one. The normalizer is
// known after the last word. It scales the sum of the states' gradient, and the states in the gradient of the rows, so
// that e is written once and never changed.
//
// Threads share pieces of fixed size, and every sum has a fixed order: the results are the same for any number of threads.
// R directions, N states, V words in the vocabulary, S words that are scored, P columns.
#pragma once
#include <list>

#include "products.h"
#include "team.h"
#include "threads.h"

namespace elmo {

struct SoftmaxTask {
  const float* weight;  // (V, P)
  const float* bias;    // (V)
  int64_t vocab_size, proj_dim, num_directions, num_states, num_words, dtype;
  const float* hidden;           // (R, N, P)
  const int64_t* targets;        // (R, N)
  const int64_t* ids;            // (R, S), the distinct words that are scored; null: all words, S = V
  const float* log_counts;       // (R, S), subtracted from the logits of the words; null: zero
  const float* true_log_counts;  // (R, N), subtracted from the logits of the true words; null: zero

  float* losses;     // (R), mean over the states
  float* d_hidden;   // (R, N, P), gradients of the mean losses
  float* d_rows;     // (R, S, row_dim), row_dim is P in whole panels: of the scored words, without the true ones
  float* d_offsets;  // (R, S)
  float* d_true;     // (R, N), of the true logits

  const float* scales;  // (R), gradients of the mean losses, for elmo_softmax_gradient
  float* d_weight;      // (V, P)
  float* d_bias;        // (V)
  int64_t num_threads;

  long word(long r, long i) const { return ids ? ids[r * num_words + i] : i; }
};

// dest += scale * from, for n floats.
inline void add_scaled(float* __restrict dest, const float* __restrict from, float scale, long n) {
  for (long i = 0; i < n; i++) dest[i] += scale * from[i];
}

inline float sum_of_lanes(Floats v) {
  float each[LANES], sum = 0.0f;
  store(each, v);
  for (float x : each) sum += x;
  return sum;
}

inline float inner_product(const float* a, const float* b, long n) {
  Floats sums = all(0.0f);
  long i = 0;
  for (; i + LANES <= n; i += LANES) sums = fma(load(a + i), load(b + i), sums);
  float sum = sum_of_lanes(sums);
  for (; i < n; i++) sum += a[i] * b[i];
  return sum;
}

// The index of each word of the vocabulary among the scored words of a direction, or -1; false if a word occurs twice.
inline bool index_words(const SoftmaxTask& task, long r, int32_t* index_of_word) {
  std::fill(index_of_word, index_of_word + task.vocab_size, -1);
  for (long i = 0; i < task.num_words; i++) {
    int32_t& index = index_of_word[task.word(r, i)];
    if (index >= 0) return false;
    index = int32_t(i);
  }
  return true;
}

template <class D>
class Softmax {
 public:
  static constexpr long CHUNK = 256;  // words whose e stays in the L2 cache from the first to the second product

  // The memory of one thread.
  struct Scratch {
    Array<float> logits{CHUNK * PANEL};
    Array<Word> pairs{CHUNK * PANEL};
    Array<float> sums;  // (P, PANEL), of the states' gradient
    Array<float> rows;  // (PANEL, P), states times factors
    explicit Scratch(long dim) : sums(dim * PANEL), rows(PANEL * dim) {}
  };

  // Whether `long` can count every array of a call. The object must not be made otherwise.
  static bool fits(const SoftmaxTask& task) {
    const int64_t R = task.num_directions, N = task.num_states, V = task.vocab_size, S = task.num_words;
    const int64_t row = task.proj_dim + 2 * PANEL, most_states = MOST_PANELS * PANEL;  // row: with more than its padding
    return countable({R, S + 1, row}) && countable({V, row}) && countable({R, V}) && countable({R, N + PANEL, row}) &&
           countable({S + PANEL, most_states}) && countable({MOST_GROUPS, most_states, row});
  }

  explicit Softmax(const SoftmaxTask& task) : task_(task), dim_(task.proj_dim), states_(task.num_states), words_(task.num_words) {
    steps_ = steps_of<D>(dim_);
    row_dim_ = round_up(dim_, PANEL);
    panels_ = panels_of(states_);
    const long fitting = BLOCK_BYTES / (words_ * PANEL_WORDS * long(sizeof(Word)));
    const long most = std::min(MOST_PANELS, std::max(FEWEST_PANELS, fitting)), blocks = (panels_ + most - 1) / most;
    block_ = (panels_ + blocks - 1) / blocks;
    chunks_ = (words_ + CHUNK - 1) / CHUNK;
    group_ = std::max(GROUP, (chunks_ + MOST_GROUPS - 1) / MOST_GROUPS * CHUNK);
    groups_ = (words_ + group_ - 1) / group_;
    row_stride_ = round_up(dim_, 2 * LANES) / D::PER_WORD + ROW_GAP;
    column_stride_ = round_up(dim_, LANES) + ROW_GAP;
    e_stride_ = words_ * PANEL_WORDS + ROW_GAP;
    rows_.reserve(words_ * row_stride_);
    if (D::PER_WORD > 1) columns_.reserve(steps_of<D>(words_) * column_stride_);
    states_columns_.reserve(panels_ * steps_ * PANEL);
    states_rows_.reserve(block_ * PANEL_WORDS * row_dim_);
    e_.reserve(block_ * e_stride_);
    parts_.reserve(block_ * groups_ * dim_ * PANEL);
    sums_.reserve(block_ * groups_ * PANEL);
    offsets_.reserve(words_);
    for (Array<float>* array : {&reference_, &true_, &factor_}) array->resize(panels_ * PANEL);
    loss_.resize(task.num_directions * states_);
    hits_.resize(task.num_directions * states_);
    for (long r = 0; r < task.num_directions; r++) {
      phases_.emplace_back(r == 0 || task.ids ? chunks_ : 0);  // all directions share the rows of all words
      phases_.emplace_back(panels_);
      for (long first = 0; first < panels_; first += block_) {
        const long count = std::min(block_, panels_ - first);
        phases_.emplace_back(count * groups_);
        phases_.emplace_back(count);
        phases_.emplace_back(chunks_);
      }
    }
  }

  int64_t bytes() const {
    int64_t words = 0;
    for (const Array<Word>* array : {&rows_, &columns_, &states_columns_, &states_rows_, &e_}) words += array->size();
    for (const Array<float>* array : {&parts_, &sums_, &offsets_, &reference_, &true_, &factor_, &loss_}) words += array->size();
    return (words + hits_.size()) * int64_t(sizeof(Word));
  }

  // Finds the accidental hits; false if a word is scored twice. It must be called once, before `run`.
  bool find_hits() {
    Array<int32_t> index_of_word(task_.vocab_size);
    for (long r = 0; r < task_.num_directions; r++) {
      if (!index_words(task_, r, index_of_word.data())) return false;
      for (long i = r * states_; i < (r + 1) * states_; i++) hits_[i] = index_of_word[task_.targets[i]];
    }
    return true;
  }

  // The mean losses, after `run`.
  void write_losses() {
    for (long r = 0; r < task_.num_directions; r++) {
      double sum = 0.0;
      for (long i = r * states_; i < (r + 1) * states_; i++) sum += loss_[i];
      task_.losses[r] = float(sum / states_);
    }
  }

  // All threads call it, each with its index and its own memory. Words are pieces in the same order in all phases.
  void run(long thread, Scratch& scratch) {
    auto phase = phases_.begin();
    const auto share = [&](auto piece) { phase++->share(thread, task_.num_threads, piece); };
    for (long r = 0; r < task_.num_directions; r++) {
      share([&](long i) { gather(r, i * CHUNK, std::min(words_, (i + 1) * CHUNK)); });
      share([&](long i) { prepare_states(r, i); });
      for (long first = 0; first < panels_; first += block_) {
        const long count = std::min(block_, panels_ - first);
        share([&](long i) { score(r, first + i % count, i / count, scratch); });
        share([&](long i) { finish_states(r, first + i, count, scratch); });
        share([&](long i) { add_to_rows(r, first, count, i * CHUNK, std::min(words_, (i + 1) * CHUNK)); });
      }
    }
  }

 private:
  static constexpr long MOST_PANELS = 256 / PANEL;    // of states, between two updates of the rows' gradient
  static constexpr long FEWEST_PANELS = 128 / PANEL;
  static constexpr long BLOCK_BYTES = 64 << 20;       // most memory of e, unless FEWEST_PANELS need more
  static constexpr long GROUP = 1024;                 // fewest words of a piece; its part of the states' gradient is separate
  static constexpr long MOST_GROUPS = 16;
  static constexpr float LIMIT = 1099511627776.0f;    // 2^40, the largest exponential of lanes.h
  static constexpr float EXCLUDED = -1e30f;           // a logit whose exponential is zero
  static constexpr long PANEL_WORDS = PANEL / D::PER_WORD;  // of a row of e

  float* part(long panel, long group) { return parts_.data() + (panel % block_ * groups_ + group) * dim_ * PANEL; }
  float* sums(long panel, long group) { return sums_.data() + (panel % block_ * groups_ + group) * PANEL; }
  Word* e_row(long panel, long word) { return e_.data() + panel % block_ * e_stride_ + word * PANEL_WORDS; }
  Left rows(long word) const { return {rows_.data() + word * row_stride_, row_stride_, 1}; }
  Left columns(long word) const {  // the rows as columns: row p of this operand is column p of theirs
    if (D::PER_WORD == 1) return {rows_.data() + word * row_stride_, 1, row_stride_};
    return {columns_.data() + word / D::PER_WORD * column_stride_, 1, column_stride_};
  }
  const float* weight(long r, long i) const { return task_.weight + task_.word(r, i) * dim_; }

  void gather(long r, long first, long last) {
    constexpr long AHEAD = 8;  // rows, because they come from all over the memory
    alignas(64) float padded[2 * LANES] = {};
    const long whole = dim_ / (2 * LANES) * (2 * LANES);
    for (long i = first; i < last; i++) {
      const float* from = weight(r, i);
      if (i + AHEAD < last)
        for (long k = 0; k < dim_; k += 16) __builtin_prefetch(weight(r, i + AHEAD) + k);
      offsets_[i] = task_.bias[task_.word(r, i)] - (task_.log_counts ? task_.log_counts[r * words_ + i] : 0.0f);
      Word* to = rows_.data() + i * row_stride_;
      D::convert(from, whole, to);
      if (whole < dim_) {
        std::memcpy(padded, from + whole, (dim_ - whole) * sizeof(float));
        D::convert(padded, 2 * LANES, to + whole / D::PER_WORD);
      }
      if (D::PER_WORD > 1 && i % 2 == 0) {
        const float* next = i + 1 < words_ ? weight(r, i + 1) : nullptr;
        for (long k = 0; k < dim_; k += LANES) {
          Word* pairs = columns_.data() + i / 2 * column_stride_ + k;
          if (dim_ - k >= LANES) pair_rows<D>(from + k, next ? next + k : nullptr, pairs);
          else pair_few<D>(from + k, next ? next + k : nullptr, dim_ - k, pairs);
        }
      }
    }
  }

  void prepare_states(long r, long panel) {
    const float* hidden = task_.hidden + r * states_ * dim_;
    pack_columns<D>([&](long n) { return hidden + n * dim_; }, dim_, states_, states_columns_.data(), panel, panel + 1,
                    steps_ * PANEL);
    for (long n = panel * PANEL; n < std::min(states_, (panel + 1) * PANEL); n++) {
      const long target = task_.targets[r * states_ + n];
      const float count = task_.true_log_counts ? task_.true_log_counts[r * states_ + n] : 0.0f;
      true_[n] = inner_product(hidden + n * dim_, task_.weight + target * dim_, dim_) + task_.bias[target] - count;
      reference_[n] = true_[n];
    }
  }

  // Logits of the words [first, last), without offsets, in rows of PANEL states.
  void multiply_chunk(long r, long panel, long first, long last, float* logits) {
    const Right states{states_columns_.data() + panel * steps_ * PANEL, 0};
    gemm<D>(rows(first), 0, last - first, states, 0, 1, steps_, logits, PANEL, 0, false);
    for (long n = panel * PANEL; n < std::min(states_, (panel + 1) * PANEL); n++) {
      const long hit = hits_[r * states_ + n];
      if (first <= hit && hit < last) logits[(hit - first) * PANEL + n % PANEL] = EXCLUDED;
    }
  }

  void score(long r, long panel, long group, Scratch& scratch) {
    Floats reference[4], sum[4];
    for (int j = 0; j < 4; j++) {
      reference[j] = load(reference_.data() + panel * PANEL + j * LANES);
      sum[j] = all(0.0f);
    }
    const long begin = group * group_, end = std::min(words_, begin + group_);
    for (long first = begin; first < end; first += CHUNK) {
      const long last = std::min(end, first + CHUNK);
      // float32: e is stored where it stays. bfloat16: it is stored twice, paired along the states and along the words.
      float* e = D::PER_WORD == 1 ? reinterpret_cast<float*>(e_row(panel, first)) : scratch.logits.data();
      multiply_chunk(r, panel, first, last, e);
      for (long w = first; w < last; w++) {
        float* at = e + (w - first) * PANEL;
        const Floats offset = all(offsets_[w]);
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
          const Floats logit = sub(add(load(at + j * LANES), offset), reference[j]);
          const Floats value = exp2(mul(logit, all(LOG2_E)));
          sum[j] = add(sum[j], value);
          store(at + j * LANES, value);
        }
        if constexpr (D::PER_WORD > 1) {
          D::convert(at, PANEL, e_row(panel, w));
          Word* pairs = scratch.pairs.data() + (w - first) / 2 * PANEL;
          if (w % 2)
            for (int j = 0; j < 4; j++) pair_rows<D>(at - PANEL + j * LANES, at + j * LANES, pairs + j * LANES);
          else if (w + 1 == last)
            for (int j = 0; j < 4; j++) pair_rows<D>(at + j * LANES, nullptr, pairs + j * LANES);
        }
      }
      const Right right{D::PER_WORD == 1 ? e_row(panel, first) : scratch.pairs.data(), 0};
      gemm<D>(columns(first), 0, dim_, right, 0, 1, steps_of<D>(last - first), part(panel, group), PANEL, 0, first > begin);
    }
    for (int j = 0; j < 4; j++) store(sums(panel, group) + j * LANES, sum[j]);
  }

  // Sets the references to the largest logits.
  void find_references(long r, long panel, Scratch& scratch) {
    for (long first = 0; first < words_; first += CHUNK) {
      const long last = std::min(words_, first + CHUNK);
      multiply_chunk(r, panel, first, last, scratch.logits.data());
      for (long w = first; w < last; w++)
        for (long n = 0; n < PANEL; n++) {
          float& reference = reference_[panel * PANEL + n];
          reference = std::max(reference, scratch.logits[(w - first) * PANEL + n] + offsets_[w]);
        }
    }
    for (long group = 0; group < groups_; group++) score(r, panel, group, scratch);
  }

  // The sum of e of a state of the panel.
  float sum_of(long panel, long n) {
    float sum = 0.0f;
    for (long group = 0; group < groups_; group++) sum += sums(panel, group)[n];
    return sum;
  }

  // Losses and gradients of the states of a panel, and the states times factors as an operand of the rows' gradient.
  void finish_states(long r, long panel, long block, Scratch& scratch) {
    const long first = panel * PANEL, count = std::min<long>(PANEL, states_ - first);
    bool overflows = false;
    for (long n = 0; n < count; n++) overflows |= sum_of(panel, n) >= LIMIT;
    if (overflows) find_references(r, panel, scratch);
    float* gradient = scratch.sums.data();
    std::memcpy(gradient, part(panel, 0), dim_ * PANEL * sizeof(float));
    for (long group = 1; group < groups_; group++) add_scaled(gradient, part(panel, group), 1.0f, dim_ * PANEL);
    for (long n = 0; n < count; n++) {
      const long state = r * states_ + first + n;
      const double sum = sum_of(panel, n), above = double(true_[first + n]) - reference_[first + n];
      // not std::exp and std::log, whose symbols in glibc are newer than those of the wheel's oldest systems
      const double others = sum + std::expm1(above), total = 1.0 + others;
      loss_[state] = float(std::log1p(others) - above);
      const float factor = float(1.0 / (total * states_)), d_true = float(-sum / (total * states_));
      factor_[first + n] = factor;
      task_.d_true[state] = d_true;
      const float *true_row = task_.weight + task_.targets[state] * dim_, *hidden = task_.hidden + state * dim_;
      for (long k = 0; k < dim_; k++) {
        task_.d_hidden[state * dim_ + k] = gradient[k * PANEL + n] * factor + true_row[k] * d_true;
        scratch.rows[n * dim_ + k] = hidden[k] * factor;
      }
    }
    std::memset(scratch.rows.data() + count * dim_, 0, (PANEL - count) * dim_ * sizeof(float));
    for (long p = 0; p < row_dim_ / PANEL; p++)
      pack_rows<D>(scratch.rows.data() + p * PANEL, dim_, PANEL, dim_ - p * PANEL,
                   states_rows_.data() + (p * block + panel % block_) * PANEL_WORDS * PANEL, 0, 1);
  }

  // Adds a block of states to the gradients of the words [first, last).
  void add_to_rows(long r, long panel, long count, long first, long last) {
    for (long w = first; w < last; w++) {
      Floats sum = all(0.0f);
      for (long p = panel; p < panel + count; p++) sum = add(sum, weighted_sum(e_row(p, w), factor_.data() + p * PANEL));
      float& gradient = task_.d_offsets[r * words_ + w];
      gradient = (panel > 0 ? gradient : 0.0f) + sum_of_lanes(sum);
    }
    const Left left{e_row(panel, first), PANEL_WORDS, 1, PANEL_WORDS, e_stride_};
    const long steps = count * PANEL_WORDS;
    gemm<D>(left, 0, last - first, {states_rows_.data(), steps * PANEL}, 0, row_dim_ / PANEL, steps,
            task_.d_rows + (r * words_ + first) * row_dim_, row_dim_, PANEL, panel > 0);
  }

  // The products of a row of e with the factors of its states, summed to one register.
  static ELMO_INLINE Floats weighted_sum(const Word* e, const float* factors) {
    Floats sum = all(0.0f);
    for (long j = 0; j < PANEL; j += LANES) {
      if constexpr (D::PER_WORD == 1) {
        sum = fma(load(reinterpret_cast<const float*>(e) + j), load(factors + j), sum);
      } else {
#if defined(__AVX512BF16__)
        const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(e + j / 2));
        sum = fma(_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16)), load(factors + j), sum);
#endif
      }
    }
    return sum;
  }

  const SoftmaxTask& task_;
  long dim_, states_, words_, steps_, row_dim_, panels_, block_, chunks_, group_, groups_;
  long row_stride_, column_stride_, e_stride_;
  Array<Word> rows_, columns_;                 // the scored rows, paired along P; paired along the rows (bfloat16)
  Array<Word> states_columns_, states_rows_;   // the states as right operands: of the logits, of the rows' gradient
  Array<Word> e_;                              // (panels of a block, S, PANEL)
  Array<float> parts_, sums_;                  // per panel of a block and group: of the states' gradient, of e
  Array<float> offsets_;                       // (S)
  Array<float> reference_, true_, factor_;     // per state of a direction, in whole panels
  Array<float> loss_;                          // (R, N)
  Array<int32_t> hits_;                        // (R, N), the index of the true word among the scored words, or -1
  std::list<PlacedPhase> phases_;
};

}  // namespace elmo
