/* int8 convolution / GEMM for cores without SDOT (Cortex-A53, A72).
 *
 * Weights are packed in panels of 16 channels, [depth / 2][16][2]: a pair of depths of one input
 * row, repeated over a register, meets eight channels in SMULL, the next pair is added by SMLAL, and
 * SADALP sums neighbours into one 32-bit lane per channel. 16 products cost three instructions and
 * no sum across lanes is left at the end. Two products fit 16 bits because weights are never -128.
 */
#define PLAIN_ELEMENT int8_t
#include "gemm_frame.h"
#include "requantize.h"

#ifdef EDGECTL_IN_ORDER
enum { TILE_ROWS = 3, TILE_COLS = 16 }; /* leaves six registers for products, see below */
#else
enum { TILE_ROWS = 4, TILE_COLS = 16 };
#endif

#if USE_NEON
#ifdef EDGECTL_IN_ORDER
INLINE int16x4_t load_at(const int8_t *from, size_t at) {
  int16x4_t value;
  __asm__("ldr %d0, [%1, %2]" : "=w"(value) : "r"(from), "r"(at));
  return value;
}
#endif

INLINE void mlal_tile(const struct conv_params *p, const uint8_t *blob, const uint8_t *const *taps,
                      const int32_t rows, const int32_t groups, int32_t cols, int32_t first_col,
                      uint8_t *out, int32_t times) {
  int32x4_t sum[TILE_ROWS][4];
  const int32_t *bias = (const int32_t *)(blob + p->bias_at) + first_col;
  const float *scale = (const float *)(blob + p->scale_at) + first_col;
  const int8_t *const panel =
      (const int8_t *)(blob + p->weights_at) + (size_t)first_col * p->depth * p->taps;
  const size_t step = (size_t)rows * p->out_c;
  do {
    const int8_t *w = panel;
    FORGET(bias); /* four registers less across the loop below */
    UNROLL for (int g = 0; g < 2 * groups; ++g) {
      const int32x4_t start = vld1q_s32(bias + 4 * g);
      UNROLL for (int r = 0; r < rows; ++r) sum[r][g] = start;
    }
    int32_t left = p->taps;
    do {
      const int8_t *a[TILE_ROWS];
      UNROLL for (int r = 0; r < rows; ++r) a[r] = (const int8_t *)taps[r];
      taps += rows;
#ifdef EDGECTL_IN_ORDER
      /* Built without instruction scheduling: products in batches of six, so that each step of
       * SMULL, SMLAL and SADALP finds its operands ready, and loads without write-back. */
      size_t at = 0;
      const size_t end = (size_t)p->depth;
      do {
        int16x4_t pairs[TILE_ROWS];
        UNROLL for (int r = 0; r < rows; ++r) pairs[r] = load_at(a[r], at);
        at += 8;
#define ROWS_DO UNROLL for (int r = 0; r < rows; ++r)
#define PAIR(R, LANE) vreinterpretq_s8_s16(vdupq_lane_s16(pairs[R], LANE))
#define HALF_STEP(EVEN, ODD)                                                                       \
    {                                                                                              \
      int8x16_t even[2], odd[2], x[TILE_ROWS], y[TILE_ROWS];                                       \
      UNROLL for (int g = 0; g < groups; ++g) {                                                    \
        even[g] = vld1q_s8(w + 16 * ((EVEN) * groups + g));                                        \
        odd[g] = vld1q_s8(w + 16 * ((ODD) * groups + g));                                          \
      }                                                                                            \
      ROWS_DO x[r] = PAIR(r, EVEN);                                                                \
      ROWS_DO y[r] = PAIR(r, ODD);                                                                 \
      UNROLL for (int g = 0; g < groups; ++g) {                                                    \
        int16x8_t low[TILE_ROWS], high[TILE_ROWS];                                                 \
        ROWS_DO low[r] = vmull_s8(vget_low_s8(even[g]), vget_low_s8(x[r]));                        \
        ROWS_DO high[r] = vmull_high_s8(even[g], x[r]);                                            \
        ROWS_DO PIN(low[r]);                                                                       \
        ROWS_DO PIN(high[r]);                                                                      \
        ROWS_DO low[r] = vmlal_s8(low[r], vget_low_s8(odd[g]), vget_low_s8(y[r]));                 \
        ROWS_DO high[r] = vmlal_high_s8(high[r], odd[g], y[r]);                                    \
        ROWS_DO sum[r][2 * g] = vpadalq_s16(sum[r][2 * g], low[r]);                                \
        ROWS_DO sum[r][2 * g + 1] = vpadalq_s16(sum[r][2 * g + 1], high[r]);                       \
      }                                                                                            \
    }
        HALF_STEP(0, 1)
        HALF_STEP(2, 3)
#undef HALF_STEP
#undef PAIR
#undef ROWS_DO
        w += 64 * groups;
      } while (at < end);
#else
      int32_t k = p->depth;
      do {
        int16x4_t pairs[TILE_ROWS];
        UNROLL for (int r = 0; r < rows; ++r) {
          pairs[r] = vreinterpret_s16_s8(vld1_s8(a[r]));
          a[r] += 8;
        }
#define HALF_STEP(EVEN, ODD)                                                                       \
        {                                                                                          \
          int8x16_t even[2], odd[2];                                                               \
          UNROLL for (int g = 0; g < groups; ++g) {                                                \
            even[g] = vld1q_s8(w + 16 * ((EVEN) * groups + g));                                    \
            odd[g] = vld1q_s8(w + 16 * ((ODD) * groups + g));                                      \
          }                                                                                        \
          UNROLL for (int r = 0; r < rows; ++r) {                                                  \
            const int8x16_t x = vreinterpretq_s8_s16(vdupq_lane_s16(pairs[r], EVEN));              \
            const int8x16_t y = vreinterpretq_s8_s16(vdupq_lane_s16(pairs[r], ODD));               \
            UNROLL for (int g = 0; g < groups; ++g) {                                              \
              int16x8_t low = vmull_s8(vget_low_s8(even[g]), vget_low_s8(x));                      \
              int16x8_t high = vmull_high_s8(even[g], x);                                          \
              low = vmlal_s8(low, vget_low_s8(odd[g]), vget_low_s8(y));                            \
              high = vmlal_high_s8(high, odd[g], y);                                               \
              sum[r][2 * g] = vpadalq_s16(sum[r][2 * g], low);                                     \
              sum[r][2 * g + 1] = vpadalq_s16(sum[r][2 * g + 1], high);                            \
            }                                                                                      \
          }                                                                                        \
        }
        HALF_STEP(0, 1)
        HALF_STEP(2, 3)
#undef HALF_STEP
        w += 64 * groups;
        k -= 8;
      } while (k > 0);
#endif
    } while (--left > 0);
    finish(p, sum, rows, groups, cols, scale, out);
    out += step;
  } while (--times > 0);
}

/* A last panel of at most 8 channels is packed half as wide. */
#define TILE(ROWS)                                                                                 \
  HOT void tile_##ROWS##x16(                                          \
      const struct conv_params *p, const uint8_t *blob, const uint8_t *const *taps, int32_t cols,  \
      int32_t first_col, uint8_t *out, int32_t times) {                                            \
    mlal_tile(p, blob, taps, ROWS, 2, cols, first_col, out, times);                                \
  }                                                                                                \
  HOT void tile_##ROWS##x8(                                           \
      const struct conv_params *p, const uint8_t *blob, const uint8_t *const *taps, int32_t cols,  \
      int32_t first_col, uint8_t *out, int32_t times) {                                            \
    mlal_tile(p, blob, taps, ROWS, 1, cols, first_col, out, times);                                \
  }
TILE(1)
TILE(2)
TILE(3)
#ifndef EDGECTL_IN_ORDER
TILE(4)
#endif

static tile_function *choose_tile(int32_t rows, int32_t cols) {
#define CASE(ROWS)                                                                                 \
  case ROWS:                                                                                       \
    return cols > 8 ? tile_##ROWS##x16 : tile_##ROWS##x8;
  switch (rows) {
#ifndef EDGECTL_IN_ORDER
    CASE(4)
#endif
    CASE(3) CASE(2)
  }
#undef CASE
  return cols > 8 ? tile_1x16 : tile_1x8;
}
#else
INLINE void plain_tile(const struct conv_params *p, const uint8_t *blob, const uint8_t *const *taps,
                       int32_t rows, int32_t cols, int32_t first_col, uint8_t *out) {
  const int32_t *bias = (const int32_t *)(blob + p->bias_at) + first_col;
  const float *scale = (const float *)(blob + p->scale_at) + first_col;
  const int8_t *w = (const int8_t *)(blob + p->weights_at) + (size_t)first_col * p->depth * p->taps;
  const int32_t width = cols > 8 ? 16 : 8;
  for (int32_t r = 0; r < rows; ++r)
    for (int32_t c = 0; c < cols; ++c) {
      int32_t sum = bias[c];
      for (int32_t t = 0; t < p->taps; ++t)
        for (int32_t k = 0; k < p->depth; ++k)
          sum += (int32_t)((const int8_t *)taps[t * rows + r])[k] *
                 w[((size_t)(t * p->depth + k) / 2 * width + c) * 2 + k % 2];
      out[(size_t)r * p->out_c + c] = (uint8_t)requantize1(sum, scale[c], p);
    }
}
PLAIN_TILES
#endif

KERNEL void edgectl_i8_gemm_mlal(const uint8_t *in, size_t in_at, const uint8_t *blob, size_t blob_at,
                                 uint8_t *out, size_t out_at, size_t group) {
  run_frame(in + in_at, blob + blob_at, out + out_at, group, 1, 1, TILE_ROWS, TILE_COLS, choose_tile, 0,
            0);
}
