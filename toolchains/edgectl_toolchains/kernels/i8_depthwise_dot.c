/* int8 depthwise convolution for cores with SDOT (Cortex-A76): 3x3 and 5x5, strides 1 and 2.
 *
 * Four rows of one input column, eight channels each, are interleaved so that a channel's four values
 * lie in one 32-bit word; an SDOT then multiplies them with the four weights of a kernel column. The
 * interleaving is shared by all output pixels of a strip whose windows hold that column. A 3x3 kernel
 * fills the fourth place with a zero weight, a 5x5 kernel adds its fifth row by widening products.
 *
 * Weights per eight channels: [k][8][4] for the columns, then for 5x5 [5][8] for the fifth row.
 * Everything else (sizes, dilation, channels that are no multiple of eight) goes to i8_depthwise.c.
 */
#include "requantize.h"

enum { STRIP = 4, LANES = 8, MAX_COLUMNS = 5 * (3 * 2 + 5) };

#if USE_NEON
INLINE int8x16_t widened(const uint8_t *from) {
  return vcombine_s8(vld1_s8((const int8_t *)from), vdup_n_s8(0));
}

INLINE void strip(const struct conv_params *p, const uint8_t *blob, const uint8_t *const *table,
                  const int32_t size, const int32_t stride, const int32_t pixels, uint8_t *out, const int form) {
  const int8_t *w = (const int8_t *)(blob + p->weights_at);
  const int32_t *bias = (const int32_t *)(blob + p->bias_at);
  const float *scale = (const float *)(blob + p->scale_at);
  const int16x8_t zp = vdupq_n_s16((int16_t)p->out_zp);
  const int8x8_t low = vdup_n_s8((int8_t)p->q_min), high = vdup_n_s8((int8_t)p->q_max);
  const int32_t columns = (pixels - 1) * stride + size;
  const int32_t weight_bytes = size * 32 + (size == 5 ? 40 : 0);
  for (int32_t c = 0; c + LANES <= p->out_c; c += LANES, w += weight_bytes) {
    int32x4_t sum[STRIP][2];
    UNROLL for (int i = 0; i < pixels; ++i) {
      sum[i][0] = vld1q_s32(bias + c);
      sum[i][1] = vld1q_s32(bias + c + 4);
    }
    UNROLL for (int j = 0; j < columns; ++j) {
      /* ZIP of whole registers whose upper halves are not looked at: one instruction per pair. */
      const int8x16_t a = widened(table[j] + c), b = widened(table[columns + j] + c);
      const int8x16_t d = widened(table[2 * columns + j] + c);
      const int8x16_t e = size == 5 ? widened(table[3 * columns + j] + c) : d;
      const int16x8_t first = vreinterpretq_s16_s8(vzip1q_s8(a, b));
      const int16x8_t second = vreinterpretq_s16_s8(vzip1q_s8(d, e));
      const int8x16_t x0 = vreinterpretq_s8_s16(vzip1q_s16(first, second));
      const int8x16_t x1 = vreinterpretq_s8_s16(vzip2q_s16(first, second));
      UNROLL for (int i = 0; i < pixels; ++i) {
        const int kx = j - i * stride;
        if (kx >= 0 && kx < size) {
          sum[i][0] = vdotq_s32(sum[i][0], x0, vld1q_s8(w + 32 * kx));
          sum[i][1] = vdotq_s32(sum[i][1], x1, vld1q_s8(w + 32 * kx + 16));
        }
      }
    }
    if (size == 5) {
      UNROLL for (int i = 0; i < pixels; ++i) {
        const uint8_t *const *row = table + 4 * columns + i * stride;
        const int8_t *v = w + size * 32;
#define FIFTH(KX) vld1_s8((const int8_t *)row[KX] + c), vld1_s8(v + 8 * (KX))
        const int16x8_t first = vmlal_s8(vmull_s8(FIFTH(0)), FIFTH(1));
        const int16x8_t second = vmlal_s8(vmull_s8(FIFTH(2)), FIFTH(3));
        const int16x8_t third = vmull_s8(FIFTH(4));
#undef FIFTH
        sum[i][0] = vaddw_s16(sum[i][0], vget_low_s16(first));
        sum[i][1] = vaddw_high_s16(sum[i][1], first);
        sum[i][0] = vaddw_s16(sum[i][0], vget_low_s16(second));
        sum[i][1] = vaddw_high_s16(sum[i][1], second);
        sum[i][0] = vaddw_s16(sum[i][0], vget_low_s16(third));
        sum[i][1] = vaddw_high_s16(sum[i][1], third);
      }
    }
    const float32x4_t scale0 = vld1q_f32(scale + c), scale1 = vld1q_f32(scale + c + 4);
    UNROLL for (int i = 0; i < pixels; ++i) {
      const int8x8_t all =
          vmin_s8(vmax_s8(vqmovn_s16(requantize8(sum[i][0], sum[i][1], scale0, scale1, zp, form)), low), high);
      vst1_s8((int8_t *)out + (size_t)i * p->out_c + c, all);
    }
  }
}

#define FORM(SIZE, STRIDE, PIXELS)                                                                 \
  HOT void strip_##SIZE##_##STRIDE##_##PIXELS(                        \
      const struct conv_params *p, const uint8_t *blob, const uint8_t *const *table, uint8_t *to) { \
    if (p->flags & CONV_NARROW)                                                                    \
      strip(p, blob, table, SIZE, STRIDE, PIXELS, to, NARROW);                                     \
    else                                                                                           \
      strip(p, blob, table, SIZE, STRIDE, PIXELS, to, SATURATING);                                 \
  }
#define FORMS(SIZE, STRIDE)                                                                        \
  FORM(SIZE, STRIDE, 1) FORM(SIZE, STRIDE, 2) FORM(SIZE, STRIDE, 3) FORM(SIZE, STRIDE, 4)
FORMS(3, 1)
FORMS(3, 2)
FORMS(5, 1)
FORMS(5, 2)

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
#else
static void run_strip(const struct conv_params *p, const uint8_t *blob, const uint8_t *const *table,
                      int32_t pixels, uint8_t *to) {
  const int32_t size = p->k_w, columns = (pixels - 1) * p->stride_w + size;
  const int32_t weight_bytes = size * 32 + (size == 5 ? 40 : 0);
  const int32_t *bias = (const int32_t *)(blob + p->bias_at);
  const float *scale = (const float *)(blob + p->scale_at);
  for (int32_t i = 0; i < pixels; ++i)
    for (int32_t c = 0; c < p->out_c; ++c) {
      const int8_t *w = (const int8_t *)(blob + p->weights_at) + (size_t)(c / LANES) * weight_bytes;
      int32_t sum = bias[c];
      for (int32_t ky = 0; ky < size; ++ky)
        for (int32_t kx = 0; kx < size; ++kx) {
          const int8_t weight =
              ky < 4 ? w[kx * 32 + c % LANES * 4 + ky] : w[size * 32 + kx * LANES + c % LANES];
          sum += ((const int8_t *)table[ky * columns + i * p->stride_w + kx])[c] * weight;
        }
      to[(size_t)i * p->out_c + c] = (uint8_t)requantize1(sum, scale[c], p);
    }
}
#endif

KERNEL void edgectl_i8_depthwise_dot(const uint8_t *in, size_t in_at, const uint8_t *blob, size_t blob_at,
                                     uint8_t *out, size_t out_at, size_t group) {
  in += in_at;
  blob += blob_at;
  const struct conv_params *const shared = (const struct conv_params *)blob;
  OWN(p, shared);
  const uint8_t *pad = blob + p->pad_at, *table[MAX_COLUMNS];
  const int32_t end = least(((int32_t)group + 1) * p->rows_per_group, p->rows);
  int32_t row = (int32_t)group * p->rows_per_group;
  struct pixel at = locate(p, row);
  int32_t left = p->out_w - row % p->out_w; /* pixels of this line still to come */
  while (row < end) {
    const int32_t pixels = least(least(STRIP, left), end - row);
    const int32_t columns = (pixels - 1) * p->stride_w + p->k_w;
    for (int32_t ky = 0; ky < p->k_h; ++ky)
      point_row(p, in, pad, at, ky, columns, 1, table + ky * columns, 1);
    run_strip(shared, blob, table, pixels, out + out_at + (size_t)row * p->out_c);
    row += pixels;
    advance_strip(p, &at, pixels, left);
    left = left == pixels ? p->out_w : left - pixels;
  }
}
