// Vectors of float32 by the compilers' vector extension (GCC, Clang): one source for every instruction set.
// DEEPDRAFT_LANES numbers a vector. Everything has internal linkage: this is compiled once for each instruction set,
// and the linker must never take one's function for another's.
#ifndef DEEPDRAFT_SIMD_H
#define DEEPDRAFT_SIMD_H

#include <stdint.h>

#if defined(__AVX__)
#include <immintrin.h>
#endif

namespace {

constexpr int W = DEEPDRAFT_LANES;

typedef float Floats __attribute__((vector_size(4 * W)));
typedef int32_t Ints __attribute__((vector_size(4 * W)));
typedef uint32_t Bits __attribute__((vector_size(4 * W)));
typedef uint16_t Halves __attribute__((vector_size(2 * W)));
typedef float Four __attribute__((vector_size(16)));

#define DEEPDRAFT_INLINE inline __attribute__((always_inline))

DEEPDRAFT_INLINE Floats load(const float *from) {
  Floats read;
  __builtin_memcpy(&read, from, sizeof read);
  return read;
}

DEEPDRAFT_INLINE void store(float *to, Floats numbers) { __builtin_memcpy(to, &numbers, sizeof numbers); }

// The first `count` numbers, then zeros; reads nothing behind them.
DEEPDRAFT_INLINE Floats load_some(const float *from, int count) {
  float read[W] = {};
  for (int i = 0; i < count; ++i) read[i] = from[i];
  return load(read);
}

DEEPDRAFT_INLINE void store_some(float *to, Floats numbers, int count) {
  float written[W];
  store(written, numbers);
  for (int i = 0; i < count; ++i) to[i] = written[i];
}

DEEPDRAFT_INLINE Floats all(float number) { return number - Floats{}; }

DEEPDRAFT_INLINE Floats greater(Floats a, Floats b) { return a > b ? a : b; }

#if defined(__clang__)
#define DEEPDRAFT_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define DEEPDRAFT_SHUFFLE(a, b, ...) __builtin_shuffle(a, b, Ints{__VA_ARGS__})
#endif

// Sums of neighbours, from both vectors in turn, within each four lanes.
#if DEEPDRAFT_LANES == 4
#define DEEPDRAFT_EVEN 0, 2, 4, 6
#define DEEPDRAFT_ODD 1, 3, 5, 7
#elif DEEPDRAFT_LANES == 8
#define DEEPDRAFT_EVEN 0, 2, 8, 10, 4, 6, 12, 14
#define DEEPDRAFT_ODD 1, 3, 9, 11, 5, 7, 13, 15
#else
#define DEEPDRAFT_EVEN 0, 2, 16, 18, 4, 6, 20, 22, 8, 10, 24, 26, 12, 14, 28, 30
#define DEEPDRAFT_ODD 1, 3, 17, 19, 5, 7, 21, 23, 9, 11, 25, 27, 13, 15, 29, 31
#endif
DEEPDRAFT_INLINE Floats in_pairs(Floats a, Floats b) {
  return DEEPDRAFT_SHUFFLE(a, b, DEEPDRAFT_EVEN) + DEEPDRAFT_SHUFFLE(a, b, DEEPDRAFT_ODD);
}

// The sum of all fours of lanes.
DEEPDRAFT_INLINE Four folded(Floats of) {
#if defined(__AVX512F__)
  __m256d high = _mm512_extractf64x4_pd((__m512d)of, 1);
  __m256 half = (__m256)_mm512_castpd512_pd256((__m512d)of) + (__m256)high;
  return (Four)(_mm256_castps256_ps128(half) + _mm256_extractf128_ps(half, 1));
#elif defined(__AVX__)
  return (Four)(_mm256_castps256_ps128((__m256)of) + _mm256_extractf128_ps((__m256)of, 1));
#else
  return (Four)of;
#endif
}

// Of each of four vectors, the sum of its lanes.
DEEPDRAFT_INLINE Four sums(const Floats (&of)[4]) {
  return folded(in_pairs(in_pairs(of[0], of[1]), in_pairs(of[2], of[3])));
}

DEEPDRAFT_INLINE float sum(Floats of) {
  Four four = folded(of);
  return four[0] + four[1] + four[2] + four[3];
}

DEEPDRAFT_INLINE float greatest(Floats of) {
  float most = of[0];
  for (int i = 1; i < W; ++i) most = of[i] > most ? of[i] : most;
  return most;
}

// 2^x for x <= 0, relative error below 2e-7; exactly 0 below 2^-126 and for -infinity; NaN stays NaN.
// A polynomial (relative minimax on [-1/2, 1/2], error 2e-9) times a power of two put together from its bits.
DEEPDRAFT_INLINE Floats exp2_of(Floats x) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it leaves a whole number in the lowest bits
  Floats shifted = x + kRound;
  Floats part = x - (shifted - kRound);
  Floats power = part * 1.5345812e-4f + 1.3399931e-3f;
  power = power * part + 9.6184890e-3f;
  power = power * part + 5.5503288e-2f;
  power = power * part + 2.4022647e-1f;
  power = power * part + 6.9314721e-1f;
  power = power * part + 1.0f;
  Floats whole = (Floats)(((Ints)shifted + 127) << 23);
  return x < -126.0f ? Floats{} : power * whole;
}

struct BFloat16 { uint16_t bits; };
struct Float16 { uint16_t bits; };

DEEPDRAFT_INLINE Bits widened(const uint16_t *from) {
#if defined(__AVX512F__)
  return (Bits)_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)from));
#elif defined(__AVX2__)
  return (Bits)_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)from));
#else
  Halves halves;
  __builtin_memcpy(&halves, from, sizeof halves);
  return __builtin_convertvector(halves, Bits);
#endif
}

DEEPDRAFT_INLINE Floats load(const BFloat16 *from) { return (Floats)(widened(&from->bits) << 16); }

DEEPDRAFT_INLINE Floats load(const Float16 *from) {
#if defined(__AVX512F__)
  return (Floats)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)from));
#elif defined(__F16C__)
  return (Floats)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)from));
#else
  // Exponent and fraction moved to their places, then the exponent's bias put right by a multiplication, which makes
  // subnormal numbers right too; what was infinite or NaN stays so.
  Bits bits = widened(&from->bits);
  Bits moved = (bits & 0x7fffu) << 13;
  Bits number = (Bits)((Floats)moved * 0x1p112f);
  number |= (Bits)(moved >= 0x0f800000u) & 0x7f800000u;
  return (Floats)(number | (bits & 0x8000u) << 16);
#endif
}

template <typename Narrow>
DEEPDRAFT_INLINE Floats load_some(const Narrow *from, int count) {
  Narrow read[W] = {};
  for (int i = 0; i < count; ++i) read[i] = from[i];
  return load(read);
}

}  // namespace
#endif
