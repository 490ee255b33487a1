/* Floating-point convolution / GEMM with fused bias and clamp: the part that f32 and f16 share.
 *
 * The including file defines SCALAR, VEC, WIDTH (elements of a register), LOAD, STORE, SPLAT, MAX, MIN,
 * FMA_LANE(sum, weights, input, lane) and STEPS(STEP), which expands STEP(lane) for every lane.
 * Weights are packed in panels of 2 * WIDTH channels, [depth][2 * WIDTH]; with HALF_PANELS the last one
 * may be half as wide. Sums start at the bias and
 * take the depths in order, one rounding each (fused), like the compiler's code.
 */
#define PLAIN_ELEMENT SCALAR
#include "gemm_frame.h"

enum { TILE_ROWS = 8, TILE_COLS = 2 * WIDTH, LINE_PANELS = 4, LINE_COLS = LINE_PANELS * TILE_COLS };

#if USE_NEON
#define EACH(ROWS, VECS) UNROLL for (int r = 0; r < (ROWS); ++r) UNROLL for (int v = 0; v < (VECS); ++v)

INLINE void clamp(const struct conv_params *p, VEC sum[][2], const int32_t rows, const int32_t vecs) {
  const VEC low = SPLAT((SCALAR)p->act_min), high = SPLAT((SCALAR)p->act_max);
  EACH(rows, vecs) sum[r][v] = MAX(sum[r][v], low);
  EACH(rows, vecs) sum[r][v] = MIN(sum[r][v], high);
}

INLINE void store_whole(SCALAR *out, size_t stride, VEC sum[][2], const int32_t rows, const int32_t vecs) {
  EACH(rows, vecs) STORE(out + r * stride + v * WIDTH, sum[r][v]);
}

/* `rows` pixels by `vecs` registers of channels. */
INLINE void float_tile(const struct conv_params *p, const uint8_t *blob, const uint8_t *const *taps,
                       const int32_t rows, const int32_t vecs, int32_t cols, int32_t first_col, uint8_t *to,
                       int32_t times) {
  VEC sum[TILE_ROWS][2];
  const SCALAR *bias = (const SCALAR *)(blob + p->bias_at) + first_col;
  const SCALAR *const panel =
      (const SCALAR *)(blob + p->weights_at) + (size_t)first_col * p->depth * p->taps;
  const size_t stride = p->out_c;
  SCALAR *next = (SCALAR *)to;
  do {
    const SCALAR *w = panel;
    FORGET(bias);
    EACH(rows, vecs) sum[r][v] = LOAD(bias + v * WIDTH);
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
        VEC x[TILE_ROWS], weight[WIDTH][2];
        UNROLL for (int r = 0; r < rows; ++r) x[r] = LOAD_AT(a[r], at);
        UNROLL for (int k = 0; k < WIDTH; ++k) UNROLL for (int v = 0; v < vecs; ++v)
            weight[k][v] = LOAD(w + vecs * WIDTH * k + v * WIDTH);
        w += vecs * WIDTH * WIDTH;
        at += WIDTH * sizeof(SCALAR);
#define STEP(LANE) EACH(rows, vecs) sum[r][v] = FMA_LANE(sum[r][v], weight[LANE][v], x[r], LANE);
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
      VEC weight[2];                                                                               \
      UNROLL for (int v = 0; v < vecs; ++v) weight[v] = LOAD(w + v * WIDTH);                       \
      w += vecs * WIDTH;                                                                           \
      EACH(rows, vecs) sum[r][v] = FMA_LANE(sum[r][v], weight[v], x[r], LANE);                     \
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
    if (__builtin_expect(cols == vecs * WIDTH, 1)) {
      if (p->flags & CONV_CLAMP) {
        clamp(p, sum, rows, vecs);
        store_whole(out, stride, sum, rows, vecs);
      } else {
        store_whole(out, stride, sum, rows, vecs);
      }
      continue;
    }
    if (p->flags & CONV_CLAMP) clamp(p, sum, rows, vecs);
    UNROLL for (int r = 0; r < rows; ++r, out += stride) {
      SCALAR spill[TILE_COLS];
      UNROLL for (int v = 0; v < vecs; ++v) STORE(spill + v * WIDTH, sum[r][v]);
      store_some((uint8_t *)out, (const uint8_t *)spill, cols * (int32_t)sizeof(SCALAR));
    }
  } while (--times > 0);
}

/* One row by several panels: a matrix times a vector. Where WIDEN is defined, sums over LINE_CHUNK depths
 * are kept in SCALAR and added up in float32. */
HOT void line_tile(const struct conv_params *p, const uint8_t *blob, const uint8_t *const *taps, int32_t cols,
                   int32_t first_col, uint8_t *to, int32_t times) {
  (void)cols, (void)times;
  VEC sum[LINE_PANELS][2];
  const SCALAR *bias = (const SCALAR *)(blob + p->bias_at) + first_col;
  const SCALAR *w[LINE_PANELS];
  w[0] = (const SCALAR *)(blob + p->weights_at) + (size_t)first_col * p->depth * p->taps;
  UNROLL for (int n = 1; n < LINE_PANELS; ++n) w[n] = w[n - 1] + (size_t)TILE_COLS * p->depth * p->taps;
  EACH(LINE_PANELS, 2) sum[r][v] = LOAD(bias + r * TILE_COLS + v * WIDTH);
#ifdef WIDEN
  float32x4_t wide[LINE_PANELS][2][2];
  EACH(LINE_PANELS, 2) WIDEN(wide[r][v], sum[r][v]);
  EACH(LINE_PANELS, 2) sum[r][v] = SPLAT(0);
#endif
  for (int32_t tap = 0; tap < p->taps; ++tap) {
    const SCALAR *a = (const SCALAR *)taps[tap];
    int32_t left = p->depth;
    do {
#ifdef WIDEN
      int32_t k = least(left, LINE_CHUNK);
#else
      int32_t k = left;
#endif
      left -= k;
      do {
        const VEC x = LOAD(a);
        a += WIDTH;
#define STEP(LANE)                                                                                 \
        EACH(LINE_PANELS, 2)                                                                       \
        sum[r][v] = FMA_LANE(sum[r][v], LOAD(w[r] + LANE * TILE_COLS + v * WIDTH), x, LANE);
        STEPS(STEP)
#undef STEP
        UNROLL for (int n = 0; n < LINE_PANELS; ++n) w[n] += WIDTH * TILE_COLS;
        k -= WIDTH;
      } while (k > 0);
#ifdef WIDEN
      EACH(LINE_PANELS, 2) {
        WIDEN_ADD(wide[r][v], sum[r][v]);
        sum[r][v] = SPLAT(0);
      }
#endif
    } while (left > 0);
  }
#ifdef WIDEN
  EACH(LINE_PANELS, 2) sum[r][v] = NARROWED(wide[r][v]);
#endif
  if (p->flags & CONV_CLAMP) clamp(p, sum, LINE_PANELS, 2);
  store_whole((SCALAR *)to, TILE_COLS, sum, LINE_PANELS, 2);
}
#define LINE_TILE line_tile

#define TILE_FORM(NAME, ROWS, VECS)                                                                \
  HOT void NAME(const struct conv_params *p, const uint8_t *blob, const uint8_t *const *taps,      \
                int32_t cols, int32_t first_col, uint8_t *out, int32_t times) {                    \
    float_tile(p, blob, taps, ROWS, VECS, cols, first_col, out, times);                            \
  }
#ifdef HALF_PANELS /* a last panel of at most WIDTH channels is packed half as wide */
#define TILE(ROWS) TILE_FORM(tile_##ROWS, ROWS, 2) TILE_FORM(half_##ROWS, ROWS, 1)
#else
#define TILE(ROWS) TILE_FORM(tile_##ROWS, ROWS, 2)
#endif
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
#ifdef HALF_PANELS
  static tile_function *const halves[] = {half_1, half_2, half_3, half_4, half_5, half_6, half_7, half_8};
  if (cols <= WIDTH) return halves[rows - 1];
#else
  (void)cols;
#endif
  return tiles[rows - 1];
}
#else
#define LINE_TILE 0
INLINE void plain_tile(const struct conv_params *p, const uint8_t *blob, const uint8_t *const *taps,
                       int32_t rows, int32_t cols, int32_t first_col, uint8_t *to) {
  const SCALAR *bias = (const SCALAR *)(blob + p->bias_at) + first_col;
  const SCALAR *w = (const SCALAR *)(blob + p->weights_at) + (size_t)first_col * p->depth * p->taps;
  SCALAR *out = (SCALAR *)to;
#ifdef HALF_PANELS
  const int32_t width = cols > WIDTH ? TILE_COLS : WIDTH;
#else
  const int32_t width = TILE_COLS;
#endif
  for (int32_t r = 0; r < rows; ++r)
    for (int32_t c = 0; c < cols; ++c) {
      SCALAR sum = bias[c];
      for (int32_t t = 0; t < p->taps; ++t)
        for (int32_t k = 0; k < p->depth; ++k)
          sum += ((const SCALAR *)taps[t * rows + r])[k] * w[(size_t)(t * p->depth + k) * width + c];
      if (p->flags & CONV_CLAMP) {
        sum = sum < (SCALAR)p->act_min ? (SCALAR)p->act_min : sum;
        sum = sum > (SCALAR)p->act_max ? (SCALAR)p->act_max : sum;
      }
      out[(size_t)r * p->out_c + c] = sum;
    }
}
PLAIN_TILES
#endif
