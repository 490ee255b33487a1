/* float32 depthwise convolution with fused bias and clamp; see float_depthwise.h. */
#include "conv_params.h"

#define SCALAR float
#define WIDTH 4
#if USE_NEON
#define VEC float32x4_t
#define LOAD(FROM) vld1q_f32(FROM)
#define LOAD_FRESH(FROM, AT) load_fresh(FROM, AT)
#define LOAD_AT(FROM, AT) load_at(FROM, AT)
#define STORE(TO, VALUE) vst1q_f32(TO, VALUE)
#define SPLAT(VALUE) vdupq_n_f32(VALUE)
#define MAX vmaxq_f32
#define MIN vminq_f32
#define FMA vfmaq_f32
#ifdef EDGECTL_IN_ORDER
INLINE float32x4_t load_fresh(const float *from, size_t at) {
  float32x4_t value;
  __asm__ volatile("ldr %q0, [%1, %2]" : "=w"(value) : "r"(from), "r"(at));
  return value;
}

INLINE float32x4_t load_at(const float *from, size_t at) {
  float32x4_t value;
  __asm__("ldr %q0, [%1, %2]" : "=w"(value) : "r"(from), "r"(at));
  return value;
}
#endif
#endif
#include "float_depthwise.h"

KERNEL void edgectl_f32_depthwise(const uint8_t *in, size_t in_at, const uint8_t *blob, size_t blob_at,
                                  uint8_t *out, size_t out_at, size_t group) {
  run_depthwise(in + in_at, blob + blob_at, out + out_at, group);
}
