/* float16 convolution / GEMM: 8 pixels x 16 channels in sixteen registers; see float_gemm.h. */
#include "conv_params.h"

#if USE_NEON
#define SCALAR float16_t
#else
#define SCALAR _Float16
#endif
#define WIDTH 8
#define HALF_PANELS
#if USE_NEON
#define VEC float16x8_t
#define LOAD(FROM) vld1q_f16(FROM)
#define STORE(TO, VALUE) vst1q_f16(TO, VALUE)
#define SPLAT(VALUE) vdupq_n_f16(VALUE)
#define MAX vmaxq_f16
#define MIN vminq_f16
#define FMA_LANE vfmaq_laneq_f16
#define STEPS(STEP) STEP(0) STEP(1) STEP(2) STEP(3) STEP(4) STEP(5) STEP(6) STEP(7)
#define LINE_CHUNK 64
#define WIDEN(TO, X)                                                                               \
  (TO)[0] = vcvt_f32_f16(vget_low_f16(X)), (TO)[1] = vcvt_high_f32_f16(X)
#define WIDEN_ADD(TO, X)                                                                           \
  (TO)[0] = vaddq_f32((TO)[0], vcvt_f32_f16(vget_low_f16(X))),                                     \
  (TO)[1] = vaddq_f32((TO)[1], vcvt_high_f32_f16(X))
#define NARROWED(FROM) vcvt_high_f16_f32(vcvt_f16_f32((FROM)[0]), (FROM)[1])
#endif
#include "float_gemm.h"

KERNEL void edgectl_f16_gemm(const uint8_t *in, size_t in_at, const uint8_t *blob, size_t blob_at,
                             uint8_t *out, size_t out_at, size_t group) {
  run_frame(in + in_at, blob + blob_at, out + out_at, group, sizeof(SCALAR), sizeof(SCALAR), TILE_ROWS,
            TILE_COLS, choose_tile, LINE_COLS, LINE_TILE);
}
