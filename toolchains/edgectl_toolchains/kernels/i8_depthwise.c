/* int8 depthwise convolution, channels last; 3x3 and 5x5 with stride 1 or 2 unrolled, others by loops.
 *
 * Sixteen channels of two neighbouring output pixels at a time, which share their weights and, at
 * stride 1, most of their inputs. Products of two taps are summed in 16 bits (weights are never -128)
 * and widened into 32 bits. Weights are packed [channels / 16][taps][16]. Inputs come through a table
 * of pointers, one per kernel row and input column of the strip; those outside point at padding.
 */
#include "requantize.h"

enum { MAX_TAPS = 121, LANES = 16, STRIP = 2 };

#if USE_NEON
INLINE void strip(const struct conv_params *p, const uint8_t *blob, const uint8_t *const *table,
                  const int32_t size, const int32_t stride, const int32_t pixels, uint8_t *to, const int form) {
  const int8_t *w = (const int8_t *)(blob + p->weights_at);
  const int32_t *bias = (const int32_t *)(blob + p->bias_at);
  const float *scale = (const float *)(blob + p->scale_at);
  const struct limits bounds = read_limits(p);
  const int32_t columns = (pixels - 1) * stride + size, taps = size * size;
  const size_t pixel = p->out_c, end = p->out_c & -LANES;
#define EACH UNROLL for (int i = 0; i < pixels; ++i)
#define INPUT(T, I) vld1q_s8((const int8_t *)table[(T) / size * columns + (T) % size + (I) * stride] + c)
  for (size_t c = 0; c < end; c += LANES, w += LANES * taps) {
    int32x4_t sum[STRIP][4];
    EACH UNROLL for (int g = 0; g < 4; ++g) sum[i][g] = vld1q_s32(bias + c + 4 * g);
    UNROLL for (int t = 0; t < taps; t += 2) {
      int8x16_t x[STRIP], y[STRIP];
      int16x8_t low[STRIP], high[STRIP];
      const int pair = t + 1 < taps;
      const int8x16_t a = vld1q_s8(w + LANES * t), b = pair ? vld1q_s8(w + LANES * (t + 1)) : a;
      EACH x[i] = INPUT(t, i);
      EACH y[i] = pair ? INPUT(t + 1, i) : x[i];
      EACH low[i] = vmull_s8(vget_low_s8(x[i]), vget_low_s8(a));
      EACH high[i] = vmull_high_s8(x[i], a);
#ifdef EDGECTL_IN_ORDER
      EACH PIN(low[i]);
      EACH PIN(high[i]);
#endif
      if (pair) {
        EACH low[i] = vmlal_s8(low[i], vget_low_s8(y[i]), vget_low_s8(b));
        EACH high[i] = vmlal_high_s8(high[i], y[i], b);
      }
      EACH sum[i][0] = vaddw_s16(sum[i][0], vget_low_s16(low[i]));
      EACH sum[i][1] = vaddw_high_s16(sum[i][1], low[i]);
      EACH sum[i][2] = vaddw_s16(sum[i][2], vget_low_s16(high[i]));
      EACH sum[i][3] = vaddw_high_s16(sum[i][3], high[i]);
    }
    int8x16_t done[STRIP];
    requantize_tile(bounds, sum, pixels, 2, scale + c, done, form);
    store_tile(to + c, pixel, done, pixels, 2);
  }
#undef EACH
#undef INPUT
}

/* One pixel, any number of taps, channels from `first` on: those that do not fill sixteen lanes too. */
HOT void one_pixel(const struct conv_params *p, const uint8_t *blob, const uint8_t *const *table,
                   int32_t columns, int32_t first, uint8_t *out) {
  const int8_t *w = (const int8_t *)(blob + p->weights_at) + (size_t)first * p->taps;
  const int32_t *bias = (const int32_t *)(blob + p->bias_at);
  const float *scale = (const float *)(blob + p->scale_at);
  for (int32_t c = first; c < p->out_c; c += LANES) {
    const int32_t count = least(LANES, p->out_c - c);
    int32x4_t sum[1][4];
    UNROLL for (int g = 0; g < 4; ++g) sum[0][g] = vld1q_s32(bias + c + 4 * g);
    for (int32_t ky = 0; ky < p->k_h; ++ky)
      for (int32_t kx = 0; kx < p->k_w; ++kx, w += LANES) {
        const uint8_t *from = table[ky * columns + kx] + c;
        uint8_t some[LANES] = {0};
        if (count < LANES) { /* never read past the last channel */
          store_some(some, from, count);
          from = some;
        }
        const int8x16_t x = vreinterpretq_s8_u8(vld1q_u8(from)), a = vld1q_s8(w);
        const int16x8_t low = vmull_s8(vget_low_s8(x), vget_low_s8(a)), high = vmull_high_s8(x, a);
        sum[0][0] = vaddw_s16(sum[0][0], vget_low_s16(low));
        sum[0][1] = vaddw_high_s16(sum[0][1], low);
        sum[0][2] = vaddw_s16(sum[0][2], vget_low_s16(high));
        sum[0][3] = vaddw_high_s16(sum[0][3], high);
      }
    finish(p, sum, 1, 2, count, scale + c, out + c);
  }
}

#define FORM(SIZE, STRIDE, PIXELS)                                                                 \
  HOT void strip_##SIZE##_##STRIDE##_##PIXELS(                                                     \
      const struct conv_params *p, const uint8_t *blob, const uint8_t *const *table, uint8_t *to) { \
    strip(p, blob, table, SIZE, STRIDE, PIXELS, to, FAST_FORM);                                    \
  }                                                                                                \
  HOT void safe_##SIZE##_##STRIDE##_##PIXELS(                                                      \
      const struct conv_params *p, const uint8_t *blob, const uint8_t *const *table, uint8_t *to) { \
    strip(p, blob, table, SIZE, STRIDE, PIXELS, to, SATURATING);                                   \
  }
#ifdef __ARM_FEATURE_DOTPROD
#define FAST_FORM NARROW
#define IS_FAST(FLAGS) ((FLAGS) & CONV_NARROW)
#else
#define FAST_FORM SMALL
#define IS_FAST(FLAGS) ((FLAGS) & CONV_SMALL)
#endif
#define FORMS(SIZE, STRIDE) FORM(SIZE, STRIDE, 1) FORM(SIZE, STRIDE, 2)
FORMS(3, 1)
FORMS(3, 2)
FORMS(5, 1)
FORMS(5, 2)

static void run_strip(const struct conv_params *p, const uint8_t *blob, const uint8_t *const *table,
                      int32_t pixels, uint8_t *to) {
#define CASE(SIZE, STRIDE, PIXELS)                                                                 \
  if (p->k_w == SIZE && p->stride_w == STRIDE && pixels == PIXELS) {                               \
    (IS_FAST(p->flags) ? strip_##SIZE##_##STRIDE##_##PIXELS : safe_##SIZE##_##STRIDE##_##PIXELS)(   \
        p, blob, table, to);                                                                       \
    return;                                                                                        \
  }
#define CASES(SIZE, STRIDE) CASE(SIZE, STRIDE, 2) CASE(SIZE, STRIDE, 1)
  CASES(3, 1)
  CASES(3, 2)
  CASES(5, 1)
  CASES(5, 2)
#undef CASES
#undef CASE
}
#else
static void one_pixel(const struct conv_params *p, const uint8_t *blob, const uint8_t *const *table,
                      int32_t columns, int32_t first, uint8_t *out) {
  const int8_t *w = (const int8_t *)(blob + p->weights_at);
  const int32_t *bias = (const int32_t *)(blob + p->bias_at);
  const float *scale = (const float *)(blob + p->scale_at);
  for (int32_t c = first; c < p->out_c; ++c) {
    int32_t sum = bias[c];
    for (int32_t t = 0; t < p->taps; ++t)
      sum += (int32_t)((const int8_t *)table[t / p->k_w * columns + t % p->k_w])[c] *
             w[(size_t)(c / LANES) * p->taps * LANES + t * LANES + c % LANES];
    out[c] = (uint8_t)requantize1(sum, scale[c], p);
  }
}
#endif

KERNEL void edgectl_i8_depthwise(const uint8_t *in, size_t in_at, const uint8_t *blob, size_t blob_at,
                                 uint8_t *out, size_t out_at, size_t group) {
  in += in_at;
  blob += blob_at;
  const struct conv_params *const shared = (const struct conv_params *)blob;
  OWN(p, shared);
  const uint8_t *pad = blob + p->pad_at, *table[MAX_TAPS];
  const int32_t end = least(((int32_t)group + 1) * p->rows_per_group, p->rows);
#if USE_NEON
  const int strips = p->k_h == p->k_w && (p->k_w == 3 || p->k_w == 5) && p->dilation_w == 1 &&
                     p->out_c >= LANES && (p->stride_w == 1 || p->stride_w == 2);
#else
  const int strips = 0;
#endif
  int32_t row = (int32_t)group * p->rows_per_group;
  struct pixel at = locate(p, row);
  int32_t left = p->out_w - row % p->out_w; /* pixels of this line still to come */
  while (row < end) {
    const int32_t pixels = strips ? least(least(STRIP, left), end - row) : 1;
    const int32_t columns = (pixels - 1) * p->stride_w + p->k_w;
    for (int32_t ky = 0; ky < p->k_h; ++ky)
      point_row(p, in, pad, at, ky, columns, 1, table + ky * columns, 1);
    uint8_t *to = out + out_at + (size_t)row * p->out_c;
    int32_t first = 0;
#if USE_NEON
    if (strips) {
      run_strip(shared, blob, table, pixels, to);
      first = p->out_c & -LANES;
    }
#endif
    if (first < p->out_c)
      for (int32_t i = 0; i < pixels; ++i)
        one_pixel(shared, blob, table + i * p->stride_w, columns, first, to + (size_t)i * p->out_c);
    row += pixels;
    advance_strip(p, &at, pixels, left);
    left = left == pixels ? p->out_w : left - pixels;
  }
}
