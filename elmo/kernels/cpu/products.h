// Matrix products of training: the operands change in every step, so packing must be cheap.
//
// The right operand is packed into panels as in matrix.h: (panels, steps, PANEL) words. The left operand is read where it
// is, through two strides, so that a row-major matrix serves as itself and as its transpose. In bfloat16 a word holds two
// neighbours along the inputs: `row_words` pairs the columns of a row, `column_words` pairs rows of a column.
//
// An element of a result is always summed in the order of the inputs, whatever the tile and the number of threads, so
// training gives the same bits with any number of threads.
#pragma once
#include <limits>

#include "matrix.h"

namespace elmo {

constexpr long BLOCK_STEPS = 256;  // words of the inputs that are multiplied before the next panel: the operands stay in L2

// Rows of words: element (row, step) is at words + row * row_stride + chunk * chunk_stride + (step in its chunk) *
// step_stride, where chunks have `chunk` steps.
struct Left {
  const Word* words;
  long row_stride, step_stride;
  long chunk = std::numeric_limits<long>::max(), chunk_stride = 0;  // by default all steps are one chunk

  const Word* at(long row, long step) const {
    return words + row * row_stride + step / chunk * chunk_stride + step % chunk * step_stride;
  }
};

inline Left rows_of(const float* matrix, long stride) { return {reinterpret_cast<const Word*>(matrix), stride, 1}; }
inline Left columns_of(const float* matrix, long stride) { return {reinterpret_cast<const Word*>(matrix), 1, stride}; }

// Packed panels: (panels, steps, PANEL) words, `panel_stride` words from one panel to the next.
struct Right {
  const Word* words;
  long panel_stride;

  const Word* at(long panel, long step) const { return words + panel * panel_stride + step * PANEL; }
};

inline long panels_of(long columns) { return round_up(columns, PANEL) / PANEL; }

template <class D>
constexpr long steps_of(long inputs) {
  return (inputs + D::PER_WORD - 1) / D::PER_WORD;
}

// The words of two rows (or one, if b is null) of LANES floats, paired element by element.
template <class D>
ELMO_INLINE void pair_rows(const float* a, [[maybe_unused]] const float* b, Word* to) {
  if constexpr (D::PER_WORD == 1) {
    store(reinterpret_cast<float*>(to), load(a));
  } else {
#if defined(__AVX512BF16__)
    const __m512i both = (__m512i)_mm512_cvtne2ps_pbh(b ? load(b) : all(0.0f), load(a));  // all of a, then all of b
    const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5,
                                           20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    _mm512_storeu_si512(to, _mm512_permutexvar_epi16(order, both));
#endif
  }
}

// Like pair_rows for the first `count` < LANES floats; the other words are zero.
template <class D>
inline void pair_few(const float* a, const float* b, long count, Word* to) {
  alignas(64) float first[LANES] = {}, second[LANES] = {};
  std::memcpy(first, a, count * sizeof(float));
  if (b) std::memcpy(second, b, count * sizeof(float));
  pair_rows<D>(first, b ? second : nullptr, to);
}

// Packs `panels` of a matrix with rows of `columns` floats; the rows are the inputs. out: (panels, steps, PANEL).
template <class D>
void pack_rows(const float* matrix, long stride, long inputs, long columns, Word* out, long first, long last) {
  const long steps = steps_of<D>(inputs);
  for (long p = first; p < last; p++) {
    Word* to = out + p * steps * PANEL;
    for (long k = 0; k < inputs; k += D::PER_WORD, to += PANEL) {
      const float* a = matrix + k * stride;
      const float* b = D::PER_WORD > 1 && k + 1 < inputs ? a + stride : nullptr;
      for (long j = 0; j < PANEL; j += LANES) {
        const long column = p * PANEL + j, left = columns - column;
        if (left >= LANES) pair_rows<D>(a + column, b ? b + column : nullptr, to + j);
        else if (left > 0) pair_few<D>(a + column, b ? b + column : nullptr, left, to + j);
        else std::memset(to + j, 0, LANES * sizeof(Word));
      }
    }
  }
}

// Packs the transpose: row(n) points to the `inputs` floats of output n, for 0 <= n < outputs. Panels are `panel_words`
// apart, so that a caller may pack the inputs in several parts.
template <class D, class Row>
void pack_columns(Row row, long inputs, long outputs, Word* out, long first, long last, long panel_words) {
  constexpr long BLOCK = LANES;  // words of a row that are transposed together
  alignas(64) Word block[LANES][BLOCK];
  alignas(64) float padded[BLOCK * 2];
  const long steps = steps_of<D>(inputs);
  for (long p = first; p < last; p++)
    for (long j = 0; j < PANEL; j += LANES)
      for (long k = 0; k < steps; k += BLOCK) {
        const long words = std::min(BLOCK, steps - k);
        for (long n = 0; n < LANES; n++) {
          const long output = p * PANEL + j + n, begin = k * D::PER_WORD, count = std::min(BLOCK * D::PER_WORD, inputs - begin);
          if (output >= outputs) {
            std::memset(block[n], 0, sizeof(block[n]));
            continue;
          }
          const float* from = row(output) + begin;
          if (count < BLOCK * D::PER_WORD) {
            std::memset(padded, 0, sizeof(padded));
            std::memcpy(padded, from, count * sizeof(float));
            from = padded;
          }
          D::convert(from, BLOCK * D::PER_WORD, block[n]);
        }
        Word* to = out + p * panel_words + k * PANEL + j;
        Floats rows[LANES];
#pragma GCC unroll 16
        for (int n = 0; n < LANES; n++) rows[n] = load(reinterpret_cast<const float*>(block[n]));
        transpose(rows);
        if (words == BLOCK) {
#pragma GCC unroll 16
          for (int w = 0; w < LANES; w++) store(reinterpret_cast<float*>(to + w * PANEL), rows[w]);
        } else {
          for (long w = 0; w < words; w++) store(reinterpret_cast<float*>(to + w * PANEL), rows[w]);
        }
      }
}

// Words of a row-major matrix whose rows are the inputs, for the left operand of a transposed product: word (k, column)
// holds the rows k * PER_WORD and the next. `columns` must be a multiple of LANES. In float32 the matrix itself serves.
template <class D>
void column_words(const float* matrix, long stride, long inputs, long columns, Word* out, long out_stride) {
  for (long k = 0; k < inputs; k += D::PER_WORD) {
    const float* a = matrix + k * stride;
    const float* b = D::PER_WORD > 1 && k + 1 < inputs ? a + stride : nullptr;
    Word* to = out + k / D::PER_WORD * out_stride;
    for (long c = 0; c < columns; c += LANES) pair_rows<D>(a + c, b ? b + c : nullptr, to + c);
  }
}

template <class D, int ROWS>
ELMO_INLINE void load_sums(const float* c, long row_stride, typename D::Sum (&sums)[ROWS][4]) {
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) sums[r][j] = D::partial(c + r * row_stride + j * LANES);
}

template <class D, int ROWS>
ELMO_INLINE void store_sums(float* c, long row_stride, const typename D::Sum (&sums)[ROWS][4]) {
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) D::save(c + r * row_stride + j * LANES, sums[r][j]);
}

// The sums of ROWS rows and one panel over the steps [begin, end).
template <class D, int ROWS>
ELMO_INLINE void multiply_chunks(const Left& left, long row, const Word* panel, long begin, long end,
                                 typename D::Sum (&sums)[ROWS][4]) {
  for (long k = begin; k < end;) {
    const long steps = std::min(end - k, left.chunk - k % left.chunk);
    multiply<D, ROWS>(left.at(row, k), left.row_stride, panel + (k - begin) * PANEL, steps, sums, left.step_stride);
    k += steps;
  }
}

// c[row * row_stride + panel * panel_stride + column] = (or, with `adds`, +=) left times right, for rows
// [first_row, last_row) and panels [first, last). c has whole panels; its padding is overwritten.
template <class D>
void gemm(const Left& left, long first_row, long last_row, const Right& right, long first, long last, long steps, float* c,
          long row_stride, long panel_stride, bool adds) {
  for (long block = first_row; block < last_row; block += CACHE_ROWS) {
    const long block_end = std::min(last_row, block + CACHE_ROWS);
    for (long k = 0; k < steps || k == 0; k += BLOCK_STEPS) {
      const long end = std::min(steps, k + BLOCK_STEPS);
      for (long p = first; p < last; p++) {
        const Word* panel = right.at(p, k);
        in_tiles(block, block_end, [&](auto count, long row) __attribute__((always_inline)) {
          constexpr int ROWS = decltype(count)::value;
          typename D::Sum sums[ROWS][4];
          float* at = c + row * row_stride + p * panel_stride;
          if (k == 0 && !adds) clear<D, ROWS>(sums);
          else load_sums<D, ROWS>(at, row_stride, sums);
          multiply_chunks<D, ROWS>(left, row, panel, k, end, sums);
          store_sums<D, ROWS>(at, row_stride, sums);
        });
      }
    }
  }
}

}  // namespace elmo
