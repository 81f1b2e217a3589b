// The token encoder for many distinct words: character convolutions with max-pooling, highway layers, projection.
//
// There are few characters, so a filter's response to a window is a sum of table entries, one per character and position
// in the window: additions only. If a model has too many characters for such a table, a convolution is a matrix product
// whose rows overlap: window q starts q character vectors into the word. All windows after a word's last character see
// the same padding, so one of them is enough. Convolutions are float32 in every dtype.
#pragma once
#include "matrix.h"
#include "team.h"

namespace elmo {

struct Convolution {
  const float* responses; // (panels, width, characters + 1, PANEL): the response to each character; null: use weights
  const Matrix* weights;  // width * E -> count, float32
  const float* bias;      // (panels, PANEL)
  int64_t width, count;
};

struct Words {
  const int32_t* ids;  // (N, columns), 0 = padding
  int64_t num_words, columns;
  const float* features;  // (N, feature_dim), concatenated before the character features; null: none
  int64_t feature_dim;

  const float* char_table;  // (characters + 1, E), row 0 zero; null: the convolutions have responses
  int64_t num_chars, char_dim;  // num_chars includes row 0
  const Convolution* convolutions;
  int64_t num_convolutions, num_filters;
  int64_t tanh;                   // 0: relu
  const Matrix* const* highways;  // F -> 2F: transform, then carry
  int64_t num_highways;
  const Matrix* projection;  // features and filters -> P; null: none
  int64_t out_dim;
  float* out;  // (N, P)
  int64_t num_threads;
  const int* stop;  // the caller sets it to end early; null: never
};

constexpr long WORDS_PER_THREAD = 96;  // in one chunk

// One encoder for all threads, and every thread calls `run`. The threads divide the columns of a product, not the words:
// each weight is read once, and a few words already fill whole tiles.
class Encoder {
 public:
  explicit Encoder(const Words& task)
      : task_(task), threads_(std::max<int64_t>(1, task.num_threads)), F_(task.num_filters) {
    most_ = std::min<long>(task.num_words, threads_ * WORDS_PER_THREAD);
    num_chunks_ = most_ ? (task.num_words + most_ - 1) / most_ : 0;
    phases_ = std::vector<Phase>(num_chunks_ * phases_per_chunk());
    width_ = round_up(F_, PANEL);
    const long dim = std::max(width_, round_up(task.feature_dim + F_, 64));
    stride_ = round_up(dim, 64) + ROW_GAP;
    x_.reserve(most_ * stride_);
    windows_.resize(most_);
    if (task.char_table) chars_.reserve(most_ * task.columns * task.char_dim);
    if (task.num_highways) both_.reserve(most_ * task.highways[0]->outputs);
    if (task.projection) out_.reserve(most_ * task.projection->outputs);
    rows_.reserve(most_ * stride_);
    scales_.reserve(most_);
  }

  void run() {
    for (long chunk = 0; chunk < num_chunks_ && !stopped(task_.stop); chunk++) {
      const long begin = chunk * most_, n = std::min<long>(most_, task_.num_words - begin);
      Phase* phase = phases_.data() + chunk * phases_per_chunk();
      if (F_) {
        phase++->share(n, [&](long i) { read_word(begin, i); });
        convolve(*phase++, begin, n);
        for (long i = 0; i < task_.num_highways; i++) {
          const Matrix& weights = *task_.highways[i];
          phase++->share(n, [&](long word) { convert(weights, word); });
          highway(*phase++, weights, n);
        }
      }
      phase++->share(n, [&](long word) { finish_word(begin, word); });
      if (task_.projection) project(*phase++, *task_.projection, begin, n);
    }
  }

 private:
  long phases_per_chunk() const { return 4 + 2 * task_.num_highways; }

  void read_word(long begin, long i) {
    const long C = task_.columns, E = task_.char_dim;
    const int32_t* ids = task_.ids + (begin + i) * C;
    if (task_.char_table)
      for (long q = 0; q < C; q++)
        std::memcpy(chars_.data() + (i * C + q) * E, task_.char_table + ids[q] * E, E * sizeof(float));
    long used = C;
    while (used > 0 && ids[used - 1] == ids[C - 1]) used--;
    windows_[i] = used + 1;  // windows that can differ: up to the last character, and one that is all padding
    std::memset(x_.data() + i * stride_ + F_, 0, (stride_ - F_) * sizeof(float));
  }

  void convolve(Phase& phase, long begin, long n) {
    long panels = 0;
    for (long f = 0; f < task_.num_convolutions; f++) panels += round_up(task_.convolutions[f].count, PANEL) / PANEL;
    phase.share(panels, [&](long left) {
      long f = task_.num_convolutions - 1, base = F_ - task_.convolutions[f].count;  // the widest first: they take the longest
      for (long p; left >= (p = round_up(task_.convolutions[f].count, PANEL) / PANEL); left -= p)
        base -= task_.convolutions[--f].count;
      const Convolution& convolution = task_.convolutions[f];
      for (long i = 0; i < n; i++) {
        const long C = task_.columns, count = std::min<long>(windows_[i], C - convolution.width + 1);
        Floats maxima[4];
        for (int j = 0; j < 4; j++) maxima[j] = all(-INFINITY);
        if (convolution.responses)
          max_of_sums(convolution, left, task_.ids + (begin + i) * C, count, maxima);
        else
          max_of_products(convolution, left, chars_.data() + i * C * task_.char_dim, count, maxima);
        store_filters(convolution, left, maxima, x_.data() + i * stride_ + base);
      }
    });
  }

  void max_of_sums(const Convolution& convolution, long p, const int32_t* ids, long count, Floats (&maxima)[4]) const {
    const long V = task_.num_chars;
    const float* responses = convolution.responses + p * convolution.width * V * PANEL;
    for (long q = 0; q < count; q++) {
      Floats sums[4];
      for (int j = 0; j < 4; j++) sums[j] = load(responses + ids[q] * PANEL + j * LANES);
      for (long k = 1; k < convolution.width; k++) {
        const float* response = responses + (k * V + ids[q + k]) * PANEL;
        for (int j = 0; j < 4; j++) sums[j] = add(sums[j], load(response + j * LANES));
      }
      for (int j = 0; j < 4; j++) maxima[j] = max(maxima[j], sums[j]);
    }
  }

  void max_of_products(const Convolution& convolution, long p, const float* chars, long count, Floats (&maxima)[4]) const {
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
        for (int j = 0; j < 4; j++) maxima[j] = max(maxima[j], sums[r][j]);
    });
  }

  void store_filters(const Convolution& convolution, long p, const Floats (&maxima)[4], float* to) const {
    for (int j = 0; j < 4; j++) {
      const long column = p * PANEL + j * LANES, left = convolution.count - column;
      if (left <= 0) break;
      const Floats v = add(maxima[j], load(convolution.bias + column));
      alignas(64) float lanes[LANES];
      store(lanes, task_.tanh ? tanh(v) : max(all(0.0f), v));
      std::memcpy(to + column, lanes, std::min<long>(left, LANES) * sizeof(float));
    }
  }

  void highway(Phase& phase, const Matrix& weights, long n) {
    const long half = width_ / PANEL;  // panels of the transform; those of the carry gate follow
    in_blocks(phase, half, n, [&](long first, long last, long p, long end) {
      times(weights, first, last, both_.data(), p, end);
      times(weights, first, last, both_.data(), half + p, half + end);
      for (long i = first; i < last; i++) {
        float* x = x_.data() + i * stride_;
        const float* transform = both_.data() + i * weights.outputs;
        const float* carry = transform + width_;
        for (long k = p * PANEL; k < std::min(end * PANEL, F_); k += LANES) {
          const Floats gate = sigmoid(load(carry + k));
          const Floats old = load(x + k);
          store(x + k, fma(gate, sub(max(all(0.0f), load(transform + k)), old), old));
        }
      }
    });
  }

  // Adds the word features before the character features; converts the row for the projection, or writes it out.
  void finish_word(long begin, long i) {
    const long dim = task_.feature_dim;
    float* x = x_.data() + i * stride_;
    if (!F_) std::memset(x, 0, stride_ * sizeof(float));
    if (task_.features) {
      std::memmove(x + dim, x, F_ * sizeof(float));
      std::memcpy(x, task_.features + (begin + i) * dim, dim * sizeof(float));
    }
    if (task_.projection) convert(*task_.projection, i);
    else std::memcpy(task_.out + (begin + i) * (dim + F_), x, (dim + F_) * sizeof(float));
  }

  void project(Phase& phase, const Matrix& weights, long begin, long n) {
    in_blocks(phase, weights.panels(), n, [&](long first, long last, long p, long end) {
      times(weights, first, last, out_.data(), p, end);
      const long column = p * PANEL, columns = std::min<long>(end * PANEL, task_.out_dim) - column;
      for (long i = first; i < last; i++)
        std::memcpy(task_.out + (begin + i) * task_.out_dim + column, out_.data() + i * weights.outputs + column,
                    columns * sizeof(float));
    });
  }

  // Calls work(first word, last word, first panel, last panel) for blocks of words and panels, several per thread.
  template <class Work>
  void in_blocks(Phase& phase, long panels, long n, Work work) const {
    const long blocks = (n + CACHE_ROWS - 1) / CACHE_ROWS, rows = (n + blocks - 1) / blocks;
    const long each = std::max<long>(1, panels * blocks / (8 * threads_)), groups = (panels + each - 1) / each;
    phase.share(blocks * groups, [&](long i) {
      const long block = i / groups, group = i % groups;
      work(block * rows, std::min(n, (block + 1) * rows), group * each, std::min(panels, (group + 1) * each));
    });
  }

  void convert(const Matrix& m, long i) {
    with_dtype(m.dtype, [&](auto type) {
      scales_[i] = decltype(type)::convert(x_.data() + i * stride_, m.inputs, rows_.data() + i * row_words(m.dtype, m.inputs));
    });
  }

  void times(const Matrix& m, long first, long last, float* out, long begin_panel, long end_panel) {
    with_dtype(m.dtype, [&](auto type) {
      const long words = row_words(m.dtype, m.inputs);
      product<decltype(type)>(rows_.data() + first * words, words, last - first, m, scales_.data() + first,
                              out + first * m.outputs, m.outputs, PANEL, begin_panel, end_panel);
    });
  }

  const Words& task_;
  const long threads_, F_;
  long most_, num_chunks_, width_, stride_;
  std::vector<Phase> phases_;
  std::vector<long> windows_;
  Array<float> x_, chars_, both_, out_, scales_;
  Array<Word> rows_;
};

}  // namespace elmo
