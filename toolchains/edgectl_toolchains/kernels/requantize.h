/* i32 accumulator -> f32 * scale[channel] -> round half to even -> + zero point -> clamp -> i8.
 *
 * Bit-equal to the compiler's path. Where CONV_NARROW holds, the accumulator starts at
 * bias + 0x4B400000: read as a float that is 12582912 + accumulator exactly (spacing 1 in
 * [2^23, 2^24)), so one subtraction converts, and adding 12582912 rounds to the nearest even integer
 * whose low 16 bits then lie in the low half of the word. No conversion instruction is needed; on
 * Cortex-A76 those run at half the rate of an addition. Where only CONV_SMALL holds, the first half is
 * a conversion and the second half the same.
 */
#ifndef EDGECTL_REQUANTIZE_H
#define EDGECTL_REQUANTIZE_H

#include "conv_params.h"

#define ROUNDING_MAGIC 12582912.0f
#define ROUNDING_MAGIC_BITS 0x4B400000

/* The three forms. */
enum { SATURATING, SMALL, NARROW };
#define FORM_OF(FLAGS) ((FLAGS) & CONV_NARROW ? NARROW : (FLAGS) & CONV_SMALL ? SMALL : SATURATING)

#if USE_NEON
INLINE int16x8_t requantize8(int32x4_t a, int32x4_t b, float32x4_t scale_a, float32x4_t scale_b,
                             int16x8_t zp, const int form) {
  if (form != SATURATING) {
    const float32x4_t magic = vdupq_n_f32(ROUNDING_MAGIC);
    float32x4_t x = form == NARROW ? vsubq_f32(vreinterpretq_f32_s32(a), magic) : vcvtq_f32_s32(a);
    float32x4_t y = form == NARROW ? vsubq_f32(vreinterpretq_f32_s32(b), magic) : vcvtq_f32_s32(b);
    x = vmulq_f32(x, scale_a);
    y = vmulq_f32(y, scale_b);
    x = vaddq_f32(x, magic);
    y = vaddq_f32(y, magic);
    return vaddq_s16(vuzp1q_s16(vreinterpretq_s16_f32(x), vreinterpretq_s16_f32(y)), zp);
  }
  const int32x4_t x = vcvtnq_s32_f32(vmulq_f32(vcvtq_f32_s32(a), scale_a));
  const int32x4_t y = vcvtnq_s32_f32(vmulq_f32(vcvtq_f32_s32(b), scale_b));
  return vqaddq_s16(vqmovn_high_s32(vqmovn_s32(x), y), zp);
}

/* What follows the scaling, a copy in every lane; before a loop, because its stores might change it. */
struct limits {
  int16x8_t zp;
  int8x16_t low, high;
};

INLINE struct limits read_limits(const struct conv_params *p) {
  const struct limits bounds = {vdupq_n_s16((int16_t)p->out_zp), vdupq_n_s8((int8_t)p->q_min),
                                vdupq_n_s8((int8_t)p->q_max)};
  return bounds;
}

/* Requantizes a tile of up to 4 x 16 accumulators. Written step by step over
 * all rows, which is the order an in-order core wants; the others reorder it themselves. */
INLINE void requantize_tile(struct limits bounds, int32x4_t sum[][4], int32_t rows, int32_t groups,
                            const float *scale, int8x16_t *done, const int form) {
  const int16x8_t zp = bounds.zp;
  const int8x16_t low = bounds.low, high = bounds.high;
  float32x4_t scales[4], real[4][4];
  int16x8_t half[4][2];
  UNROLL for (int g = 0; g < 2 * groups; ++g) scales[g] = vld1q_f32(scale + 4 * g);
#define EACH UNROLL for (int r = 0; r < rows; ++r) UNROLL for (int g = 0; g < 2 * groups; ++g)
#define HALVES UNROLL for (int r = 0; r < rows; ++r) UNROLL for (int g = 0; g < groups; ++g)
  if (form != SATURATING) {
    const float32x4_t magic = vdupq_n_f32(ROUNDING_MAGIC);
    EACH real[r][g] =
        form == NARROW ? vsubq_f32(vreinterpretq_f32_s32(sum[r][g]), magic) : vcvtq_f32_s32(sum[r][g]);
    EACH real[r][g] = vmulq_f32(real[r][g], scales[g]);
    EACH real[r][g] = vaddq_f32(real[r][g], magic);
    HALVES half[r][g] =
        vuzp1q_s16(vreinterpretq_s16_f32(real[r][2 * g]), vreinterpretq_s16_f32(real[r][2 * g + 1]));
    HALVES half[r][g] = vaddq_s16(half[r][g], zp);
  } else {
    int32x4_t whole[4][4];
    int16x4_t quarter[4][4];
    EACH real[r][g] = vcvtq_f32_s32(sum[r][g]);
    EACH real[r][g] = vmulq_f32(real[r][g], scales[g]);
    EACH whole[r][g] = vcvtnq_s32_f32(real[r][g]);
    HALVES quarter[r][g] = vqmovn_s32(whole[r][2 * g]);
    HALVES half[r][g] = vqmovn_high_s32(quarter[r][g], whole[r][2 * g + 1]);
    HALVES half[r][g] = vqaddq_s16(half[r][g], zp);
  }
#undef EACH
#undef HALVES
  UNROLL for (int r = 0; r < rows; ++r) {
    const int8x8_t first = vqmovn_s16(half[r][0]);
    done[r] = groups == 2 ? vqmovn_high_s16(first, half[r][1]) : vcombine_s8(first, first);
  }
  UNROLL for (int r = 0; r < rows; ++r) done[r] = vmaxq_s8(done[r], low);
  UNROLL for (int r = 0; r < rows; ++r) done[r] = vminq_s8(done[r], high);
}

INLINE void store_tile(uint8_t *to, size_t stride, const int8x16_t *done, int32_t rows, int32_t groups) {
  UNROLL for (int r = 0; r < rows; ++r, to += stride) {
    if (groups == 2)
      vst1q_u8(to, vreinterpretq_u8_s8(done[r]));
    else
      vst1_u8(to, vget_low_u8(vreinterpretq_u8_s8(done[r])));
  }
}

/* Arithmetic and stores in one straight run, for either form of the arithmetic. */
INLINE void finish(const struct conv_params *p, int32x4_t sum[][4], int32_t rows, int32_t groups,
                   int32_t cols, const float *scale, uint8_t *out) {
  const size_t stride = p->out_c;
  int8x16_t done[4];
  const int form = FORM_OF(p->flags);
  const struct limits bounds = read_limits(p);
  if (__builtin_expect(cols == 8 * groups, 1)) {
    if (form == NARROW) {
      requantize_tile(bounds, sum, rows, groups, scale, done, NARROW);
      store_tile(out, stride, done, rows, groups);
    } else if (form == SMALL) {
      requantize_tile(bounds, sum, rows, groups, scale, done, SMALL);
      store_tile(out, stride, done, rows, groups);
    } else {
      requantize_tile(bounds, sum, rows, groups, scale, done, SATURATING);
      store_tile(out, stride, done, rows, groups);
    }
    return;
  }
  if (form == NARROW)
    requantize_tile(bounds, sum, rows, groups, scale, done, NARROW);
  else
    requantize_tile(bounds, sum, rows, groups, scale, done, SATURATING);
  UNROLL for (int r = 0; r < rows; ++r, out += stride) {
    uint8_t spill[16];
    vst1q_u8(spill, vreinterpretq_u8_s8(done[r]));
    store_some(out, spill, cols);
  }
}
#else
/* The same in plain C; `accumulator` as the NEON form holds it (with the magic where narrow). */
INLINE int8_t requantize1(int32_t accumulator, float scale, const struct conv_params *p) {
  if (p->flags & CONV_NARROW) accumulator -= ROUNDING_MAGIC_BITS;
  float x = (float)accumulator * scale;
  if (x > 1048576.0f) x = 1048576.0f;
  if (x < -1048576.0f) x = -1048576.0f;
  volatile float rounded = x + ROUNDING_MAGIC;
  int32_t value = (int32_t)(rounded - ROUNDING_MAGIC) + p->out_zp;
  value = value < p->q_min ? p->q_min : value;
  return (int8_t)(value > p->q_max ? p->q_max : value);
}
#endif

#endif
