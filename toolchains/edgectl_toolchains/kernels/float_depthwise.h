/* Floating-point depthwise convolution, channels last: the part that f32 and f16 share.
 *
 * Two registers of channels for up to four neighbouring output pixels at a time: a weight is loaded
 * once for the four, an input once for every pixel whose window holds it. Inputs come through a table
 * of pointers, one per kernel row and input column of the strip, so borders (pointers to a padding
 * row) cost the same as the inside. Weights are packed [channels / LANES][taps][LANES].
 *
 * The including file defines SCALAR, VEC, WIDTH, LOAD, STORE, SPLAT, MAX, MIN and FMA.
 */
#include "conv_params.h"

enum { STRIP = 4, LANES = 2 * WIDTH, MAX_COLUMNS = 121 * STRIP };

#if USE_NEON
INLINE void strip(const struct conv_params *p, const uint8_t *blob, const uint8_t *const *table,
                  const int32_t size, const int32_t stride, const int32_t pixels, uint8_t *to) {
  const SCALAR *w = (const SCALAR *)(blob + p->weights_at);
  const SCALAR *bias = (const SCALAR *)(blob + p->bias_at);
  const int32_t columns = (pixels - 1) * stride + size;
  const VEC low = SPLAT((SCALAR)p->act_min), high = SPLAT((SCALAR)p->act_max);
  const size_t pixel = p->out_c;
  SCALAR *out = (SCALAR *)to;
  /* No branch within: without an activation the bounds are infinite. */
  for (int32_t c = 0; c + LANES <= p->out_c; c += LANES, w += LANES * size * size) {
    VEC sum[STRIP][2];
#ifndef EDGECTL_IN_ORDER
    UNROLL for (int i = 0; i < pixels; ++i) {
      sum[i][0] = LOAD(bias + c);
      sum[i][1] = LOAD(bias + c + WIDTH);
    }
#endif
#ifdef EDGECTL_IN_ORDER
    /* Built without instruction scheduling: all loads for two columns of the kernel, then their
     * multiply-adds, neighbours in different sums. */
    const size_t at = (size_t)c * sizeof(SCALAR), next = at + WIDTH * sizeof(SCALAR);
    UNROLL for (int i = 0; i < pixels; ++i) {
      sum[i][0] = LOAD_FRESH(bias, at); /* loaded for each pixel: a copy would wait among products */
      sum[i][1] = LOAD_FRESH(bias, next);
    }
    UNROLL for (int ky = 0; ky < size; ++ky) {
      UNROLL for (int left = 0; left < size; left += 2) {
        const int count = size - left < 2 ? size - left : 2;
        VEC x[3 * 2 + 5][2], weight[2][2];
        UNROLL for (int j = 0; j < columns; ++j) {
          int used = 0;
          UNROLL for (int i = 0; i < pixels; ++i)
              used |= j - i * stride >= left && j - i * stride < left + count;
          if (used) {
            const SCALAR *from = (const SCALAR *)table[ky * columns + j];
            x[j][0] = LOAD_AT(from, at);
            x[j][1] = LOAD_AT(from, next);
          }
        }
        UNROLL for (int k = 0; k < count; ++k) {
          weight[k][0] = LOAD(w + (ky * size + left + k) * LANES);
          weight[k][1] = LOAD(w + (ky * size + left + k) * LANES + WIDTH);
        }
        UNROLL for (int k = 0; k < count; ++k) UNROLL for (int i = 0; i < pixels; ++i) {
          sum[i][0] = FMA(sum[i][0], x[i * stride + left + k][0], weight[k][0]);
          sum[i][1] = FMA(sum[i][1], x[i * stride + left + k][1], weight[k][1]);
        }
      }
    }
#else
    UNROLL for (int ky = 0; ky < size; ++ky) {
      VEC weight[5][2];
      UNROLL for (int kx = 0; kx < size; ++kx) {
        weight[kx][0] = LOAD(w + (ky * size + kx) * LANES);
        weight[kx][1] = LOAD(w + (ky * size + kx) * LANES + WIDTH);
      }
      UNROLL for (int j = 0; j < columns; ++j) {
        const SCALAR *from = (const SCALAR *)table[ky * columns + j] + c;
        const VEC first = LOAD(from), second = LOAD(from + WIDTH);
        UNROLL for (int i = 0; i < pixels; ++i) {
          const int kx = j - i * stride;
          if (kx >= 0 && kx < size) {
            sum[i][0] = FMA(sum[i][0], first, weight[kx][0]);
            sum[i][1] = FMA(sum[i][1], second, weight[kx][1]);
          }
        }
      }
    }
#endif
    UNROLL for (int i = 0; i < pixels; ++i) {
      sum[i][0] = MAX(sum[i][0], low);
      sum[i][1] = MAX(sum[i][1], low);
    }
    UNROLL for (int i = 0; i < pixels; ++i) {
      sum[i][0] = MIN(sum[i][0], high);
      sum[i][1] = MIN(sum[i][1], high);
    }
    UNROLL for (int i = 0; i < pixels; ++i) {
      STORE(out + i * pixel + c, sum[i][0]);
      STORE(out + i * pixel + c + WIDTH, sum[i][1]);
    }
  }
}

#define FORM(SIZE, STRIDE, PIXELS)                                                                 \
  HOT void strip_##SIZE##_##STRIDE##_##PIXELS(                                               \
      const struct conv_params *p, const uint8_t *blob, const uint8_t *const *table, uint8_t *to) { \
    strip(p, blob, table, SIZE, STRIDE, PIXELS, to);                                               \
  }
#define FORMS(SIZE, STRIDE)                                                                        \
  FORM(SIZE, STRIDE, 1) FORM(SIZE, STRIDE, 2) FORM(SIZE, STRIDE, 3) FORM(SIZE, STRIDE, 4)
FORMS(3, 1)
FORMS(3, 2)
FORMS(5, 1)
FORMS(5, 2)
#endif

/* One pixel, any kernel size, channels from `first` on. */
static void one_pixel(const struct conv_params *p, const uint8_t *blob, const uint8_t *const *table,
                      int32_t first, uint8_t *to) {
  const SCALAR *w = (const SCALAR *)(blob + p->weights_at) + (size_t)first * p->taps;
  const SCALAR *bias = (const SCALAR *)(blob + p->bias_at);
  SCALAR *out = (SCALAR *)to;
  for (int32_t c = first; c < p->out_c; c += LANES) {
    const int32_t count = least(LANES, p->out_c - c);
#if USE_NEON
    VEC sum[2] = {LOAD(bias + c), LOAD(bias + c + WIDTH)};
    for (int32_t t = 0; t < p->taps; ++t, w += LANES) {
      SCALAR some[LANES];
      const SCALAR *from = (const SCALAR *)table[t] + c;
      if (count < LANES) { /* never read past the last channel */
        ROLLED for (int32_t i = 0; i < LANES; ++i) some[i] = i < count ? from[i] : (SCALAR)0;
        from = some;
      }
      sum[0] = FMA(sum[0], LOAD(from), LOAD(w));
      sum[1] = FMA(sum[1], LOAD(from + WIDTH), LOAD(w + WIDTH));
    }
    const VEC low = SPLAT((SCALAR)p->act_min), high = SPLAT((SCALAR)p->act_max);
    SCALAR spill[LANES];
    STORE(spill, MIN(MAX(sum[0], low), high));
    STORE(spill + WIDTH, MIN(MAX(sum[1], low), high));
    store_some((uint8_t *)(out + c), (const uint8_t *)spill, count * (int32_t)sizeof(SCALAR));
#else
    for (int32_t i = 0; i < count; ++i) {
      SCALAR sum = bias[c + i];
      for (int32_t t = 0; t < p->taps; ++t) sum += ((const SCALAR *)table[t])[c + i] * w[t * LANES + i];
      sum = sum < (SCALAR)p->act_min ? (SCALAR)p->act_min : sum;
      out[c + i] = sum > (SCALAR)p->act_max ? (SCALAR)p->act_max : sum;
    }
    w += (size_t)p->taps * LANES;
#endif
  }
}

#if USE_NEON
typedef void strip_function(const struct conv_params *p, const uint8_t *blob, const uint8_t *const *table,
                            uint8_t *to);

static void run_strip(const struct conv_params *p, const uint8_t *blob, const uint8_t *const *table,
                      int32_t pixels, uint8_t *to) {
#define CASES(SIZE, STRIDE)                                                                        \
  if (p->k_w == SIZE && p->stride_w == STRIDE) switch (pixels) {                                   \
      case 1: strip_##SIZE##_##STRIDE##_1(p, blob, table, to); return;                             \
      case 2: strip_##SIZE##_##STRIDE##_2(p, blob, table, to); return;                             \
      case 3: strip_##SIZE##_##STRIDE##_3(p, blob, table, to); return;                             \
      case 4: strip_##SIZE##_##STRIDE##_4(p, blob, table, to); return;                             \
    }
  CASES(3, 1)
  CASES(3, 2)
  CASES(5, 1)
  CASES(5, 2)
#undef CASES
}
#endif

INLINE void run_depthwise(const uint8_t *in, const uint8_t *blob, uint8_t *out, size_t group) {
  const struct conv_params *const shared = (const struct conv_params *)blob;
  OWN(p, shared);
  const uint8_t *pad = blob + p->pad_at, *table[MAX_COLUMNS];
  const int32_t end = least(((int32_t)group + 1) * p->rows_per_group, p->rows);
  const int32_t pixel_bytes = p->out_c * (int32_t)sizeof(SCALAR);
#if USE_NEON
  const int strips = p->k_h == p->k_w && (p->k_w == 3 || p->k_w == 5) && p->out_c % LANES == 0 &&
                     p->dilation_w == 1 && (p->stride_w == 1 || p->stride_w == 2);
#else
  const int strips = 0;
#endif
  int32_t row = (int32_t)group * p->rows_per_group;
  struct pixel at = locate(p, row);
  int32_t left = p->out_w - row % p->out_w; /* pixels of this line still to come */
  while (row < end) {
    const int32_t pixels = strips ? least(least(STRIP, left), end - row) : 1;
    const int32_t columns = strips ? (pixels - 1) * p->stride_w + p->k_w : p->k_w;
    for (int32_t ky = 0; ky < p->k_h; ++ky)
      point_row(p, in, pad, at, ky, columns, sizeof(SCALAR), table + ky * columns, 1);
    uint8_t *to = out + (size_t)row * pixel_bytes;
#if USE_NEON
    if (strips)
      run_strip(shared, blob, table, pixels, to);
    else
#endif
      one_pixel(shared, blob, table, 0, to);
    row += pixels;
    advance_strip(p, &at, pixels, left);
    left = left == pixels ? p->out_w : left - pixels;
  }
}
