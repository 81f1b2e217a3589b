// The token layer for many distinct words: character convolutions, the best window, highways, projection.
//
// There are few characters, so a filter's answer to a window is a sum of table entries, one for each character and place
// in the window: additions only. Where a model has too many characters for that, a convolution is a product whose rows
// overlap: window q starts q character vectors into the word. Windows beyond a word's last character all see the same
// padding, so one of them is enough. Convolutions are float32 whatever the dtype.
#pragma once
#include "matrix.h"

namespace elmo {

struct Convolution {
  const float* answers;   // (panels, width, characters + 1, PANEL): each character's share; null: use weights
  const Matrix* weights;  // width * E -> count, float32
  const float* bias;      // (panels, PANEL)
  int64_t width, count;
};

struct Words {
  const int32_t* ids;  // (N, columns), 0 = padding
  int64_t num_words, columns;
  const float* features;  // (N, feature_dim), put before the characters' features; null: none
  int64_t feature_dim;

  const float* char_table;  // (characters + 1, E), row 0 zero; null: the convolutions have answers
  int64_t num_chars, char_dim;  // num_chars counts row 0
  const Convolution* convolutions;
  int64_t num_convolutions, num_filters;
  int64_t tanh;                   // 0: relu
  const Matrix* const* highways;  // F -> 2F: transform, then carry
  int64_t num_highways;
  const Matrix* projection;  // features and filters -> P; null: none
  int64_t out_dim;
  float* out;  // (N, P)
  int64_t num_threads;
  const int* stop;  // set by the caller to end early; null: never
};

constexpr long WORDS_AT_ONCE = 96;

class Encoder {
 public:
  explicit Encoder(const Words& task) : task_(task), F_(task.num_filters) {
    width_ = round_up(F_, PANEL);
    const long dim = std::max(width_, round_up(task.feature_dim + F_, 64));
    stride_ = round_up(dim, 64) + ROW_GAP;
    x_.resize(WORDS_AT_ONCE * stride_);
    if (task.char_table) chars_.resize(WORDS_AT_ONCE * task.columns * task.char_dim);
    if (task.num_highways) both_.reserve(WORDS_AT_ONCE * task.highways[0]->outputs);
    if (task.projection) out_.reserve(WORDS_AT_ONCE * task.projection->outputs);
    rows_.resize(WORDS_AT_ONCE * stride_);
    scales_.resize(WORDS_AT_ONCE);
  }

  void run(long begin, long n) {  // n <= WORDS_AT_ONCE
    if (F_) {
      convolve(begin, n);
      for (long i = 0; i < task_.num_highways; i++) highway(*task_.highways[i], n);
    }
    if (task_.features) put_features(begin, n);
    const long dim = task_.feature_dim + F_;
    if (task_.projection) {
      times(*task_.projection, n, out_.data());
      for (long i = 0; i < n; i++)
        std::memcpy(task_.out + (begin + i) * task_.out_dim, out_.data() + i * task_.projection->outputs,
                    task_.out_dim * sizeof(float));
    } else {
      for (long i = 0; i < n; i++)
        std::memcpy(task_.out + (begin + i) * dim, x_.data() + i * stride_, dim * sizeof(float));
    }
  }

 private:
  void convolve(long begin, long n) {
    const long C = task_.columns, E = task_.char_dim;
    long windows[WORDS_AT_ONCE];  // that can differ: up to the last character, and one of padding alone
    for (long i = 0; i < n; i++) {
      const int32_t* ids = task_.ids + (begin + i) * C;
      if (task_.char_table)
        for (long q = 0; q < C; q++)
          std::memcpy(chars_.data() + (i * C + q) * E, task_.char_table + ids[q] * E, E * sizeof(float));
      long used = C;
      while (used > 0 && ids[used - 1] == ids[C - 1]) used--;
      windows[i] = used + 1;
      std::memset(x_.data() + i * stride_, 0, stride_ * sizeof(float));
    }
    long base = 0;
    for (long f = 0; f < task_.num_convolutions; f++) {
      const Convolution& convolution = task_.convolutions[f];
      for (long p = 0; p < round_up(convolution.count, PANEL) / PANEL; p++)
        for (long i = 0; i < n; i++) {
          const long count = std::min(windows[i], C - convolution.width + 1);
          Floats best[4];
          for (int j = 0; j < 4; j++) best[j] = all(-INFINITY);
          if (convolution.answers)
            best_sums(convolution, p, task_.ids + (begin + i) * C, count, best);
          else
            best_products(convolution, p, chars_.data() + i * C * E, count, best);
          put_filters(convolution, p, best, x_.data() + i * stride_ + base);
        }
      base += convolution.count;
    }
  }

  void best_sums(const Convolution& convolution, long p, const int32_t* ids, long count, Floats (&best)[4]) const {
    const long V = task_.num_chars;
    const float* answers = convolution.answers + p * convolution.width * V * PANEL;
    for (long q = 0; q < count; q++) {
      Floats sums[4];
      for (int j = 0; j < 4; j++) sums[j] = load(answers + ids[q] * PANEL + j * LANES);
      for (long k = 1; k < convolution.width; k++) {
        const float* share = answers + (k * V + ids[q + k]) * PANEL;
        for (int j = 0; j < 4; j++) sums[j] = add(sums[j], load(share + j * LANES));
      }
      for (int j = 0; j < 4; j++) best[j] = max(best[j], sums[j]);
    }
  }

  void best_products(const Convolution& convolution, long p, const float* chars, long count, Floats (&best)[4]) const {
    const Matrix& weights = *convolution.weights;
    const long E = task_.char_dim;
    in_tiles(0, count, [&](auto rows, long q) __attribute__((always_inline)) {
      constexpr int ROWS = decltype(rows)::value;
      Floats sums[ROWS][4];
      clear<Float32, ROWS>(sums);
      multiply<Float32, ROWS>(reinterpret_cast<const Word*>(chars + q * E), E, weights.panel(p), weights.steps, sums);
#pragma GCC unroll 8
      for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) best[j] = max(best[j], sums[r][j]);
    });
  }

  void put_filters(const Convolution& convolution, long p, const Floats (&best)[4], float* to) const {
    for (int j = 0; j < 4; j++) {
      const long column = p * PANEL + j * LANES, left = convolution.count - column;
      if (left <= 0) break;
      const Floats v = add(best[j], load(convolution.bias + column));
      alignas(64) float lanes[LANES];
      store(lanes, task_.tanh ? tanh(v) : max(all(0.0f), v));
      std::memcpy(to + column, lanes, std::min<long>(left, LANES) * sizeof(float));
    }
  }

  void highway(const Matrix& weights, long n) {
    times(weights, n, both_.data());
    for (long i = 0; i < n; i++) {
      float* x = x_.data() + i * stride_;
      const float* transform = both_.data() + i * weights.outputs;
      const float* carry = transform + width_;
      for (long k = 0; k < F_; k += LANES) {
        const Floats gate = sigmoid(load(carry + k));
        const Floats old = load(x + k);
        store(x + k, fma(gate, sub(max(all(0.0f), load(transform + k)), old), old));
      }
    }
  }

  void put_features(long begin, long n) {
    const long dim = task_.feature_dim;
    for (long i = 0; i < n; i++) {
      float* x = x_.data() + i * stride_;
      if (!F_) std::memset(x, 0, stride_ * sizeof(float));
      std::memmove(x + dim, x, F_ * sizeof(float));
      std::memcpy(x, task_.features + (begin + i) * dim, dim * sizeof(float));
    }
  }

  void times(const Matrix& m, long n, float* out) {
    with_dtype(m.dtype, [&](auto type) {
      using D = decltype(type);
      const long words = row_words(m.dtype, m.inputs);
      for (long i = 0; i < n; i++) scales_[i] = D::convert(x_.data() + i * stride_, m.inputs, rows_.data() + i * words);
      product<D>(rows_.data(), words, n, m, scales_.data(), out, m.outputs, PANEL);
    });
  }

  const Words& task_;
  long F_, width_, stride_;
  Array<float> x_, chars_, both_, out_, scales_;
  Array<Word> rows_;
};

}  // namespace elmo
