/* i32 accumulator -> f32 * scale[channel] -> round half to even -> + zero point -> clamp -> i8.
 *
 * Bit-equal to the compiler's path. Where CONV_NARROW holds, the accumulator starts at
 * bias + 0x4B400000: read as a float that is 12582912 + accumulator exactly (spacing 1 in
 * [2^23, 2^24)), so one subtraction converts, and adding 12582912 rounds to the nearest even integer
 * whose low 16 bits then lie in the low half of the word. No conversion instruction is needed; on
 * Cortex-A76 those run at half the rate of an addition.
 */
#ifndef EDGECTL_REQUANTIZE_H
#define EDGECTL_REQUANTIZE_H

#include "conv_params.h"

#define ROUNDING_MAGIC 12582912.0f
#define ROUNDING_MAGIC_BITS 0x4B400000

#if USE_NEON
INLINE int16x8_t requantize8(int32x4_t a, int32x4_t b, float32x4_t scale_a, float32x4_t scale_b,
                             int16x8_t zp, int narrow) {
  if (narrow) {
    const float32x4_t magic = vdupq_n_f32(ROUNDING_MAGIC);
    float32x4_t x = vmulq_f32(vsubq_f32(vreinterpretq_f32_s32(a), magic), scale_a);
    float32x4_t y = vmulq_f32(vsubq_f32(vreinterpretq_f32_s32(b), magic), scale_b);
    x = vaddq_f32(x, magic);
    y = vaddq_f32(y, magic);
    return vaddq_s16(vuzp1q_s16(vreinterpretq_s16_f32(x), vreinterpretq_s16_f32(y)), zp);
  }
  const int32x4_t x = vcvtnq_s32_f32(vmulq_f32(vcvtq_f32_s32(a), scale_a));
  const int32x4_t y = vcvtnq_s32_f32(vmulq_f32(vcvtq_f32_s32(b), scale_b));
  return vqaddq_s16(vqmovn_high_s32(vqmovn_s32(x), y), zp);
}

INLINE int8x16_t clamp16(int16x8_t first, int16x8_t second, int8x16_t low, int8x16_t high) {
  return vminq_s8(vmaxq_s8(vqmovn_high_s16(vqmovn_s16(first), second), low), high);
}

/* Requantizes a tile of up to 4 x 16 accumulators. Written step by step over
 * all rows, which is the order an in-order core wants; the others reorder it themselves. */
INLINE void requantize_tile(const struct conv_params *p, int32x4_t sum[][4], int32_t rows, int32_t groups,
                            const float *scale, int8x16_t *done, int narrow) {
  const int16x8_t zp = vdupq_n_s16((int16_t)p->out_zp);
  const int8x16_t low = vdupq_n_s8((int8_t)p->q_min), high = vdupq_n_s8((int8_t)p->q_max);
  float32x4_t scales[4], real[4][4];
  int16x8_t half[4][2];
  UNROLL for (int g = 0; g < 2 * groups; ++g) scales[g] = vld1q_f32(scale + 4 * g);
#define EACH UNROLL for (int r = 0; r < rows; ++r) UNROLL for (int g = 0; g < 2 * groups; ++g)
#define HALVES UNROLL for (int r = 0; r < rows; ++r) UNROLL for (int g = 0; g < groups; ++g)
  if (narrow) {
    const float32x4_t magic = vdupq_n_f32(ROUNDING_MAGIC);
    EACH real[r][g] = vsubq_f32(vreinterpretq_f32_s32(sum[r][g]), magic);
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
  if (__builtin_expect(cols == 8 * groups, 1)) {
    if (__builtin_expect(p->flags & CONV_NARROW, 1)) {
      requantize_tile(p, sum, rows, groups, scale, done, 1);
      store_tile(out, stride, done, rows, groups);
    } else {
      requantize_tile(p, sum, rows, groups, scale, done, 0);
      store_tile(out, stride, done, rows, groups);
    }
    return;
  }
  if (p->flags & CONV_NARROW)
    requantize_tile(p, sum, rows, groups, scale, done, 1);
  else
    requantize_tile(p, sum, rows, groups, scale, done, 0);
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
