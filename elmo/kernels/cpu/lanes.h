// Short names for vector instructions, so that the kernels read like arithmetic.
//
// There are three builds of the same kernels: 16 lanes (AVX-512), 8 lanes (AVX2) and 4 lanes (NEON of 64-bit ARM). The
// compiler neither contracts nor reorders operations (see the flags in compiler.py), so the result of a row does not depend
// on the other rows, and AVX2 and NEON give the same bits.
#pragma once
#if defined(__aarch64__)
#include <arm_neon.h>
#else
#include <immintrin.h>
#endif

#include <cstdint>
#include <cstring>

namespace elmo {

#define ELMO_INLINE __attribute__((always_inline)) inline

#if defined(__AVX512F__)

using Floats = __m512;
constexpr int LANES = 16;
constexpr int TILE_ROWS = 6;  // 6 rows x 4 registers of sums, 4 of weights, 1 of input: 29 of 32 registers

ELMO_INLINE Floats load(const float* p) { return _mm512_loadu_ps(p); }
ELMO_INLINE void store(float* p, Floats v) { _mm512_storeu_ps(p, v); }
ELMO_INLINE Floats all(float x) { return _mm512_set1_ps(x); }
ELMO_INLINE Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
ELMO_INLINE Floats sub(Floats a, Floats b) { return _mm512_sub_ps(a, b); }
ELMO_INLINE Floats mul(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
ELMO_INLINE Floats div(Floats a, Floats b) { return _mm512_div_ps(a, b); }
ELMO_INLINE Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
ELMO_INLINE Floats min(Floats a, Floats b) { return _mm512_min_ps(a, b); }  // b if either is NaN
ELMO_INLINE Floats max(Floats a, Floats b) { return _mm512_max_ps(a, b); }  // b if either is NaN
ELMO_INLINE Floats nearest(Floats a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
ELMO_INLINE Floats times_power_of_two(Floats a, Floats n) { return _mm512_scalef_ps(a, n); }
ELMO_INLINE float largest(Floats a) { return _mm512_reduce_max_ps(a); }
ELMO_INLINE Floats absolute(Floats a) { return _mm512_abs_ps(a); }
ELMO_INLINE Floats zero_unless_below(Floats a, Floats limit, Floats x) {  // x where a < limit or either is NaN, else 0
  return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a, limit, _CMP_NGE_UQ), x);
}
ELMO_INLINE unsigned equal_lanes(Floats a, Floats b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }  // one bit per lane
ELMO_INLINE Floats even_pairs(Floats a, Floats b) {  // in each group of 4 lanes: a0 a1 b0 b1
  return _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
}
ELMO_INLINE Floats odd_pairs(Floats a, Floats b) {  // a2 a3 b2 b3
  return _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
}
ELMO_INLINE Floats low_lanes(Floats a, Floats b) { return _mm512_unpacklo_ps(a, b); }   // a0 b0 a1 b1
ELMO_INLINE Floats high_lanes(Floats a, Floats b) { return _mm512_unpackhi_ps(a, b); }  // a2 b2 a3 b3

#elif defined(__AVX2__) && defined(__FMA__)

using Floats = __m256;
constexpr int LANES = 8;
constexpr int TILE_ROWS = 3;  // 12 of 16 registers hold sums; weights are read from the L1 cache

ELMO_INLINE Floats load(const float* p) { return _mm256_loadu_ps(p); }
ELMO_INLINE void store(float* p, Floats v) { _mm256_storeu_ps(p, v); }
ELMO_INLINE Floats all(float x) { return _mm256_set1_ps(x); }
ELMO_INLINE Floats add(Floats a, Floats b) { return _mm256_add_ps(a, b); }
ELMO_INLINE Floats sub(Floats a, Floats b) { return _mm256_sub_ps(a, b); }
ELMO_INLINE Floats mul(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
ELMO_INLINE Floats div(Floats a, Floats b) { return _mm256_div_ps(a, b); }
ELMO_INLINE Floats fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
ELMO_INLINE Floats min(Floats a, Floats b) { return _mm256_min_ps(a, b); }
ELMO_INLINE Floats max(Floats a, Floats b) { return _mm256_max_ps(a, b); }
ELMO_INLINE Floats nearest(Floats a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
ELMO_INLINE Floats times_power_of_two(Floats a, Floats n) {
  n = max(all(-126.0f), n);
  const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
  return mul(a, _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23)));
}
ELMO_INLINE float largest(Floats a) {
  alignas(32) float each[8];
  _mm256_store_ps(each, a);
  float maximum = each[0];
  for (int i = 1; i < 8; i++) maximum = each[i] > maximum ? each[i] : maximum;
  return maximum;
}
ELMO_INLINE Floats absolute(Floats a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
ELMO_INLINE Floats zero_unless_below(Floats a, Floats limit, Floats x) {
  return _mm256_and_ps(_mm256_cmp_ps(a, limit, _CMP_NGE_UQ), x);
}
ELMO_INLINE unsigned equal_lanes(Floats a, Floats b) { return unsigned(_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_EQ_OQ))); }
ELMO_INLINE Floats even_pairs(Floats a, Floats b) {
  return _mm256_castpd_ps(_mm256_unpacklo_pd(_mm256_castps_pd(a), _mm256_castps_pd(b)));
}
ELMO_INLINE Floats odd_pairs(Floats a, Floats b) {
  return _mm256_castpd_ps(_mm256_unpackhi_pd(_mm256_castps_pd(a), _mm256_castps_pd(b)));
}
ELMO_INLINE Floats low_lanes(Floats a, Floats b) { return _mm256_unpacklo_ps(a, b); }
ELMO_INLINE Floats high_lanes(Floats a, Floats b) { return _mm256_unpackhi_ps(a, b); }

#elif defined(__aarch64__)

using Floats = float32x4_t;
constexpr int LANES = 4;
constexpr int TILE_ROWS = 6;  // 6 rows x 4 registers of sums, 4 of weights, 1 of input: 29 of 32 registers

ELMO_INLINE Floats load(const float* p) { return vld1q_f32(p); }
ELMO_INLINE void store(float* p, Floats v) { vst1q_f32(p, v); }
ELMO_INLINE Floats all(float x) { return vdupq_n_f32(x); }
ELMO_INLINE Floats add(Floats a, Floats b) { return vaddq_f32(a, b); }
ELMO_INLINE Floats sub(Floats a, Floats b) { return vsubq_f32(a, b); }
ELMO_INLINE Floats mul(Floats a, Floats b) { return vmulq_f32(a, b); }
ELMO_INLINE Floats div(Floats a, Floats b) { return vdivq_f32(a, b); }
ELMO_INLINE Floats fma(Floats a, Floats b, Floats c) { return vfmaq_f32(c, a, b); }
// compared and selected, because vminq_f32 and vmaxq_f32 treat NaN and signed zeros differently from the other builds
ELMO_INLINE Floats min(Floats a, Floats b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
ELMO_INLINE Floats max(Floats a, Floats b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
ELMO_INLINE Floats nearest(Floats a) { return vrndnq_f32(a); }
ELMO_INLINE Floats times_power_of_two(Floats a, Floats n) {
  n = max(all(-126.0f), n);
  const int32x4_t exponent = vaddq_s32(vcvtnq_s32_f32(n), vdupq_n_s32(127));
  return mul(a, vreinterpretq_f32_s32(vshlq_n_s32(exponent, 23)));
}
ELMO_INLINE float largest(Floats a) { return vmaxvq_f32(a); }
ELMO_INLINE Floats absolute(Floats a) { return vabsq_f32(a); }
ELMO_INLINE Floats zero_unless_below(Floats a, Floats limit, Floats x) {
  return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(x), vcgeq_f32(a, limit)));
}
ELMO_INLINE unsigned equal_lanes(Floats a, Floats b) {
  const uint32x4_t bits = {1, 2, 4, 8};
  return vaddvq_u32(vandq_u32(vceqq_f32(a, b), bits));
}
ELMO_INLINE Floats even_pairs(Floats a, Floats b) {
  return vreinterpretq_f32_f64(vzip1q_f64(vreinterpretq_f64_f32(a), vreinterpretq_f64_f32(b)));
}
ELMO_INLINE Floats odd_pairs(Floats a, Floats b) {
  return vreinterpretq_f32_f64(vzip2q_f64(vreinterpretq_f64_f32(a), vreinterpretq_f64_f32(b)));
}
ELMO_INLINE Floats low_lanes(Floats a, Floats b) { return vzip1q_f32(a, b); }
ELMO_INLINE Floats high_lanes(Floats a, Floats b) { return vzip2q_f32(a, b); }

#else
#error "build for 64-bit ARM, or with AVX2 and FMA, or with AVX-512F"
#endif

constexpr int PANEL = 4 * LANES;  // columns of a product that are computed together

// Transposes a square of floats in registers.
ELMO_INLINE void transpose(Floats (&rows)[LANES]) {
  Floats pairs[LANES];
#pragma GCC unroll 8
  for (int i = 0; i < LANES; i += 2) {
    pairs[i] = low_lanes(rows[i], rows[i + 1]);
    pairs[i + 1] = high_lanes(rows[i], rows[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < LANES; i += 4) {  // group q of rows[i + c] becomes column 4 q + c of the rows i to i + 3
    rows[i] = even_pairs(pairs[i], pairs[i + 2]);
    rows[i + 1] = odd_pairs(pairs[i], pairs[i + 2]);
    rows[i + 2] = even_pairs(pairs[i + 1], pairs[i + 3]);
    rows[i + 3] = odd_pairs(pairs[i + 1], pairs[i + 3]);
  }
#if defined(__AVX512F__)
#pragma GCC unroll 4
  for (int c = 0; c < 4; c++) {
    const Floats even = _mm512_shuffle_f32x4(rows[c], rows[4 + c], 0x88), odd = _mm512_shuffle_f32x4(rows[c], rows[4 + c], 0xdd);
    const Floats even_2 = _mm512_shuffle_f32x4(rows[8 + c], rows[12 + c], 0x88);
    const Floats odd_2 = _mm512_shuffle_f32x4(rows[8 + c], rows[12 + c], 0xdd);
    rows[c] = _mm512_shuffle_f32x4(even, even_2, 0x88);
    rows[4 + c] = _mm512_shuffle_f32x4(odd, odd_2, 0x88);
    rows[8 + c] = _mm512_shuffle_f32x4(even, even_2, 0xdd);
    rows[12 + c] = _mm512_shuffle_f32x4(odd, odd_2, 0xdd);
  }
#elif defined(__AVX2__)
#pragma GCC unroll 4
  for (int c = 0; c < 4; c++) {
    const Floats a = rows[c], b = rows[4 + c];
    rows[c] = _mm256_permute2f128_ps(a, b, 0x20);
    rows[4 + c] = _mm256_permute2f128_ps(a, b, 0x31);
  }
#endif
}

ELMO_INLINE Floats clip(Floats x, float limit) { return min(all(limit), max(all(-limit), x)); }  // NaN stays NaN

// 2^y for y <= 40 (larger y give 2^40), with a relative error below 1e-7; very small y give 0. NaN stays NaN.
ELMO_INLINE Floats exp2(Floats y) {
  y = min(all(40.0f), y);
  const Floats whole = nearest(y);
  const Floats r = sub(y, whole);  // exact, in [-1/2, 1/2]
  Floats p = all(1.326472232e-3f);   // polynomial of degree 5, near minimax, exactly 1 at 0
  p = fma(p, r, all(9.671512989e-3f));
  p = fma(p, r, all(5.550733759e-2f));
  p = fma(p, r, all(2.402224208e-1f));
  p = fma(p, r, all(6.931469776e-1f));
  p = fma(p, r, all(1.0f));
  return times_power_of_two(p, whole);
}

constexpr float LOG2_E = 1.44269504088896341f;

ELMO_INLINE Floats sigmoid(Floats x) { return div(all(1.0f), add(all(1.0f), exp2(mul(all(-LOG2_E), x)))); }

ELMO_INLINE Floats tanh(Floats x) {
  const Floats e = exp2(mul(all(2 * LOG2_E), x));
  return div(sub(e, all(1.0f)), add(e, all(1.0f)));
}

inline long round_up(long n, long unit) { return (n + unit - 1) / unit * unit; }

}  // namespace elmo
