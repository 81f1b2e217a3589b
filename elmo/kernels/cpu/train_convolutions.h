// Character convolutions with max-pooling in training, forward and backward.
//
// A filter's response to a window is a sum of table entries, one per character and position in the window (see encoder.h).
// The tables change in every step. A thread takes a panel of filters, computes their responses to the characters that
// occur, and reads all words. Backward, it adds the gradient of each filter to the entries of its strongest window, always
// in the order of the words, and two small products give the gradients of the filters and of the character vectors.
#pragma once
#include "train_encoder.h"

namespace elmo {
namespace train_encoder {

class Convolutions {
 public:
  Convolutions(const Sizes& sizes, Workspace& w) : s_(sizes), task_(sizes.task), w_(w), E_(task_.char_dim) {
    long base = 0;
    for (long f = 0; f < task_.num_convolutions; f++) {
      const Convolution& c = task_.convolutions[f];
      for (long p = 0; p * PANEL < c.count; p++) parts_.push_back({&c, p * PANEL, base + p * PANEL});
      base += c.count;
      widest_ = std::max<long>(widest_, c.width);
    }
    for (long i = 0; i < num_parts(); i++) order_.push_back(i);
    std::stable_sort(order_.begin(), order_.end(), [&](long a, long b) {  // the widest first: they take the longest
      return parts_[a].convolution->width > parts_[b].convolution->width;
    });
  }

  // Of the forward call: finds the characters that occur and each word's windows, and makes room.
  void read_words() {
    const long C = task_.columns;
    w_.ids.resize(s_.N * C);
    w_.num_windows.resize(s_.N);
    w_.used.clear();
    w_.index.assign(task_.num_chars + 1, -1);
    for (long i = 0; i < s_.N; i++) {
      const int32_t* ids = task_.ids + i * C;
      for (long q = 0; q < C; q++) {
        int32_t& index = w_.index[ids[q]];
        if (index < 0) {
          index = int32_t(w_.used.size());
          w_.used.push_back(ids[q]);
        }
        w_.ids[i * C + q] = index;
      }
      long used = C;
      while (used > 0 && ids[used - 1] == ids[C - 1]) used--;
      w_.num_windows[i] = int32_t(used + 1);
    }
    make_room(w_.chars, num_used() * E_);
    for (long u = 0; u < num_used(); u++) {
      float* to = w_.chars.data() + u * E_;
      if (w_.used[u]) std::memcpy(to, task_.table + (w_.used[u] - 1) * E_, E_ * sizeof(float));
      else std::memset(to, 0, E_ * sizeof(float));
    }
    make_room(w_.places, num_parts() * s_.N * PANEL);
  }

  void make_room_for_gradients() { make_room(w_.d_chars, num_parts() * num_used() * E_); }

  // Floats per thread.
  long scratch_size() const {
    const long responses = widest_ * num_used() * PANEL, filters = widest_ * round_up(E_, PANEL) * PANEL;
    return responses + std::max(responses / 4, 2 * filters + num_used() * round_up(E_, PANEL));
  }

  long num_parts() const { return long(parts_.size()); }
  long num_used() const { return long(w_.used.size()); }

  Grid forward_grid() const { return Grid(s_.N, num_parts(), s_.N, 1, s_.threads); }

  // Writes the filters of one part, after the activation, to x, for words [first, last).
  void forward(long number, long first, long last, float* x, float* scratch) const {
    const long part_number = order_[number];
    const Part& part = parts_[part_number];
    const Convolution& c = *part.convolution;
    float* filters = scratch;                              // (width, E, PANEL)
    float* responses = filters + c.width * E_ * PANEL;     // (width, used characters, PANEL)
    for (long k = 0; k < c.width; k++)
      for (long e = 0; e < E_; e++)
        for (long n = 0; n < PANEL; n++) filters[(k * E_ + e) * PANEL + n] = part.weight(n, e, k, E_);
    gemm<Float32>(rows_of(w_.chars.data(), E_), 0, num_used(), Right{as_words(filters), E_ * PANEL}, 0, c.width, E_, responses,
                  PANEL, num_used() * PANEL, false);
    Floats offset[4];  // the bias; NaN if a response is not finite, because comparisons drop NaN
    for (int j = 0; j < 4; j++) offset[j] = load_few(c.bias + part.column + j * LANES, part.left(j));
    for (long row = 0; row < c.width * num_used(); row++)
      for (int j = 0; j < 4; j++) offset[j] = fma(all(0.0f), load(responses + row * PANEL + j * LANES), offset[j]);
    for (long i = first; i < last; i++) {
      Floats best[4], place[4];
      strongest_window(c.width, w_.ids.data() + i * task_.columns, windows_of(i, c), responses, best, place);
      for (int j = 0; j < 4; j++) {
        const Floats v = add(best[j], offset[j]);
        store_few(x + i * s_.x_stride + part.base + j * LANES, task_.tanh ? tanh(v) : max(all(0.0f), v), part.left(j));
        const Places places = __builtin_convertvector(place[j], Places);
        std::memcpy(w_.places.data() + (part_number * s_.N + i) * PANEL + j * LANES, &places, sizeof(places));
      }
    }
  }

  // The gradients of one part's filters and biases, and what it adds to those of the characters. x: as in forward.
  void backward(long number, const float* x, const float* d_x, float* scratch) const {
    const long part_number = order_[number];
    const Part& part = parts_[part_number];
    const Convolution& c = *part.convolution;
    const long U = num_used(), e_panels = panels_of(E_);
    float* d_responses = scratch;                               // (width, used characters, PANEL)
    float* filters = d_responses + c.width * U * PANEL;         // (panels of E, width, PANEL filters, PANEL)
    float* d_filters = filters + e_panels * c.width * PANEL * PANEL;  // (width, E, PANEL)
    float* d_chars = d_filters + c.width * E_ * PANEL;          // (used characters, panels of E)
    float* sums = filters;  // (width, used characters, LANES): of one register, so that they fit in the L1 cache
    for (int j = 0; j < 4; j++) {
      const long rows = c.width * U, count = part.left(j);
      std::memset(sums, 0, rows * LANES * sizeof(float));
      Floats d_bias = all(0.0f);
      for (long i = 0; i < s_.N && count > 0; i++) {
        const long at = i * s_.x_stride + part.base + j * LANES;
        const Floats y = load_few(x + at, count), dy = load_few(d_x + at, count);
        const Floats g = task_.tanh ? mul(dy, sub(all(1.0f), mul(y, y))) : where_active(y, dy);
        d_bias = add(d_bias, g);
        const uint16_t* places = w_.places.data() + (part_number * s_.N + i) * PANEL + j * LANES;
        scatter(c.width, w_.ids.data() + i * task_.columns, g, places, sums);
      }
      store_few(c.d_bias + part.column + j * LANES, d_bias, count);
      for (long row = 0; row < rows; row++) store(d_responses + row * PANEL + j * LANES, load(sums + row * LANES));
    }

    const Right panels = {as_words(d_responses), U * PANEL};
    gemm<Float32>(columns_of(w_.chars.data(), E_), 0, E_, panels, 0, c.width, U, d_filters, PANEL, E_ * PANEL, false);
    for (long n = 0; n < std::min<long>(PANEL, c.count - part.column); n++)
      for (long e = 0; e < E_; e++)
        for (long k = 0; k < c.width; k++)
          c.d_weight[((part.column + n) * E_ + e) * c.width + k] = d_filters[(k * E_ + e) * PANEL + n];

    std::memset(filters, 0, e_panels * c.width * PANEL * PANEL * sizeof(float));
    for (long k = 0; k < c.width; k++)
      for (long n = 0; n < PANEL; n++)
        for (long e = 0; e < E_; e++)
          filters[((e / PANEL * c.width + k) * PANEL + n) * PANEL + e % PANEL] = part.weight(n, e, k, E_);
    gemm<Float32>(Left{as_words(d_responses), PANEL, 1, PANEL, U * PANEL}, 0, U, Right{as_words(filters), long(c.width) * PANEL * PANEL},
                  0, e_panels, c.width * PANEL, d_chars, e_panels * PANEL, PANEL, false);
    for (long u = 0; u < U; u++)
      std::memcpy(w_.d_chars.data() + (part_number * U + u) * E_, d_chars + u * e_panels * PANEL, E_ * sizeof(float));
  }

  // Sums what the parts added to the gradients of the characters.
  void finish_backward() const {
    for (long u = 0; u < num_used(); u++) {
      if (!w_.used[u]) continue;  // padding
      float* to = task_.d_table + (w_.used[u] - 1) * E_;
      for (long part = 0; part < num_parts(); part++)
        for (long e = 0; e < E_; e++) to[e] += w_.d_chars[(part * num_used() + u) * E_ + e];
    }
  }

 private:
  typedef uint16_t Places __attribute__((vector_size(2 * LANES)));

  // A panel of filters of one width.
  struct Part {
    const Convolution* convolution;
    long column, base;  // of its first filter, among those of its width and among all filters

    long left(int j) const { return convolution->count - column - j * LANES; }
    float weight(long n, long e, long k, long E) const {
      return column + n < convolution->count ? convolution->weight[((column + n) * E + e) * convolution->width + k] : 0.0f;
    }
  };

  static const Word* as_words(const float* x) { return reinterpret_cast<const Word*>(x); }
  long windows_of(long i, const Convolution& c) const { return std::min<long>(w_.num_windows[i], task_.columns - c.width + 1); }

  // The largest response of each filter and the first window that has it.
  ELMO_INLINE void strongest_window(long width, const int32_t* ids, long count, const float* responses, Floats (&best)[4],
                                    Floats (&place)[4]) const {
    for (int j = 0; j < 4; j++) best[j] = all(-INFINITY), place[j] = all(0.0f);
    for (long q = 0; q < count; q++) {
      Floats sums[4];
      for (int j = 0; j < 4; j++) sums[j] = load(responses + ids[q] * PANEL + j * LANES);
      for (long k = 1; k < width; k++) {
        const float* response = responses + (k * num_used() + ids[q + k]) * PANEL;
        for (int j = 0; j < 4; j++) sums[j] = add(sums[j], load(response + j * LANES));
      }
      for (int j = 0; j < 4; j++) {
        const auto better = sums[j] > best[j];
        best[j] = better ? sums[j] : best[j];
        place[j] = better ? all(float(q)) : place[j];
      }
    }
  }

  // Adds the gradients of LANES filters to the responses in their strongest windows, one window after the other.
  ELMO_INLINE void scatter(long width, const int32_t* ids, Floats g, const uint16_t* places, float* sums) const {
    Places vector;
    std::memcpy(&vector, places, sizeof(vector));
    const Floats place = __builtin_convertvector(vector, Floats);
    const long U = num_used();
    for (unsigned left = ((1u << LANES) - 1) & ~equal_lanes(g, all(0.0f)); left;) {
      const uint16_t first = places[__builtin_ctz(left)];
      const Floats q = all(first);
      left &= ~equal_lanes(place, q);
      const Floats here = place == q ? g : all(0.0f);
      float* at = sums;
      for (long k = 0; k < width; k++, at += U * LANES) {
        float* entry = at + ids[first + k] * LANES;
        store(entry, add(load(entry), here));
      }
    }
  }

  const Sizes& s_;
  const Words& task_;
  Workspace& w_;
  const long E_;
  long widest_ = 0;
  std::vector<Part> parts_;
  std::vector<long> order_;
};

}  // namespace train_encoder
}  // namespace elmo
