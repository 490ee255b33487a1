/* float32 3x3 convolution with stride 1 by Winograd's F(4x4, 3x3), with fused bias and clamp.
 *
 * A tile of 4x4 outputs needs the 6x6 inputs around it. Both are transformed (y = A'[(G g G') (B' d B)]A),
 * and what is left per tile, input and output channel are 36 products instead of 144. The points are
 * 0, +-sqrt(1/2), +-sqrt(2) and infinity, which lose the fewest digits of the usual choices.
 *
 * Up to eight tiles at a time: their inputs are transformed into [36][tiles][in_c] on the stack, then for
 * every eight output channels 36 small matrix products are followed by the inverse transform. Weights
 * come transformed, packed [out_c / 8][36][in_c][8]. in_c is a multiple of 4, out_c of 8.
 *
 * IREE's worker threads have 128 KiB of stack; what is kept here takes 81 of them, so that deep inputs
 * get fewer tiles at a time (`block_rows`).
 */
#include "conv_params.h"

enum { BLOCK = 8, KEPT = 512, SIDE = 4, PATCH = SIDE + 2, POINTS = PATCH * PATCH, PANEL = 8 };

#if USE_NEON
typedef float32x4_t vec;
#define FMA_LANE(SUM, W, X, LANE) vfmaq_laneq_f32(SUM, W, X, LANE)
#define FMA_N(SUM, X, N) vfmaq_f32(SUM, X, vdupq_n_f32(N))
#define SPLAT(N) vdupq_n_f32(N)
#define MAX vmaxq_f32
#define MIN vminq_f32
#else
typedef float vec __attribute__((vector_size(16)));
#define FMA_LANE(SUM, W, X, LANE) ((SUM) + (W) * (X)[LANE])
#define FMA_N(SUM, X, N) ((SUM) + (X) * (N))
#define SPLAT(N) ((vec){(N), (N), (N), (N)})
INLINE vec MAX(vec a, vec b) {
  for (int i = 0; i < 4; ++i) a[i] = a[i] > b[i] ? a[i] : b[i];
  return a;
}
INLINE vec MIN(vec a, vec b) {
  for (int i = 0; i < 4; ++i) a[i] = a[i] < b[i] ? a[i] : b[i];
  return a;
}
#endif

INLINE vec load(const float *from) {
  vec value;
  __builtin_memcpy(&value, from, 16);
  return value;
}
INLINE void store(float *to, vec value) { __builtin_memcpy(to, &value, 16); }

#define ROOT2 1.41421356237309505f
#define HALF_ROOT2 0.70710678118654752f

/* B' times a column of six. */
INLINE void forward(const vec d[PATCH], vec r[PATCH]) {
  const vec even1 = FMA_N(d[4], d[2], -2.0f), odd1 = FMA_N(d[3] * HALF_ROOT2, d[1], -ROOT2);
  const vec even2 = FMA_N(d[4], d[2], -0.5f), odd2 = FMA_N(d[3] * ROOT2, d[1], -HALF_ROOT2);
  r[0] = FMA_N(d[0] + d[4], d[2], -2.5f);
  r[1] = even1 + odd1;
  r[2] = even1 - odd1;
  r[3] = even2 + odd2;
  r[4] = even2 - odd2;
  r[5] = FMA_N(d[1] + d[5], d[3], -2.5f);
}

/* A' times a column of six. */
INLINE void inverse(const vec m[PATCH], vec y[SIDE]) {
  const vec sum1 = m[1] + m[2], less1 = m[1] - m[2], sum2 = m[3] + m[4], less2 = m[3] - m[4];
  y[0] = m[0] + sum1 + sum2;
  y[1] = FMA_N(less1 * HALF_ROOT2, less2, ROOT2);
  y[2] = FMA_N(sum1 * 0.5f, sum2, 2.0f);
  y[3] = FMA_N(FMA_N(m[5], less1, HALF_ROOT2 / 2), less2, 2 * ROOT2);
}

/* One tile's inputs, transformed, to every `point`th place from `to` on. */
HOT void transform_input(const float *const *from, int32_t channels, size_t point, float *to) {
  for (int32_t c = 0; c < channels; c += 4) {
    vec lines[PATCH][PATCH];
    ROLLED for (int i = 0; i < PATCH; ++i) {
      vec d[PATCH];
      UNROLL for (int j = 0; j < PATCH; ++j) d[j] = load(from[i * PATCH + j] + c);
      forward(d, lines[i]);
    }
    float *out = to + c;
    ROLLED for (int j = 0; j < PATCH; ++j, out += point) {
      vec d[PATCH], r[PATCH];
      UNROLL for (int i = 0; i < PATCH; ++i) d[i] = lines[i][j];
      forward(d, r);
      UNROLL for (int i = 0; i < PATCH; ++i) store(out + i * PATCH * point, r[i]);
    }
  }
}

/* 36 products [rows][depth] x [depth][PANEL] to [36][BLOCK][PANEL]; left factors `point` apart. */
INLINE void multiply(const float *v, size_t point, const float *w, int32_t depth, const int32_t rows,
                     float *m) {
  for (int q = 0; q < POINTS; ++q, v += point, m += BLOCK * PANEL) {
    vec sum[BLOCK][2];
    const float *a[BLOCK];
    UNROLL for (int r = 0; r < rows; ++r) {
      a[r] = v + (size_t)r * depth;
      sum[r][0] = sum[r][1] = SPLAT(0.0f);
    }
    int32_t k = depth;
    do {
      vec x[BLOCK], weight[4][2];
      UNROLL for (int r = 0; r < rows; ++r) {
        x[r] = load(a[r]);
        a[r] += 4;
      }
      UNROLL for (int i = 0; i < 4; ++i) {
        weight[i][0] = load(w + PANEL * i);
        weight[i][1] = load(w + PANEL * i + 4);
      }
      w += 4 * PANEL;
#define STEP(LANE)                                                                                 \
      UNROLL for (int r = 0; r < rows; ++r) {                                                      \
        sum[r][0] = FMA_LANE(sum[r][0], weight[LANE][0], x[r], LANE);                              \
        sum[r][1] = FMA_LANE(sum[r][1], weight[LANE][1], x[r], LANE);                              \
      }
      STEP(0) STEP(1) STEP(2) STEP(3)
#undef STEP
      k -= 4;
    } while (k > 0);
    UNROLL for (int r = 0; r < rows; ++r) {
      store(m + r * PANEL, sum[r][0]);
      store(m + r * PANEL + 4, sum[r][1]);
    }
  }
}

#define ROWS(COUNT)                                                                                \
  HOT void multiply_##COUNT(const float *v, size_t point, const float *w, int32_t depth, float *m) { \
    multiply(v, point, w, depth, COUNT, m);                                                        \
  }
ROWS(1) ROWS(2) ROWS(3) ROWS(4) ROWS(5) ROWS(6) ROWS(7) ROWS(8)

typedef void multiply_function(const float *v, size_t point, const float *w, int32_t depth, float *m);

static multiply_function *choose_multiply(int32_t rows) {
  static multiply_function *const all[] = {multiply_1, multiply_2, multiply_3, multiply_4,
                                           multiply_5, multiply_6, multiply_7, multiply_8};
  return all[rows - 1];
}

/* One tile of eight channels: inverse transform, bias, clamp; `high` x `wide` outputs are stored. */
HOT void transform_output(const float *m, const float *bias, float low, float top, float *out,
                          size_t pixel, size_t line, int32_t high, int32_t wide) {
  for (int half = 0; half < 2; ++half, m += 4, bias += 4, out += 4) {
    vec columns[PATCH][SIDE];
    ROLLED for (int j = 0; j < PATCH; ++j) {
      vec d[PATCH];
      UNROLL for (int i = 0; i < PATCH; ++i) d[i] = load(m + (i * PATCH + j) * BLOCK * PANEL);
      inverse(d, columns[j]);
    }
    const vec start = load(bias), least_value = SPLAT(low), greatest = SPLAT(top);
    ROLLED for (int32_t i = 0; i < high; ++i) {
      vec d[PATCH], y[SIDE];
      UNROLL for (int j = 0; j < PATCH; ++j) d[j] = columns[j][i];
      inverse(d, y);
      UNROLL for (int j = 0; j < SIDE; ++j) y[j] = MIN(MAX(y[j] + start, least_value), greatest);
      float *to = out + i * line;
      UNROLL for (int j = 0; j < SIDE; ++j) if (j < wide) store(to + j * pixel, y[j]);
    }
  }
}

/* The upper left output of a tile. */
struct place {
  int32_t image, y, x;
};

INLINE struct place place_of(int32_t tile, int32_t tiles_h, int32_t tiles_w) {
  const int32_t line = tile / tiles_w, image = line / tiles_h;
  const struct place at = {image, (line - image * tiles_h) * SIDE, (tile - line * tiles_w) * SIDE};
  return at;
}

KERNEL void edgectl_f32_winograd(const uint8_t *in, size_t in_at, const uint8_t *blob, size_t blob_at,
                                 uint8_t *out, size_t out_at, size_t group) {
  in += in_at;
  blob += blob_at;
  OWN(p, (const struct conv_params *)blob);
  const uint8_t *const pad = blob + p->pad_at;
  const float *const bias = (const float *)(blob + p->bias_at);
  float *const result = (float *)(out + out_at);
  float v[POINTS * KEPT] __attribute__((aligned(64)));
  float m[POINTS * BLOCK * PANEL] __attribute__((aligned(64)));
  const int32_t tiles_h = (p->out_h + SIDE - 1) / SIDE, tiles_w = (p->out_w + SIDE - 1) / SIDE;
  const int32_t first = (int32_t)group * p->rows_per_group;
  const int32_t end = least(first + p->rows_per_group, p->batch * tiles_h * tiles_w);
  const size_t pixel = p->out_c, line = pixel * p->out_w, point = (size_t)p->block_rows * p->in_c;

  for (int32_t block = first; block < end; block += p->block_rows) {
    const int32_t rows = least(p->block_rows, end - block);
    for (int32_t r = 0; r < rows; ++r) {
      const struct place at = place_of(block + r, tiles_h, tiles_w);
      const struct pixel corner = {at.image, at.y - p->pad_top, at.x - p->pad_left};
      const uint8_t *from[POINTS];
      for (int32_t i = 0; i < PATCH; ++i) point_row(p, in, pad, corner, i, PATCH, 4, from + i * PATCH, 1);
      transform_input((const float *const *)from, p->in_c, point, v + (size_t)r * p->in_c);
    }
    const float *w = (const float *)(blob + p->weights_at);
    for (int32_t col = 0; col < p->out_c; col += PANEL, w += (size_t)POINTS * p->in_c * PANEL) {
      choose_multiply(rows)(v, point, w, p->in_c, m);
      for (int32_t r = 0; r < rows; ++r) {
        const struct place at = place_of(block + r, tiles_h, tiles_w);
        float *const to = result + ((size_t)(at.image * p->out_h + at.y) * p->out_w + at.x) * pixel + col;
        transform_output(m + r * PANEL, bias + col, p->act_min, p->act_max, to, pixel, line,
                         least(SIDE, p->out_h - at.y), least(SIDE, p->out_w - at.x));
      }
    }
  }
}
