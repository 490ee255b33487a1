/* float32 convolution / GEMM: 8 pixels x 8 channels in sixteen registers; see float_gemm.h. */
#include "conv_params.h"

#define SCALAR float
#define WIDTH 4
#if USE_NEON
#define VEC float32x4_t
#define LOAD(FROM) vld1q_f32(FROM)
#define LOAD_AT(FROM, AT) load_at(FROM, AT)
#define STORE(TO, VALUE) vst1q_f32(TO, VALUE)
#define SPLAT(VALUE) vdupq_n_f32(VALUE)
#define MAX vmaxq_f32
#define MIN vminq_f32
#define FMA_LANE vfmaq_laneq_f32
#define STEPS(STEP) STEP(0) STEP(1) STEP(2) STEP(3)
#ifdef EDGECTL_IN_ORDER
/* The compiler would fold the running offset into a write-back; see float_gemm.h. */
INLINE float32x4_t load_at(const float *from, size_t at) {
  float32x4_t value;
  __asm__("ldr %q0, [%1, %2]" : "=w"(value) : "r"(from), "r"(at));
  return value;
}
#endif
#endif
#include "float_gemm.h"

KERNEL void edgectl_f32_gemm(const uint8_t *in, size_t in_at, const uint8_t *blob, size_t blob_at,
                             uint8_t *out, size_t out_at, size_t group) {
  run_frame(in + in_at, blob + blob_at, out + out_at, group, sizeof(SCALAR), sizeof(SCALAR), TILE_ROWS,
            TILE_COLS, choose_tile, LINE_COLS, LINE_TILE);
}
