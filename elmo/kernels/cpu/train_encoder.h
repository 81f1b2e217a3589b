// The token encoder in training: what a call gets, the memory that a forward call leaves for its backward call, and the
// division of products among threads. train_convolutions.h and train_highways.h compute.
#pragma once
#include <cstddef>
#include <vector>

#include "products.h"
#include "team.h"
#include "threads.h"

namespace elmo {
namespace train_encoder {

struct Linear {
  const float* weight;  // (outputs, inputs)
  const float* bias;    // (outputs)
  float *d_weight, *d_bias;
};

struct Convolution {
  const float* weight;  // (count, E, width)
  const float* bias;    // (count)
  float *d_weight, *d_bias;
  int64_t width, count;
};

struct Highway {
  Linear transform, carry;
};

// All d_ fields are written by the backward call only, and the other call does not read them.
struct Words {
  const int32_t* ids;  // (N, columns), 0 = padding, v = row v - 1 of the table
  int64_t num_words, columns;
  const float* features;  // (N, feature_dim), concatenated before the character features
  float* d_features;
  int64_t feature_dim;  // 0: none
  const float* table;   // (num_chars, E)
  float* d_table;       // zero before the call
  int64_t num_chars, char_dim;
  const Convolution* convolutions;
  int64_t num_convolutions, num_filters;
  int64_t tanh;  // 0: relu
  const Highway* highways;
  int64_t num_highways;
  const Linear* projection;  // null: none
  int64_t out_dim;
  float* out;          // (N, out_dim)
  const float* d_out;  // (N, out_dim)
  int64_t dtype, num_threads;
};

// The memory of one forward call and its backward call. Rows have a gap, so that columns do not share cache lines.
struct Workspace {
  Array<float> x;           // (highways + 1, N, x_stride): word features, then the input of each highway; the last output
  Array<float> both;        // (highways, N, both_stride): panels of relu(transform) and of gates in turn; later gradients
  Array<float> d_x;         // (N, x_stride)
  Array<float> d_out;       // (N, out_stride)
  Array<Word> row_words;    // bfloat16: the left operand of a product
  Array<Word> column_words; // bfloat16: its transpose
  Array<Word> packed;       // the right operand of a weight gradient, which all threads read
  Array<uint16_t> places;   // (panels of filters, N, PANEL): where each filter's strongest window begins
  Array<float> chars;       // (used characters, E): the vectors of the characters that occur
  Array<float> d_chars;     // (panels of filters, used characters, E)
  Array<float> scratch;     // (threads, scratch_size)
  std::vector<int32_t> ids; // (N, columns): rows of `chars`
  std::vector<int32_t> used; // character ids, in the order in which they occur
  std::vector<int32_t> index; // of each character id among the used ones; -1: not used
  std::vector<int32_t> num_windows;  // (N): those that can differ: up to the last character, and one that is all padding
};

// Makes room for `count` elements, with a reserve, because steps differ a little in their number of words.
template <class T>
void make_room(Array<T>& array, long count) {
  if (count > array.size()) array.reserve(count + count / 8);
}

constexpr long FEWEST_ROWS = 96;      // of a piece of a product: fewer make packing the right operand too expensive
constexpr long PIECES_PER_THREAD = 8;  // so that a thread that is interrupted costs little

// The division of a product into pieces of rows and panels.
struct Grid {
  long rows, panels, row_block, panel_block;

  Grid(long rows, long panels, long most_rows, long most_panels, long threads)
      : rows(rows), panels(panels), row_block(std::max<long>(1, std::min(rows, most_rows))),
        panel_block(std::max<long>(1, std::min(panels, most_panels))) {
    while (count() < PIECES_PER_THREAD * threads) {
      if (panel_block > 1) panel_block = (panel_block + 1) / 2;
      else if (row_block >= 2 * FEWEST_ROWS) row_block = (row_block + 1) / 2;
      else break;
    }
  }
  long groups() const { return (panels + panel_block - 1) / panel_block; }
  long count() const { return (rows + row_block - 1) / row_block * groups(); }

  // Calls work(first row, last row, first panel, last panel) for one piece.
  template <class Work>
  void piece(long i, Work work) const {
    const long row = i / groups() * row_block, panel = i % groups() * panel_block;
    work(row, std::min(rows, row + row_block), panel, std::min(panels, panel + panel_block));
  }
};

ELMO_INLINE Floats load_few(const float* from, long count) {
  if (count >= LANES) return load(from);
  alignas(64) float lanes[LANES] = {};
  if (count > 0) std::memcpy(lanes, from, count * sizeof(float));
  return load(lanes);
}

ELMO_INLINE void store_few(float* to, Floats values, long count) {
  if (count >= LANES) return store(to, values);
  alignas(64) float lanes[LANES];
  store(lanes, values);
  if (count > 0) std::memcpy(to, lanes, count * sizeof(float));
}

// g where the relu whose output is y let its input pass, else 0. A NaN lets it pass.
ELMO_INLINE Floats where_active(Floats y, Floats g) { return y <= all(0.0f) ? all(0.0f) : g; }

// The sizes that forward and backward share.
struct Sizes {
  const Words& task;
  const long N, F, dim, token_dim;       // dim: of the word features
  const long panels;                     // of the filters
  const long x_stride, both_stride, out_stride;
  const long threads;

  explicit Sizes(const Words& task)
      : task(task), N(task.num_words), F(task.num_filters), dim(task.feature_dim), token_dim(dim + F),
        panels(panels_of(F)), x_stride(round_up(token_dim + PANEL, 64) + ROW_GAP),
        both_stride(2 * panels * PANEL + ROW_GAP), out_stride(round_up(task.out_dim, 64) + ROW_GAP),
        threads(std::max<int64_t>(1, task.num_threads)) {}
};

// Calls work(first row, last row) for blocks of all words.
template <class Work>
void in_row_blocks(Phase& phase, long rows, Work work) {
  constexpr long BLOCK = 32;
  phase.share((rows + BLOCK - 1) / BLOCK,
              [&](long i) { work(i * BLOCK, std::min(rows, (i + 1) * BLOCK)); });
}

}  // namespace train_encoder
}  // namespace elmo
