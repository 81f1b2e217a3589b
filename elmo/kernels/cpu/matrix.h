// Weights packed for vector registers, and the product that reads them: rows times matrix plus bias.
//
// A matrix is divided into panels; the columns of a panel fill 4 registers. Within a panel, one step along the inputs is
// 4 consecutive registers, so a product reads memory in order. A "word" is 32 bits of inputs: one float, two bfloat16 or
// four 8-bit integers.
#pragma once
#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <algorithm>
#include <cmath>
#include <new>
#include <vector>

#include "lanes.h"

namespace elmo {

using Word = uint32_t;
constexpr long CACHE_STEPS = 512;   // of a panel, kept in the L2 cache while all rows use it
constexpr long CACHE_ROWS = 192;    // of the input, kept in the L2 cache as well
constexpr long ROW_GAP = 16;        // words between rows of input: rows with a power-of-two stride would share cache lines

// Asks for huge pages for the whole pages of some memory that nobody has written yet.
inline void use_huge_pages([[maybe_unused]] void* data, [[maybe_unused]] size_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  const size_t page = size_t(1) << 21, skipped = -reinterpret_cast<uintptr_t>(data) % page;
  if (bytes >= skipped + page) madvise(static_cast<char*>(data) + skipped, (bytes - skipped) / page * page, MADV_HUGEPAGE);
#endif
}

// An array on huge pages if the system has them, because with small pages streaming costs an address lookup every 4 KB.
template <class T>
class Array {
 public:
  explicit Array(long count = 0) { resize(count); }
  ~Array() { release(); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  void resize(long count) {  // sets all elements to zero
    reserve(count);
    std::memset(static_cast<void*>(data_), 0, count * sizeof(T));
  }
  void reserve(long count) {  // leaves the contents undefined
    release();
    unit_ = count * sizeof(T) >= (1u << 22) ? size_t(1) << 21 : 64;
    const size_t bytes = (count * sizeof(T) / unit_ + 1) * unit_;
    data_ = static_cast<T*>(::operator new(bytes, std::align_val_t(unit_)));
    if (unit_ > 64) use_huge_pages(data_, bytes);
    count_ = count;
  }
  void grow(long count) {
    if (count > count_) resize(count);
  }
  T* data() { return data_; }
  const T* data() const { return data_; }
  T& operator[](long i) { return data_[i]; }
  const T& operator[](long i) const { return data_[i]; }
  long size() const { return count_; }

 private:
  void release() {
    ::operator delete(data_, std::align_val_t(unit_));
    data_ = nullptr;
    count_ = 0;
  }

  T* data_ = nullptr;
  size_t unit_ = 64;  // alignment in bytes
  long count_ = 0;
};

// Whether the caller has asked to end early. It may set the flag from another thread at any time.
inline bool stopped(const int* flag) { return flag && __atomic_load_n(flag, __ATOMIC_RELAXED); }

enum Dtype { FLOAT32 = 0, BFLOAT16 = 1, INT8 = 2 };

struct Matrix {
  int dtype;
  long inputs, outputs;  // outputs padded to whole panels
  long steps;            // words along the inputs
  Array<Word> words;     // (panels, steps, PANEL)
  Array<float> bias;     // (outputs)
  Array<float> scale;    // int8: the value of one unit, per column
  Array<int32_t> offset; // int8: what the zero point of the inputs, 128, adds to the sum, per column

  long panels() const { return outputs / PANEL; }
  const Word* panel(long p) const { return words.data() + p * steps * PANEL; }
};

// For each dtype: how floats become words, how words are multiplied, and how sums become floats.
struct Float32 {
  using Sum = Floats;
  using Operand = Floats;
  static constexpr int PER_WORD = 1;
  static ELMO_INLINE Sum zero() { return all(0.0f); }
  static ELMO_INLINE Operand weights(const Word* p) { return load(reinterpret_cast<const float*>(p)); }
  static ELMO_INLINE Operand input(const Word* p) { return all(*reinterpret_cast<const float*>(p)); }
  static ELMO_INLINE void dot(Operand a, Operand b, Sum& sum) { sum = fma(a, b, sum); }
  static ELMO_INLINE Floats value(Sum sum, const Matrix&, long, float) { return sum; }
  static ELMO_INLINE Sum partial(const float* p) { return load(p); }
  static ELMO_INLINE void save(float* p, Sum sum) { store(p, sum); }

  static float convert(const float* x, long n, Word* words) {
    std::memcpy(words, x, n * sizeof(float));
    return 1.0f;
  }
  static ELMO_INLINE void convert_unit(Floats x, Word* words, long at) {
    store(reinterpret_cast<float*>(words) + at, x);
  }
  static constexpr float UNIT_SCALE = 1.0f;
};

#if defined(__AVX512BF16__)
struct BFloat16 {
  using Sum = Floats;
  using Operand = __m512bh;
  static constexpr int PER_WORD = 2;
  static ELMO_INLINE Sum zero() { return all(0.0f); }
  static ELMO_INLINE Operand weights(const Word* p) { return (__m512bh)_mm512_loadu_si512(p); }
  static ELMO_INLINE Operand input(const Word* p) { return (__m512bh)_mm512_set1_epi32(int(*p)); }
  static ELMO_INLINE void dot(Operand a, Operand b, Sum& sum) { sum = _mm512_dpbf16_ps(sum, a, b); }
  static ELMO_INLINE Floats value(Sum sum, const Matrix&, long, float) { return sum; }
  static ELMO_INLINE Sum partial(const float* p) { return load(p); }
  static ELMO_INLINE void save(float* p, Sum sum) { store(p, sum); }

  static float convert(const float* x, long n, Word* words) {  // x must be readable, and zero, up to the next multiple of 32
    for (long k = 0; k < n; k += 32)
      _mm512_storeu_si512(words + k / 2, (__m512i)_mm512_cvtne2ps_pbh(load(x + k + 16), load(x + k)));
    return 1.0f;
  }
  static ELMO_INLINE void convert_unit(Floats x, Word* words, long at) {
    uint16_t* to = reinterpret_cast<uint16_t*>(words) + at;
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), (__m256i)_mm512_cvtneps_pbh(x));
  }
  static constexpr float UNIT_SCALE = 1.0f;
};
#endif

#if defined(__AVX512VNNI__)
struct Int8 {
  // not __m512i: it may alias any type, so the compiler would store the sums to memory in every step
  typedef int32_t Sum __attribute__((vector_size(64)));
  using Operand = Sum;
  static constexpr int PER_WORD = 4;
  static ELMO_INLINE Sum zero() { return (Sum)_mm512_setzero_si512(); }
  static ELMO_INLINE Operand weights(const Word* p) { return (Operand)_mm512_loadu_si512(p); }
  static ELMO_INLINE Operand input(const Word* p) { return (Operand)_mm512_set1_epi32(int(*p)); }
  static ELMO_INLINE void dot(Operand a, Operand b, Sum& sum) {
    sum = (Sum)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)a, (__m512i)b);
  }
  static ELMO_INLINE Floats value(Sum sum, const Matrix& m, long column, float row_scale) {
    const __m512i whole = _mm512_sub_epi32((__m512i)sum, _mm512_loadu_si512(m.offset.data() + column));
    return mul(_mm512_cvtepi32_ps(whole), mul(load(m.scale.data() + column), all(row_scale)));
  }
  static ELMO_INLINE Sum partial(const float* p) { return (Sum)_mm512_loadu_si512(p); }
  static ELMO_INLINE void save(float* p, Sum sum) { _mm512_storeu_si512(p, (__m512i)sum); }

  static float convert(const float* x, long n, Word* words) {  // x must be readable, and zero, up to the next multiple of 16
    Floats maximum = all(1e-12f);
    for (long k = 0; k < n; k += LANES) maximum = max(maximum, absolute(load(x + k)));
    const float scale = largest(maximum) / 127.0f;
    const Floats per_unit = all(1.0f / scale);
    for (long k = 0; k < n; k += LANES) quantize(mul(load(x + k), per_unit), words, k);
    return scale;
  }
  static ELMO_INLINE void convert_unit(Floats x, Word* words, long at) { quantize(mul(x, all(127.0f)), words, at); }
  static constexpr float UNIT_SCALE = 1.0f / 127.0f;  // of values in [-1, 1]

 private:
  static ELMO_INLINE void quantize(Floats units, Word* words, long at) {
    const __m512i shifted = _mm512_add_epi32(_mm512_cvtps_epi32(units), _mm512_set1_epi32(128));
    uint8_t* to = reinterpret_cast<uint8_t*>(words) + at;
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(shifted));
  }
};
#endif

inline long words_of(int dtype, long inputs) {
  const long per_word = dtype == FLOAT32 ? 1 : dtype == BFLOAT16 ? 2 : 4;
  return (inputs + per_word - 1) / per_word;
}

// The stride of input rows in words: whole registers and a gap.
inline long row_words(int dtype, long inputs) { return words_of(dtype, round_up(inputs, 64)) + ROW_GAP; }

inline uint16_t to_bfloat16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  if (x != x) return 0x7fc0;
  return uint16_t((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);  // to nearest, ties to even
}

// weight is (outputs, inputs). With `gates`, the outputs are four gates of `outputs / 4` cells each, and a panel holds the
// four gates of LANES cells, so that all values that a cell needs are in registers at the same time.
inline Matrix* pack(const float* weight, long inputs, long outputs, const float* bias, int dtype, bool gates) {
  auto* m = new Matrix;
  m->dtype = dtype;
  m->inputs = inputs;
  m->steps = words_of(dtype, inputs);
  const long cells = outputs / 4;
  m->outputs = gates ? round_up(cells, LANES) * 4 : round_up(outputs, PANEL);
  m->words.resize(m->outputs * m->steps);
  m->bias.resize(m->outputs);
  m->scale.resize(m->outputs);
  m->offset.resize(m->outputs);
  for (long n = 0; n < outputs; n++) {
    const long cell = n % std::max<long>(1, cells), gate = n / std::max<long>(1, cells);
    const long column = gates ? cell / LANES * PANEL + gate * LANES + cell % LANES : n;
    const float* from = weight + n * inputs;
    Word* to = m->words.data() + column / PANEL * m->steps * PANEL + column % PANEL;
    if (bias) m->bias[column] = bias[n];
    float maximum = 1e-12f;
    for (long k = 0; k < inputs; k++) maximum = std::max(maximum, std::fabs(from[k]));
    const float unit = maximum / 127.0f;
    m->scale[column] = unit;
    int32_t sum = 0;
    for (long k = 0; k < inputs; k++) {
      const float x = from[k];
      if (dtype == FLOAT32) {
        std::memcpy(to + k * PANEL, &x, 4);
      } else if (dtype == BFLOAT16) {
        to[k / 2 * PANEL] |= Word(to_bfloat16(x)) << (16 * (k % 2));
      } else {
        const int q = int(std::nearbyint(x / unit));
        sum += q;
        to[k / 4 * PANEL] |= Word(uint8_t(int8_t(q))) << (8 * (k % 4));
      }
    }
    m->offset[column] = 128 * sum;
  }
  return m;
}

template <int N>
struct Count {
  static constexpr int value = N;
};

// Calls work(Count<rows>, first row) for tiles of [begin, end): as few as possible, of similar size. A tile of one row is
// slow because it waits for its weights, so seven rows are divided into four and three, not six and one.
template <class Work>
ELMO_INLINE void in_tiles(long begin, long end, Work work) {
  for (long tiles = (end - begin + TILE_ROWS - 1) / TILE_ROWS; tiles > 0; tiles--) {
    const long rows = (end - begin + tiles - 1) / tiles;
    switch (rows) {
      case 1: work(Count<1>{}, begin); break;
      case 2: work(Count<2>{}, begin); break;
      case 3: work(Count<3>{}, begin); break;
      default:
        if constexpr (TILE_ROWS == 6) {
          if (rows == 4) work(Count<4>{}, begin);
          else if (rows == 5) work(Count<5>{}, begin);
          else work(Count<6>{}, begin);
        }
    }
    begin += rows;
  }
}
static_assert(TILE_ROWS == 3 || TILE_ROWS == 6, "in_tiles has a case for each size of tile");

// The inner loop: ROWS rows of input times `steps` steps of one panel, added to the sums in the order of the inputs.
template <class D, int ROWS>
ELMO_INLINE void multiply(const Word* rows, long row_stride, const Word* panel, long steps, typename D::Sum (&sums)[ROWS][4],
                          long step_stride = 1) {
  for (long k = 0; k < steps; k++, panel += PANEL, rows += step_stride) {
    typename D::Operand w[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) w[j] = D::weights(panel + j * LANES);
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; r++) {
      const typename D::Operand x = D::input(rows + r * row_stride);
#pragma GCC unroll 4
      for (int j = 0; j < 4; j++) D::dot(x, w[j], sums[r][j]);
    }
  }
}

template <class D, int ROWS>
ELMO_INLINE void clear(typename D::Sum (&sums)[ROWS][4]) {
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) sums[r][j] = D::zero();
}

// out[row * row_stride + panel * panel_stride + column] = rows times m plus bias, for panels begin <= p < end.
// `scales`: one per row (int8).
template <class D>
void product(const Word* rows, long row_words, long num_rows, const Matrix& m, const float* scales, float* out,
             long out_row_stride, long out_panel_stride, long begin, long end) {
  for (long first = 0; first < num_rows; first += CACHE_ROWS) {
    const long last = std::min(num_rows, first + CACHE_ROWS);
    for (long k = 0; k < m.steps; k += CACHE_STEPS) {
      const long steps = std::min(CACHE_STEPS, m.steps - k);
      const bool starts = k == 0, ends = k + steps == m.steps;
      for (long p = begin; p < end; p++) {
        in_tiles(first, last, [&](auto count, long row) __attribute__((always_inline)) {
          constexpr int ROWS = decltype(count)::value;
          typename D::Sum sums[ROWS][4];
          float* at = out + row * out_row_stride + p * out_panel_stride;
          if (starts) {
            clear<D, ROWS>(sums);
          } else {
#pragma GCC unroll 8
            for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 4
              for (int j = 0; j < 4; j++) sums[r][j] = D::partial(at + r * out_row_stride + j * LANES);
          }
          multiply<D, ROWS>(rows + row * row_words + k, row_words, m.panel(p) + k * PANEL, steps, sums);
#pragma GCC unroll 8
          for (int r = 0; r < ROWS; r++) {
            const float scale = scales ? scales[row + r] : 1.0f;
#pragma GCC unroll 4
            for (int j = 0; j < 4; j++) {
              float* to = at + r * out_row_stride + j * LANES;
              const long column = p * PANEL + j * LANES;
              if (ends)
                store(to, add(D::value(sums[r][j], m, column, scale), load(m.bias.data() + column)));
              else
                D::save(to, sums[r][j]);
            }
          }
        });
      }
    }
  }
}

template <class D>
void product(const Word* rows, long row_words, long num_rows, const Matrix& m, const float* scales, float* out,
             long out_row_stride, long out_panel_stride) {
  product<D>(rows, row_words, num_rows, m, scales, out, out_row_stride, out_panel_stride, 0, m.panels());
}

// Calls f with the type of the dtype and returns true; returns false if this build does not have the dtype.
template <class F>
bool with_dtype(int dtype, F f) {
  switch (dtype) {
    case FLOAT32: f(Float32{}); return true;
#if defined(__AVX512BF16__)
    case BFLOAT16: f(BFloat16{}); return true;
#endif
#if defined(__AVX512VNNI__)
    case INT8: f(Int8{}); return true;
#endif
  }
  return false;
}

}  // namespace elmo
