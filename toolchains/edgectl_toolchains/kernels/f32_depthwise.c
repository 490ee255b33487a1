/* float32 depthwise convolution with fused bias and clamp; see float_depthwise.h. */
#include "conv_params.h"

#define SCALAR float
#define WIDTH 4
#if USE_NEON
#define VEC float32x4_t
#define LOAD(FROM) vld1q_f32(FROM)
#define STORE(TO, VALUE) vst1q_f32(TO, VALUE)
#define SPLAT(VALUE) vdupq_n_f32(VALUE)
#define MAX vmaxq_f32
#define MIN vminq_f32
#define FMA vfmaq_f32
#endif
#include "float_depthwise.h"

KERNEL void edgectl_f32_depthwise(const uint8_t *in, size_t in_at, const uint8_t *blob, size_t blob_at,
                                  uint8_t *out, size_t out_at, size_t group) {
  run_depthwise(in + in_at, blob + blob_at, out + out_at, group);
}
