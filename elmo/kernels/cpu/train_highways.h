// Highway layers and the projection in training, forward and backward.
//
// In a row of `both`, a panel of the transform is followed by the same panel of the carry gate, so one product computes both
// and the highway combines them while they are in the cache. Backward, their gradients take the same places. A thread packs
// the part of a weight matrix that its piece needs, in its own scratch memory: the packed matrix is never in main memory.
#pragma once
#include "train_encoder.h"

namespace elmo {
namespace train_encoder {

template <class D>
class Dense {
 public:
  static constexpr bool CONVERTS = D::PER_WORD > 1;  // float32 reads its operands where they are

  Dense(const Sizes& sizes, Workspace& w)
      : s_(sizes), task_(sizes.task), w_(w), widest_(std::max({s_.x_stride, s_.both_stride, s_.out_stride})),
        row_stride_(round_up(widest_ / D::PER_WORD, 64) + ROW_GAP),
        both_grid(s_.N, s_.panels, s_.N, 2, s_.threads),
        out_grid(s_.N, panels_of(task_.out_dim), s_.N, 4, s_.threads),
        d_out_grid(s_.N, panels_of(s_.token_dim), s_.N, 4, s_.threads),
        d_weight_grid(2 * s_.panels * PANEL, s_.panels, CACHE_ROWS, 8, s_.threads),
        d_projection_grid(task_.out_dim, panels_of(s_.token_dim), CACHE_ROWS, 8, s_.threads) {}

  void make_room_for_forward() {
    make_room(w_.x, (task_.num_highways + 1) * s_.N * s_.x_stride);
    make_room(w_.both, task_.num_highways * s_.N * s_.both_stride);
    if (CONVERTS) make_room(w_.row_words, s_.N * row_stride_);
  }

  void make_room_for_backward() {
    make_room(w_.d_x, s_.N * s_.x_stride);
    if (task_.projection) make_room(w_.d_out, s_.N * s_.out_stride);
    if (CONVERTS) make_room(w_.row_words, s_.N * row_stride_);
    if (CONVERTS) make_room(w_.column_words, word_rows() * widest_);
    make_room(w_.packed, panels_of(s_.token_dim) * word_rows() * PANEL);
  }

  // Floats per thread.
  long scratch_size() const {
    long size = 0;
    if (task_.num_highways) {
      size = std::max(size, 2 * both_grid.panel_block * (steps_of<D>(s_.F) + 1) * PANEL);
      size = std::max(size, both_grid.panel_block * 2 * s_.panels * PANEL * PANEL);
      size = std::max(size, d_weight_grid.row_block * d_weight_grid.panel_block * PANEL);
    }
    if (task_.projection) {
      size = std::max(size, out_grid.panel_block * (steps_of<D>(s_.token_dim) + CACHE_ROWS) * PANEL);
      size = std::max(size, d_out_grid.panel_block * steps_of<D>(task_.out_dim) * PANEL);
      size = std::max(size, d_projection_grid.row_block * d_projection_grid.panel_block * PANEL);
    }
    return size;
  }

  // The character features that highway `layer` reads; those of the last layer, with the word features before them.
  float* x(long layer) const { return w_.x.data() + layer * s_.N * s_.x_stride + s_.dim; }
  float* tokens() const { return x(task_.num_highways) - s_.dim; }
  float* d_x() const { return w_.d_x.data() + s_.dim; }

  // bfloat16: the words of rows of x, for the next product.
  void convert_rows(const float* x, long inputs, long first, long last) const {
    if constexpr (CONVERTS)
      for (long i = first; i < last; i++) D::convert(x + i * s_.x_stride, inputs, w_.row_words.data() + i * row_stride_);
  }

  // Highway `layer` for words [first, last) and panels [p, end).
  void highway(long layer, long first, long last, long p, long end, float* scratch) const {
    const Highway& h = task_.highways[layer];
    const long steps = steps_of<D>(s_.F), panel_words = steps * PANEL;
    float* bias = scratch + 2 * (end - p) * panel_words;
    Word* packed = reinterpret_cast<Word*>(scratch);
    for (long n = p; n < end; n++)
      for (int is_carry = 0; is_carry < 2; is_carry++) {
        const Linear& linear = is_carry ? h.carry : h.transform;
        const long number = 2 * (n - p) + is_carry;
        pack_columns<D>([&](long row) { return linear.weight + row * s_.F; }, s_.F, s_.F, packed + number * panel_words, n, n + 1, 0);
        for (int j = 0; j < 4; j++) {
          const long column = n * PANEL + j * LANES;
          store(bias + number * PANEL + j * LANES, load_few(linear.bias + column, s_.F - column));
        }
      }
    float* both = this->both(layer) + 2 * p * PANEL;
    const float* from = x(layer) + p * PANEL;
    float* to = x(layer + 1) + p * PANEL;
    const Left left = row_operand(x(layer), s_.x_stride);
    for (long block = first; block < last; block += CACHE_ROWS) {
      const long block_end = std::min(last, block + CACHE_ROWS);
      gemm<D>(left, block, block_end, Right{packed, panel_words}, 0, 2 * (end - p), steps, both, s_.both_stride, PANEL, false);
      for (long i = block; i < block_end; i++)
        for (long n = 0; n < end - p; n++)
          for (long k = 0; k < PANEL; k += LANES) {
            float* at = both + i * s_.both_stride + 2 * n * PANEL + k;
            const float* b = bias + 2 * n * PANEL + k;
            const long place = i * s_.x_stride + n * PANEL + k;
            const Floats relu = max(all(0.0f), add(load(at), load(b)));
            const Floats gate = sigmoid(add(load(at + PANEL), load(b + PANEL)));
            const Floats old = load(from + place);
            store(at, relu);
            store(at + PANEL, gate);
            store(to + place, fma(gate, sub(relu, old), old));
          }
    }
  }

  // The projection of words [first, last), output panels [p, end).
  void project(long first, long last, long p, long end, float* scratch) const {
    const long T = s_.token_dim, P = task_.out_dim, steps = steps_of<D>(T), panel_words = steps * PANEL;
    Word* packed = reinterpret_cast<Word*>(scratch);
    float* sums = scratch + (end - p) * panel_words;  // (CACHE_ROWS, panels)
    pack_columns<D>([&](long row) { return task_.projection->weight + (p * PANEL + row) * T; }, T, P - p * PANEL, packed, 0,
                    end - p, panel_words);
    const long width = (end - p) * PANEL;
    for (long block = first; block < last; block += CACHE_ROWS) {
      const long rows = std::min(last - block, CACHE_ROWS);
      Left left = row_operand(tokens(), s_.x_stride);
      left.words += block * left.row_stride;
      gemm<D>(left, 0, rows, Right{packed, panel_words}, 0, end - p, steps, sums, width, PANEL, false);
      for (long i = 0; i < rows; i++)
        for (long k = 0; k < width; k += LANES) {
          const long column = p * PANEL + k, count = P - column;
          const Floats bias = load_few(task_.projection->bias + column, count);
          store_few(task_.out + (block + i) * P + column, add(load(sums + i * width + k), bias), count);
        }
    }
  }

  // Prepares panel p of the output's gradient as an operand, and sums it up for the bias.
  void read_d_out(long p) const {
    const long P = task_.out_dim, begin = p * PANEL;
    float* to = w_.d_out.data() + begin;
    Floats sums[4];
    for (int j = 0; j < 4; j++) sums[j] = all(0.0f);
    for (long i = 0; i < s_.N; i++)
      for (int j = 0; j < 4; j++) {
        const long column = begin + j * LANES;
        const Floats g = load_few(task_.d_out + i * P + column, P - column);
        store(to + i * s_.out_stride + j * LANES, g);
        sums[j] = add(sums[j], g);
        convert_unit(g, i, column);
      }
    for (int j = 0; j < 4; j++)
      store_few(task_.projection->d_bias + begin + j * LANES, sums[j], P - begin - j * LANES);
    convert_columns(to, s_.out_stride, begin, PANEL);
  }

  // Packs panel p of x as the right operand of weight gradients.
  void pack_inputs(const float* x, long inputs, long p) const {
    pack_rows<D>(x + p * PANEL, s_.x_stride, s_.N, inputs - p * PANEL, w_.packed.data() + p * word_rows() * PANEL, 0, 1);
  }

  // The gradient of the projection's inputs.
  void d_tokens(long first, long last, long p, long end, float* scratch) const {
    const long T = s_.token_dim, P = task_.out_dim, steps = steps_of<D>(P);
    Word* packed = reinterpret_cast<Word*>(scratch);
    pack_rows<D>(task_.projection->weight + p * PANEL, T, P, T - p * PANEL, packed, 0, end - p);
    gemm<D>(row_operand(w_.d_out.data(), s_.out_stride), first, last, Right{packed, steps * PANEL}, 0, end - p, steps,
            w_.d_x.data() + p * PANEL, s_.x_stride, PANEL, false);
  }

  void d_projection(long first, long last, long p, long end, float* scratch) const {
    d_weight(w_.d_out.data(), s_.out_stride, first, last, p, end, scratch);
    const long columns = std::min(end * PANEL, s_.token_dim) - p * PANEL;
    for (long i = first; i < last; i++)
      std::memcpy(task_.projection->d_weight + i * s_.token_dim + p * PANEL, scratch + (i - first) * (end - p) * PANEL,
                  columns * sizeof(float));
  }

  // Panel p of the gradients of both products of a highway, in their places, and what passes by the highway, in d_x.
  void split_gradient(long layer, long p) const {
    const Highway& h = task_.highways[layer];
    float* both = this->both(layer) + 2 * p * PANEL;
    const float* x = this->x(layer) + p * PANEL;
    float* d_x = this->d_x() + p * PANEL;
    Floats sums[2][4];
    for (int j = 0; j < 4; j++) sums[0][j] = sums[1][j] = all(0.0f);
    for (long i = 0; i < s_.N; i++)
      for (int j = 0; j < 4; j++) {
        float* at = both + i * s_.both_stride + j * LANES;
        float* d = d_x + i * s_.x_stride + j * LANES;
        const Floats relu = load(at), gate = load(at + PANEL), old = load(x + i * s_.x_stride + j * LANES), dy = load(d);
        const Floats rest = sub(all(1.0f), gate);
        const Floats d_transform = where_active(relu, mul(dy, gate));
        const Floats d_carry = mul(mul(dy, sub(relu, old)), mul(gate, rest));
        store(at, d_transform);
        store(at + PANEL, d_carry);
        store(d, mul(dy, rest));
        sums[0][j] = add(sums[0][j], d_transform);
        sums[1][j] = add(sums[1][j], d_carry);
        convert_unit(d_transform, i, 2 * p * PANEL + j * LANES);
        convert_unit(d_carry, i, (2 * p + 1) * PANEL + j * LANES);
      }
    for (int j = 0; j < 4; j++) {
      const long column = p * PANEL + j * LANES;
      store_few(h.transform.d_bias + column, sums[0][j], s_.F - column);
      store_few(h.carry.d_bias + column, sums[1][j], s_.F - column);
    }
    convert_columns(both, s_.both_stride, 2 * p * PANEL, 2 * PANEL);
    pack_inputs(this->x(layer), s_.F, p);
  }

  // Adds the gradients through both products to d_x.
  void d_inputs(long layer, long first, long last, long p, long end, float* scratch) const {
    const Highway& h = task_.highways[layer];
    constexpr long PART = PANEL / D::PER_WORD * PANEL;  // words of a panel of outputs
    const long panel_words = 2 * s_.panels * PART;
    Word* packed = reinterpret_cast<Word*>(scratch);
    for (long outputs = 0; outputs < 2 * s_.panels; outputs++) {
      const float* weight = (outputs % 2 ? h.carry : h.transform).weight;
      const long row = outputs / 2 * PANEL, count = std::min<long>(PANEL, s_.F - row);
      for (long n = p; n < end; n++) {
        Word* to = packed + (n - p) * panel_words + outputs * PART;
        if (count < PANEL) std::memset(to, 0, PART * sizeof(Word));
        pack_rows<D>(weight + row * s_.F + n * PANEL, s_.F, count, s_.F - n * PANEL, to, 0, 1);
      }
    }
    gemm<D>(row_operand(both(layer), s_.both_stride), first, last, Right{packed, panel_words}, 0, end - p, panel_words / PANEL,
            d_x() + p * PANEL, s_.x_stride, PANEL, true);
  }

  // The gradients of both weight matrices of a highway, rows [first, last) of the two in turn.
  void d_weights(long layer, long first, long last, long p, long end, float* scratch) const {
    const Highway& h = task_.highways[layer];
    d_weight(both(layer), s_.both_stride, first, last, p, end, scratch);
    const long columns = std::min(end * PANEL, s_.F) - p * PANEL;
    for (long i = first; i < last; i++) {
      const long row = i / (2 * PANEL) * PANEL + i % PANEL;
      if (row >= s_.F) continue;
      float* to = (i / PANEL % 2 ? h.carry : h.transform).d_weight + row * s_.F + p * PANEL;
      std::memcpy(to, scratch + (i - first) * (end - p) * PANEL, columns * sizeof(float));
    }
  }

 private:
  long word_rows() const { return steps_of<D>(s_.N); }
  float* both(long layer) const { return w_.both.data() + layer * s_.N * s_.both_stride; }

  Left row_operand(const float* matrix, long stride) const {
    if constexpr (CONVERTS) return Left{w_.row_words.data(), row_stride_, 1};
    return rows_of(matrix, stride);
  }

  void convert_unit(Floats values, long row, long column) const {
    if constexpr (CONVERTS) D::convert_unit(values, w_.row_words.data() + row * row_stride_, column);
  }

  void convert_columns(const float* matrix, long stride, long column, long count) const {
    if constexpr (CONVERTS) column_words<D>(matrix, stride, s_.N, count, w_.column_words.data() + column, widest_);
  }

  // The columns [first, last) of a gradient times panels [p, end) of the packed inputs, summed over all words, to `out`.
  void d_weight(const float* gradient, long stride, long first, long last, long p, long end, float* out) const {
    Left left = columns_of(gradient, stride);
    if constexpr (CONVERTS) left = Left{w_.column_words.data(), 1, widest_};
    left.words += first;
    const Right right = {w_.packed.data() + p * word_rows() * PANEL, word_rows() * PANEL};
    gemm<D>(left, 0, last - first, right, 0, end - p, word_rows(), out, (end - p) * PANEL, PANEL, false);
  }

  const Sizes& s_;
  const Words& task_;
  Workspace& w_;
  const long widest_, row_stride_;  // of float rows; of the rows of `row_words`

 public:
  const Grid both_grid;                                     // of a highway's outputs, and backward of its inputs
  const Grid out_grid;                                      // of forward
  const Grid d_out_grid, d_weight_grid, d_projection_grid;  // of backward
};

}  // namespace train_encoder
}  // namespace elmo
