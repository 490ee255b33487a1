/* Floating-point convolution / GEMM with fused bias and clamp: the part that f32 and f16 share.
 *
 * The including file defines SCALAR, VEC, WIDTH (elements of a register), LOAD, STORE, SPLAT, MAX, MIN,
 * FMA_LANE(sum, weights, input, lane) and STEPS(STEP), which expands STEP(lane) for every lane.
 * Weights are packed in panels of 2 * WIDTH channels, [depth][2 * WIDTH]. Sums start at the bias and
 * take the depths in order, one rounding each (fused), like the compiler's code.
 */
#define PLAIN_ELEMENT SCALAR
#include "gemm_frame.h"

enum { TILE_ROWS = 8, TILE_COLS = 2 * WIDTH };

#if USE_NEON
INLINE void clamp(const struct conv_params *p, VEC sum[][2], const int32_t rows) {
  const VEC low = SPLAT((SCALAR)p->act_min), high = SPLAT((SCALAR)p->act_max);
  UNROLL for (int r = 0; r < rows; ++r) {
    sum[r][0] = MAX(sum[r][0], low);
    sum[r][1] = MAX(sum[r][1], low);
  }
  UNROLL for (int r = 0; r < rows; ++r) {
    sum[r][0] = MIN(sum[r][0], high);
    sum[r][1] = MIN(sum[r][1], high);
  }
}

INLINE void store_whole(SCALAR *out, size_t stride, VEC sum[][2], const int32_t rows) {
  UNROLL for (int r = 0; r < rows; ++r, out += stride) {
    STORE(out, sum[r][0]);
    STORE(out + WIDTH, sum[r][1]);
  }
}

INLINE void float_tile(const struct conv_params *p, const uint8_t *blob, const uint8_t *const *taps,
                       const int32_t rows, int32_t cols, int32_t first_col, uint8_t *to, int32_t times) {
  VEC sum[TILE_ROWS][2];
  const SCALAR *bias = (const SCALAR *)(blob + p->bias_at) + first_col;
  const SCALAR *const panel =
      (const SCALAR *)(blob + p->weights_at) + (size_t)first_col * p->depth * p->taps;
  const size_t stride = p->out_c;
  SCALAR *next = (SCALAR *)to;
  do {
    const SCALAR *w = panel;
    FORGET(bias);
    UNROLL for (int r = 0; r < rows; ++r) {
      sum[r][0] = LOAD(bias);
      sum[r][1] = LOAD(bias + WIDTH);
    }
    int32_t left = p->taps;
    do {
      const SCALAR *a[TILE_ROWS];
      UNROLL for (int r = 0; r < rows; ++r) a[r] = (const SCALAR *)taps[r];
      taps += rows;
#ifdef EDGECTL_IN_ORDER
      /* All loads of a step first, none with write-back: behind a multiply-add of ten cycles a load of
       * three would wait for its turn to complete. Built without instruction scheduling. */
      size_t at = 0;
      const size_t end = (size_t)p->depth * sizeof(SCALAR);
      do {
        VEC x[TILE_ROWS], first[WIDTH], second[WIDTH];
        UNROLL for (int r = 0; r < rows; ++r) x[r] = LOAD_AT(a[r], at);
        UNROLL for (int k = 0; k < WIDTH; ++k) {
          first[k] = LOAD(w + 2 * WIDTH * k);
          second[k] = LOAD(w + 2 * WIDTH * k + WIDTH);
        }
        w += 2 * WIDTH * WIDTH;
        at += WIDTH * sizeof(SCALAR);
#define STEP(LANE)                                                                                 \
    UNROLL for (int r = 0; r < rows; ++r) {                                                        \
      sum[r][0] = FMA_LANE(sum[r][0], first[LANE], x[r], LANE);                                    \
      sum[r][1] = FMA_LANE(sum[r][1], second[LANE], x[r], LANE);                                   \
    }
        STEPS(STEP)
#undef STEP
      } while (at < end);
#else
      int32_t k = p->depth;
      do {
        VEC x[TILE_ROWS];
        UNROLL for (int r = 0; r < rows; ++r) {
          x[r] = LOAD(a[r]);
          a[r] += WIDTH;
        }
#define STEP(LANE)                                                                                 \
    {                                                                                              \
      const VEC first = LOAD(w), second = LOAD(w + WIDTH);                                         \
      w += 2 * WIDTH;                                                                              \
      UNROLL for (int r = 0; r < rows; ++r) {                                                      \
        sum[r][0] = FMA_LANE(sum[r][0], first, x[r], LANE);                                        \
        sum[r][1] = FMA_LANE(sum[r][1], second, x[r], LANE);                                       \
      }                                                                                            \
    }
        STEPS(STEP)
#undef STEP
        k -= WIDTH;
      } while (k > 0);
#endif
    } while (--left > 0);
    /* One straight run of clamps and stores: the stores then hide behind the clamps. */
    SCALAR *out = next;
    next += rows * stride;
    if (__builtin_expect(cols == TILE_COLS, 1)) {
      if (p->flags & CONV_CLAMP) {
        clamp(p, sum, rows);
        store_whole(out, stride, sum, rows);
      } else {
        store_whole(out, stride, sum, rows);
      }
      continue;
    }
    if (p->flags & CONV_CLAMP) clamp(p, sum, rows);
    UNROLL for (int r = 0; r < rows; ++r, out += stride) {
      SCALAR spill[TILE_COLS];
      STORE(spill, sum[r][0]);
      STORE(spill + WIDTH, sum[r][1]);
      store_some((uint8_t *)out, (const uint8_t *)spill, cols * (int32_t)sizeof(SCALAR));
    }
  } while (--times > 0);
}

#define TILE(ROWS)                                                                                 \
  HOT void tile_##ROWS(                                               \
      const struct conv_params *p, const uint8_t *blob, const uint8_t *const *taps, int32_t cols,  \
      int32_t first_col, uint8_t *out, int32_t times) {                                            \
    float_tile(p, blob, taps, ROWS, cols, first_col, out, times);                                  \
  }
TILE(1)
TILE(2)
TILE(3)
TILE(4)
TILE(5)
TILE(6)
TILE(7)
TILE(8)

static tile_function *choose_tile(int32_t rows, int32_t cols) {
  static tile_function *const tiles[] = {tile_1, tile_2, tile_3, tile_4, tile_5, tile_6, tile_7, tile_8};
  (void)cols;
  return tiles[rows - 1];
}
#else
INLINE void plain_tile(const struct conv_params *p, const uint8_t *blob, const uint8_t *const *taps,
                       int32_t rows, int32_t cols, int32_t first_col, uint8_t *to) {
  const SCALAR *bias = (const SCALAR *)(blob + p->bias_at) + first_col;
  const SCALAR *w = (const SCALAR *)(blob + p->weights_at) + (size_t)first_col * p->depth * p->taps;
  SCALAR *out = (SCALAR *)to;
  for (int32_t r = 0; r < rows; ++r)
    for (int32_t c = 0; c < cols; ++c) {
      SCALAR sum = bias[c];
      for (int32_t t = 0; t < p->taps; ++t)
        for (int32_t k = 0; k < p->depth; ++k)
          sum += ((const SCALAR *)taps[t * rows + r])[k] * w[(size_t)(t * p->depth + k) * TILE_COLS + c];
      if (p->flags & CONV_CLAMP) {
        sum = sum < (SCALAR)p->act_min ? (SCALAR)p->act_min : sum;
        sum = sum > (SCALAR)p->act_max ? (SCALAR)p->act_max : sum;
      }
      out[(size_t)r * p->out_c + c] = sum;
    }
}
PLAIN_TILES
#endif
