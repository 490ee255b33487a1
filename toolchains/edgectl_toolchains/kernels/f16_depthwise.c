/* float16 depthwise convolution with fused bias and clamp; see float_depthwise.h. */
#include "conv_params.h"

#if USE_NEON
#define SCALAR float16_t
#else
#define SCALAR _Float16
#endif
#define WIDTH 8
#if USE_NEON
#define VEC float16x8_t
#define LOAD(FROM) vld1q_f16(FROM)
#define STORE(TO, VALUE) vst1q_f16(TO, VALUE)
#define SPLAT(VALUE) vdupq_n_f16(VALUE)
#define MAX vmaxq_f16
#define MIN vminq_f16
#define FMA vfmaq_f16
#endif
#include "float_depthwise.h"

KERNEL void edgectl_f16_depthwise(const uint8_t *in, size_t in_at, const uint8_t *blob, size_t blob_at,
                                  uint8_t *out, size_t out_at, size_t group) {
  run_depthwise(in + in_at, blob + blob_at, out + out_at, group);
}
