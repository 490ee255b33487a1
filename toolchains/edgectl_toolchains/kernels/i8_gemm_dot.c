/* int8 convolution / GEMM for cores with SDOT (Cortex-A76).
 *
 * Weights are packed in panels of 16 channels, [depth / 4][16][4]: one SDOT by element multiplies four
 * depths of one input row with four channels. 4 x 16 sums fill 16 registers, enough for two SDOT a cycle
 * at a latency of four.
 */
#define PLAIN_ELEMENT int8_t
#include "gemm_frame.h"
#include "requantize.h"

enum { TILE_ROWS = 4, TILE_COLS = 16 };

#if USE_NEON
INLINE void dot_tile(const struct conv_params *p, const uint8_t *blob, const uint8_t *const *taps,
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
      int32_t k = p->depth;
      do {
        int8x8_t eight[TILE_ROWS];
        UNROLL for (int r = 0; r < rows; ++r) {
          eight[r] = vld1_s8(a[r]);
          a[r] += 8;
        }
        UNROLL for (int g = 0; g < 2 * groups; ++g) {
          const int8x16_t b = vld1q_s8(w + 16 * g);
          UNROLL for (int r = 0; r < rows; ++r) sum[r][g] = vdotq_lane_s32(sum[r][g], b, eight[r], 0);
        }
        UNROLL for (int g = 0; g < 2 * groups; ++g) {
          const int8x16_t b = vld1q_s8(w + 16 * (2 * groups + g));
          UNROLL for (int r = 0; r < rows; ++r) sum[r][g] = vdotq_lane_s32(sum[r][g], b, eight[r], 1);
        }
        w += 64 * groups;
        k -= 8;
      } while (k > 0);
    } while (--left > 0);
    finish(p, sum, rows, groups, cols, scale, out);
    out += step;
  } while (--times > 0);
}

#define TILE(ROWS)                                                                                 \
  HOT void tile_##ROWS##x16(                                          \
      const struct conv_params *p, const uint8_t *blob, const uint8_t *const *taps, int32_t cols,  \
      int32_t first_col, uint8_t *out, int32_t times) {                                            \
    dot_tile(p, blob, taps, ROWS, 2, cols, first_col, out, times);                                 \
  }                                                                                                \
  HOT void tile_##ROWS##x8(                                           \
      const struct conv_params *p, const uint8_t *blob, const uint8_t *const *taps, int32_t cols,  \
      int32_t first_col, uint8_t *out, int32_t times) {                                            \
    dot_tile(p, blob, taps, ROWS, 1, cols, first_col, out, times);                                 \
  }
TILE(1)
TILE(2)
TILE(3)
TILE(4)

static tile_function *choose_tile(int32_t rows, int32_t cols) {
#define CASE(ROWS)                                                                                 \
  case ROWS:                                                                                       \
    return cols > 8 ? tile_##ROWS##x16 : tile_##ROWS##x8;
  switch (rows) {
    CASE(4) CASE(3) CASE(2)
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
                 w[((size_t)(t * p->depth + k) / 4 * width + c) * 4 + k % 4];
      out[(size_t)r * p->out_c + c] = (uint8_t)requantize1(sum, scale[c], p);
    }
}
PLAIN_TILES
#endif

KERNEL void edgectl_i8_gemm_dot(const uint8_t *in, size_t in_at, const uint8_t *blob, size_t blob_at,
                                uint8_t *out, size_t out_at, size_t group) {
  run_frame(in + in_at, blob + blob_at, out + out_at, group, 1, 1, TILE_ROWS, TILE_COLS, choose_tile, 0,
            0);
}
