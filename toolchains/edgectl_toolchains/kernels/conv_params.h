/* What every convolution-shaped kernel is told: the head of its constant operand.
 *
 * One constant ("blob") per dispatch holds this record, then bias, scales, packed weights and a
 * row of padding, at byte offsets from the blob's start. The host writes it (codegen/kernels/
 * packing.py); field order is the wire format between the two, all fields are 32 bits.
 */
#ifndef EDGECTL_CONV_PARAMS_H
#define EDGECTL_CONV_PARAMS_H

#include <stddef.h>
#include <stdint.h>

enum conv_mode {
  CONV_DIRECT = 0, /* 1x1, stride 1, no padding: the input is the left matrix as it lies */
  CONV_TAPS = 1,   /* k x k through one pointer per tap and pixel (indirection) */
  CONV_PACKED = 2, /* a few rows of im2col on the stack: few channels, odd depths */
};

enum conv_flags {
  /* |accumulator| < 2^22 and |accumulator * scale| < 2^15 - 256 are proven for these weights, so
   * the accumulator may live in a float's mantissa and narrowing needs no saturation. */
  CONV_NARROW = 1,
  CONV_CLAMP = 2, /* float: the result is clamped to act_min .. act_max */
  /* Only |accumulator * scale| < 2^15 - 256 is proven: narrowing needs no saturation. */
  CONV_SMALL = 4,
};

struct conv_params {
  int32_t batch, in_h, in_w, in_c;
  int32_t out_h, out_w, out_c;
  int32_t k_h, k_w, stride_h, stride_w, dilation_h, dilation_w, pad_top, pad_left;
  int32_t mode, flags;
  int32_t depth;          /* elements of one tap (CONV_PACKED: of the whole row), padded */
  int32_t taps;           /* 1 unless CONV_TAPS or depthwise */
  int32_t rows;           /* output pixels: batch * out_h * out_w */
  int32_t rows_per_group; /* output pixels of one workgroup */
  int32_t cols_per_group; /* output channels of one workgroup, whole panels */
  int32_t col_groups;     /* workgroups along the channels; they vary fastest */
  int32_t block_rows;     /* output pixels whose pointers or im2col rows are kept at a time */
  int32_t in_zp, out_zp, q_min, q_max;
  float act_min, act_max;
  int32_t bias_at, scale_at, weights_at, pad_at; /* byte offsets into the blob */
};

/* Accumulators stay in registers only if every loop over them is gone before they are promoted. */
#define UNROLL _Pragma("clang loop unroll(full)")
#define ROLLED _Pragma("clang loop unroll(disable) vectorize(disable)")
/* The value is computed here and not later: keeps products in the order they are written in. */
#define PIN(VALUE) __asm__("" : "+w"(VALUE))
/* The pointer may have changed: what it points to is loaded again instead of kept in registers. */
#define FORGET(POINTER) __asm__("" : "+r"(POINTER))
/* A function of its own: one copy per form, with all registers for its loop. */
#define HOT static __attribute__((noinline, aligned(64)))
#define INLINE static inline __attribute__((always_inline))
/* A copy of the record whose address goes nowhere: unlike the one in memory, no store through a byte
 * pointer can change it, so its fields stay in registers. */
#define OWN(NAME, SHARED) const struct conv_params NAME##_copy = *(SHARED), *const NAME = &NAME##_copy
/* Hidden: a default symbol would be called through a PLT, which IREE's ELF loader does not fill. */
#define KERNEL __attribute__((visibility("hidden")))

#if defined(__aarch64__) && !defined(EDGECTL_PORTABLE)
#define USE_NEON 1
#include <arm_neon.h>
#else
#define USE_NEON 0
#endif

INLINE int32_t least(int32_t a, int32_t b) { return a < b ? a : b; }

INLINE void store_some(uint8_t *to, const uint8_t *from, int32_t count) {
  ROLLED for (int32_t i = 0; i < count; ++i) to[i] = from[i];
}

/* Freestanding objects have no libc; the compiler may still turn plain loops into calls, so these
 * stay volatile-free but small, and are built with -fno-builtin. The last copy may overlap the one
 * before it. */
INLINE void copy_bytes(uint8_t *to, const uint8_t *from, int32_t count) {
  if (count >= 16) {
    ROLLED for (int32_t i = 0; i < count - 16; i += 16) __builtin_memcpy(to + i, from + i, 16);
    __builtin_memcpy(to + count - 16, from + count - 16, 16);
  } else if (count >= 8) {
    __builtin_memcpy(to, from, 8);
    __builtin_memcpy(to + count - 8, from + count - 8, 8);
  } else {
    ROLLED for (int32_t i = 0; i < count; ++i) to[i] = from[i];
  }
}

/* Where output pixel `row` reads its first tap. */
struct pixel {
  int32_t image, y, x;
};

INLINE struct pixel locate(const struct conv_params *p, int32_t row) {
  const int32_t plane = p->out_h * p->out_w;
  struct pixel at;
  at.image = row / plane;
  const int32_t rest = row - at.image * plane;
  const int32_t oy = rest / p->out_w;
  at.y = oy * p->stride_h - p->pad_top;
  at.x = (rest - oy * p->out_w) * p->stride_w - p->pad_left;
  return at;
}

/* The next output pixel, without a division. */
INLINE void advance(const struct conv_params *p, struct pixel *at) {
  at->x += p->stride_w;
  if (at->x <= (p->out_w - 1) * p->stride_w - p->pad_left) return;
  at->x = -p->pad_left;
  at->y += p->stride_h;
  if (at->y <= (p->out_h - 1) * p->stride_h - p->pad_top) return;
  at->y = -p->pad_top;
  ++at->image;
}

/* So many output pixels on along the line, of which `left` remain; then the next line. */
INLINE void advance_strip(const struct conv_params *p, struct pixel *at, int32_t pixels, int32_t left) {
  at->x += (pixels - 1) * p->stride_w;
  if (pixels == left)
    advance(p, at);
  else
    at->x += p->stride_w;
}

/* One row of a kernel: `count` pointers to neighbouring input columns (`dilation_w` apart), `step`
 * entries of `to` between them; the padding row for those outside. */
INLINE void point_row(const struct conv_params *p, const uint8_t *in, const uint8_t *pad, struct pixel at,
                      int32_t ky, int32_t count, int32_t element, const uint8_t **to, int32_t step) {
  const int32_t y = at.y + ky * p->dilation_h;
  if ((uint32_t)y >= (uint32_t)p->in_h) {
    ROLLED for (int32_t j = 0; j < count; ++j, to += step) *to = pad;
    return;
  }
  const ptrdiff_t pixel_bytes = (ptrdiff_t)p->in_c * element;
  const uint8_t *const line = in + (size_t)(at.image * p->in_h + y) * p->in_w * pixel_bytes;
  int32_t x = at.x;
  ptrdiff_t offset = x * pixel_bytes;
  ROLLED for (int32_t j = 0; j < count; ++j, to += step) {
    *to = (uint32_t)x < (uint32_t)p->in_w ? line + offset : pad;
    x += p->dilation_w;
    offset += p->dilation_w * pixel_bytes;
  }
}

/* The tap's pixel of the input, or the padding row when it lies outside. */
INLINE const uint8_t *tap_pointer(const struct conv_params *p, const uint8_t *in, const uint8_t *pad,
                                  struct pixel at, int32_t ky, int32_t kx, int32_t element) {
  const int32_t y = at.y + ky * p->dilation_h, x = at.x + kx * p->dilation_w;
  if ((uint32_t)y >= (uint32_t)p->in_h || (uint32_t)x >= (uint32_t)p->in_w) return pad;
  return in + ((size_t)(at.image * p->in_h + y) * p->in_w + x) * ((size_t)p->in_c * element);
}

#endif
