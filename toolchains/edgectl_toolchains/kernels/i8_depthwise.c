/* int8 depthwise convolution, channels last, any stride; 3x3 and 5x5 unrolled, other sizes by a loop.
 *
 * Sixteen channels at a time. Products of two taps are summed in 16 bits (weights are never -128)
 * and widened into 32 bits. Weights are packed [channels / 16][taps][16]. An output pixel whose taps
 * all lie inside the row reads through one pointer per kernel row (rows outside point at a row of
 * padding); at the left and right edge it reads through one pointer per tap.
 */
#include "requantize.h"

enum { MAX_TAPS = 121, LANES = 16 };

#if USE_NEON
typedef struct {
  int32x4_t lane[4];
} sums;

INLINE void one_tap(sums *s, int8x16_t x, int8x16_t w) {
  const int16x8_t low = vmull_s8(vget_low_s8(x), vget_low_s8(w)), high = vmull_high_s8(x, w);
  s->lane[0] = vaddw_s16(s->lane[0], vget_low_s16(low));
  s->lane[1] = vaddw_high_s16(s->lane[1], low);
  s->lane[2] = vaddw_s16(s->lane[2], vget_low_s16(high));
  s->lane[3] = vaddw_high_s16(s->lane[3], high);
}

INLINE void two_taps(sums *s, int8x16_t x, int8x16_t w, int8x16_t y, int8x16_t v) {
  int16x8_t low = vmull_s8(vget_low_s8(x), vget_low_s8(w)), high = vmull_high_s8(x, w);
  low = vmlal_s8(low, vget_low_s8(y), vget_low_s8(v));
  high = vmlal_high_s8(high, y, v);
  s->lane[0] = vaddw_s16(s->lane[0], vget_low_s16(low));
  s->lane[1] = vaddw_high_s16(s->lane[1], low);
  s->lane[2] = vaddw_s16(s->lane[2], vget_low_s16(high));
  s->lane[3] = vaddw_high_s16(s->lane[3], high);
}

INLINE void finish_sums(const struct conv_params *p, const sums *s, const float *scale, int32_t count,
                        uint8_t *out, int narrow) {
  const int16x8_t zp = vdupq_n_s16((int16_t)p->out_zp);
  const int8x16_t low = vdupq_n_s8((int8_t)p->q_min), high = vdupq_n_s8((int8_t)p->q_max);
  const int16x8_t first = requantize8(s->lane[0], s->lane[1], vld1q_f32(scale), vld1q_f32(scale + 4), zp, narrow);
  const int16x8_t second =
      requantize8(s->lane[2], s->lane[3], vld1q_f32(scale + 8), vld1q_f32(scale + 12), zp, narrow);
  const uint8x16_t all = vreinterpretq_u8_s8(clamp16(first, second, low, high));
  if (__builtin_expect(count >= LANES, 1)) {
    vst1q_u8(out, all);
  } else {
    uint8_t spill[LANES];
    vst1q_u8(spill, all);
    store_some(out, spill, count);
  }
}

/* Sixteen lanes of a tap; the last channels of an odd count are copied, never read past the end. */
INLINE int8x16_t lanes(const uint8_t *from, int32_t count) {
  if (__builtin_expect(count >= LANES, 1)) return vreinterpretq_s8_u8(vld1q_u8(from));
  uint8_t some[LANES] = {0};
  store_some(some, from, count);
  return vreinterpretq_s8_u8(vld1q_u8(some));
}

#define TAP_INSIDE(T) vreinterpretq_s8_u8(vld1q_u8(row[(T) / size] + at[(T) % size]))
#define TAP_EDGE(T) vreinterpretq_s8_u8(vld1q_u8(tap[T] + c))

/* All taps inside the row: `size` row pointers and `size` offsets stay in registers. */
INLINE void inside(const struct conv_params *p, const uint8_t *blob, const uint8_t *const *rows,
                   int32_t step, const int32_t size, uint8_t *out, int narrow) {
  const int8_t *w = (const int8_t *)(blob + p->weights_at);
  const int32_t *bias = (const int32_t *)(blob + p->bias_at);
  const float *scale = (const float *)(blob + p->scale_at);
  const uint8_t *row[5];
  size_t at[5];
  UNROLL for (int i = 0; i < size; ++i) {
    row[i] = rows[i];
    at[i] = (size_t)i * step;
  }
  const int32_t taps = size * size;
  for (int32_t c = 0; c + LANES <= p->out_c; c += LANES) {
    sums s;
    UNROLL for (int i = 0; i < 4; ++i) s.lane[i] = vld1q_s32(bias + 4 * i);
    UNROLL for (int t = 0; t + 1 < taps; t += 2)
        two_taps(&s, TAP_INSIDE(t), vld1q_s8(w + 16 * t), TAP_INSIDE(t + 1), vld1q_s8(w + 16 * t + 16));
    one_tap(&s, TAP_INSIDE(taps - 1), vld1q_s8(w + 16 * (taps - 1)));
    UNROLL for (int i = 0; i < size; ++i) row[i] += LANES;
    w += LANES * taps;
    finish_sums(p, &s, scale, LANES, out, narrow);
    out += LANES;
    bias += LANES;
    scale += LANES;
  }
}

INLINE void edge_unrolled(const struct conv_params *p, const uint8_t *blob, const uint8_t *const *tap,
                          const int32_t taps, uint8_t *out, int narrow) {
  const int8_t *w = (const int8_t *)(blob + p->weights_at);
  const int32_t *bias = (const int32_t *)(blob + p->bias_at);
  const float *scale = (const float *)(blob + p->scale_at);
  for (int32_t c = 0; c + LANES <= p->out_c; c += LANES, w += LANES * taps) {
    sums s;
    UNROLL for (int i = 0; i < 4; ++i) s.lane[i] = vld1q_s32(bias + c + 4 * i);
    UNROLL for (int t = 0; t + 1 < taps; t += 2)
        two_taps(&s, TAP_EDGE(t), vld1q_s8(w + 16 * t), TAP_EDGE(t + 1), vld1q_s8(w + 16 * t + 16));
    one_tap(&s, TAP_EDGE(taps - 1), vld1q_s8(w + 16 * (taps - 1)));
    finish_sums(p, &s, scale + c, LANES, out + c, narrow);
  }
}

/* Any number of taps, and the channels that do not fill sixteen lanes. */
INLINE void edge_looped(const struct conv_params *p, const uint8_t *blob, const uint8_t *const *tap,
                        int32_t first, uint8_t *out) {
  const int8_t *w = (const int8_t *)(blob + p->weights_at) + (size_t)first * p->taps;
  const int32_t *bias = (const int32_t *)(blob + p->bias_at);
  const float *scale = (const float *)(blob + p->scale_at);
  for (int32_t c = first; c < p->out_c; c += LANES) {
    const int32_t count = least(LANES, p->out_c - c);
    sums s;
    UNROLL for (int i = 0; i < 4; ++i) s.lane[i] = vld1q_s32(bias + c + 4 * i);
    for (int32_t t = 0; t < p->taps; ++t, w += LANES) one_tap(&s, lanes(tap[t] + c, count), vld1q_s8(w));
    if (p->flags & CONV_NARROW)
      finish_sums(p, &s, scale + c, count, out + c, 1);
    else
      finish_sums(p, &s, scale + c, count, out + c, 0);
  }
}

#define FORM(NAME, CALL)                                                                           \
  HOT void NAME(const struct conv_params *p, const uint8_t *blob,     \
                                             const uint8_t *const *pointers, int32_t step,         \
                                             uint8_t *out) {                                       \
    (void)step;                                                                                    \
    CALL;                                                                                          \
  }
FORM(inside_3x3, inside(p, blob, pointers, step, 3, out, 0))
FORM(inside_5x5, inside(p, blob, pointers, step, 5, out, 0))
FORM(inside_3x3_narrow, inside(p, blob, pointers, step, 3, out, 1))
FORM(inside_5x5_narrow, inside(p, blob, pointers, step, 5, out, 1))
FORM(edge_3x3, edge_unrolled(p, blob, pointers, 9, out, 0))
FORM(edge_5x5, edge_unrolled(p, blob, pointers, 25, out, 0))
FORM(edge_3x3_narrow, edge_unrolled(p, blob, pointers, 9, out, 1))
FORM(edge_5x5_narrow, edge_unrolled(p, blob, pointers, 25, out, 1))
FORM(edge_any, edge_looped(p, blob, pointers, 0, out))
FORM(edge_rest, edge_looped(p, blob, pointers, p->out_c & -LANES, out))

static void pixel_inside(const struct conv_params *p, const uint8_t *blob, const uint8_t *const *rows,
                         uint8_t *out) {
  const int32_t step = p->dilation_w * p->in_c;
  if (p->k_w == 3)
    (p->flags & CONV_NARROW ? inside_3x3_narrow : inside_3x3)(p, blob, rows, step, out);
  else
    (p->flags & CONV_NARROW ? inside_5x5_narrow : inside_5x5)(p, blob, rows, step, out);
}

static void pixel_at_edge(const struct conv_params *p, const uint8_t *blob, const uint8_t *const *tap,
                          uint8_t *out) {
  if (p->taps == 9)
    (p->flags & CONV_NARROW ? edge_3x3_narrow : edge_3x3)(p, blob, tap, 0, out);
  else if (p->taps == 25)
    (p->flags & CONV_NARROW ? edge_5x5_narrow : edge_5x5)(p, blob, tap, 0, out);
  else {
    edge_any(p, blob, tap, 0, out);
    return;
  }
  if (p->out_c % LANES) edge_rest(p, blob, tap, 0, out);
}
#else
static void pixel_at_edge(const struct conv_params *p, const uint8_t *blob, const uint8_t *const *tap,
                          uint8_t *out) {
  const int8_t *w = (const int8_t *)(blob + p->weights_at);
  const int32_t *bias = (const int32_t *)(blob + p->bias_at);
  const float *scale = (const float *)(blob + p->scale_at);
  for (int32_t c = 0; c < p->out_c; ++c) {
    int32_t sum = bias[c];
    for (int32_t t = 0; t < p->taps; ++t)
      sum += (int32_t)((const int8_t *)tap[t])[c] *
             w[(size_t)(c / LANES) * p->taps * LANES + t * LANES + c % LANES];
    out[c] = (uint8_t)requantize1(sum, scale[c], p);
  }
}
#endif

KERNEL void edgectl_i8_depthwise(const uint8_t *in, size_t in_at, const uint8_t *blob, size_t blob_at,
                                 uint8_t *out, size_t out_at, size_t group) {
  in += in_at;
  blob += blob_at;
  const struct conv_params *p = (const struct conv_params *)blob;
  const uint8_t *pad = blob + p->pad_at, *pointers[MAX_TAPS];
  const int32_t first = (int32_t)group * p->rows_per_group;
  const int32_t end = least(first + p->rows_per_group, p->rows);
  out += out_at + (size_t)first * p->out_c;
#if USE_NEON
  const int square = p->k_h == p->k_w && (p->k_w == 3 || p->k_w == 5) && p->out_c % LANES == 0;
  const int32_t reach = (p->k_w - 1) * p->dilation_w;
#endif
  struct pixel at = locate(p, first);
  for (int32_t row = first; row < end; ++row, out += p->out_c) {
#if USE_NEON
    if (square && at.x >= 0 && at.x + reach < p->in_w) {
      for (int32_t ky = 0; ky < p->k_h; ++ky) pointers[ky] = tap_pointer(p, in, pad, at, ky, 0, 1);
      pixel_inside(p, blob, pointers, out);
    } else
#endif
    {
      for (int32_t ky = 0; ky < p->k_h; ++ky)
        point_row(p, in, pad, at, ky, p->k_w, 1, pointers + ky * p->k_w, 1);
      pixel_at_edge(p, blob, pointers, out);
    }
    advance(p, &at);
  }
}
