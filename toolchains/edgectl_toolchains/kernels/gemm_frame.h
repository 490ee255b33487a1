/* Walks a convolution's output in tiles of a GEMM microkernel.
 *
 * A workgroup owns `rows_per_group` output pixels and `cols_per_group` channels. Within it, a block
 * of pixels is prepared (pointers to its taps, or its im2col rows on the stack), and every panel of
 * weights is run over the whole block while it is in the first-level cache.
 */
#ifndef EDGECTL_GEMM_FRAME_H
#define EDGECTL_GEMM_FRAME_H

#include "conv_params.h"

enum {
  FRAME_POINTERS = 1024,       /* pointers kept on the stack: 8 KiB */
  FRAME_PACKED_BYTES = 16384,  /* im2col rows kept on the stack */
};

/* Computes `times` tiles of `cols` channels, one below the other; per tile the pointers come tap by
 * tap, one per row. */
typedef void tile_function(const struct conv_params *p, const uint8_t *blob, const uint8_t *const *taps,
                           int32_t cols, int32_t first_col, uint8_t *out, int32_t times);
/* The function for tiles of so many rows, in a panel of so many channels. */
typedef tile_function *tile_choice(int32_t rows, int32_t cols);

INLINE void pack_row(const struct conv_params *p, const uint8_t *in, const uint8_t *pad, struct pixel at,
                     int32_t element, uint8_t *to) {
  const int32_t tap_bytes = p->in_c * element;
  uint8_t *const end = to + p->depth * element;
  for (int32_t ky = 0; ky < p->k_h; ++ky) {
    const int32_t y = at.y + ky * p->dilation_h;
    const int inside = (uint32_t)y < (uint32_t)p->in_h && at.x >= 0 &&
                       at.x + p->k_w <= p->in_w && p->dilation_w == 1;
    if (inside) { /* the taps of one kernel row lie side by side */
      copy_bytes(to, tap_pointer(p, in, pad, at, ky, 0, element), tap_bytes * p->k_w);
      to += tap_bytes * p->k_w;
      continue;
    }
    for (int32_t kx = 0; kx < p->k_w; ++kx, to += tap_bytes)
      copy_bytes(to, tap_pointer(p, in, pad, at, ky, kx, element), tap_bytes);
  }
  while (to < end) *to++ = 0;
}

INLINE void run_frame(const uint8_t *in, const uint8_t *blob, uint8_t *out, size_t group,
                      int32_t in_element, int32_t out_element, int32_t tile_rows, int32_t tile_cols,
                      tile_choice *choose) {
  const struct conv_params *p = (const struct conv_params *)blob;
  const uint8_t *pad = blob + p->pad_at;
  const uint8_t *pointers[FRAME_POINTERS];
  uint8_t packed[FRAME_PACKED_BYTES] __attribute__((aligned(64)));

  const int32_t row_group = (int32_t)group / p->col_groups;
  const int32_t col_group = (int32_t)group - row_group * p->col_groups;
  const int32_t first_row = row_group * p->rows_per_group;
  const int32_t end_row = least(first_row + p->rows_per_group, p->rows);
  const int32_t first_col = col_group * p->cols_per_group;
  const int32_t end_col = least(first_col + p->cols_per_group, p->out_c);

  for (int32_t block = first_row; block < end_row; block += p->block_rows) {
    const int32_t rows = least(p->block_rows, end_row - block);
    const int32_t tiles = (rows + tile_rows - 1) / tile_rows;
    /* Tiles of nearly the same height: 49 rows in tiles of 8 are seven of 7, not six and a sliver. */
    const int32_t height = rows / tiles, taller = rows - height * tiles;
    const uint8_t **at = pointers;
    struct pixel pixel = locate(p, block);
    int32_t row = block;
    for (int32_t t = 0; t < tiles; ++t) {
      const int32_t count = height + (t < taller);
      for (int32_t r = 0; r < count; ++r, ++row, advance(p, &pixel)) {
        if (p->mode == CONV_DIRECT) {
          at[r] = in + (size_t)row * p->depth * in_element;
        } else if (p->mode == CONV_TAPS) {
          for (int32_t ky = 0; ky < p->k_h; ++ky)
            point_row(p, in, pad, pixel, ky, p->k_w, in_element, at + ky * p->k_w * count + r, count);
        } else {
          uint8_t *to = packed + (size_t)(row - block) * p->depth * in_element;
          pack_row(p, in, pad, pixel, in_element, to);
          at[r] = to;
        }
      }
      at += (size_t)count * p->taps;
    }
    for (int32_t col = first_col; col < end_col; col += tile_cols) {
      const size_t row_bytes = (size_t)p->out_c * out_element;
      const int32_t cols = least(tile_cols, end_col - col);
      uint8_t *to = out + block * row_bytes + (size_t)col * out_element;
      at = pointers;
      for (int32_t part = 0; part < 2; ++part) { /* the taller tiles, then the others */
        const int32_t count = height + (part == 0), times = part == 0 ? taller : tiles - taller;
        if (times == 0) continue;
        choose(count, cols)(p, blob, at, cols, col, to, times);
        at += (size_t)count * p->taps * times;
        to += count * row_bytes * times;
      }
    }
  }
}

#if !USE_NEON
INLINE void plain_tile(const struct conv_params *p, const uint8_t *blob, const uint8_t *const *taps,
                       int32_t rows, int32_t cols, int32_t first_col, uint8_t *out);
enum { PLAIN_BYTES = sizeof(PLAIN_ELEMENT) };

INLINE void plain_tiles(const struct conv_params *p, const uint8_t *blob, const uint8_t *const *taps,
                        int32_t rows, int32_t cols, int32_t first_col, uint8_t *out, int32_t times) {
  for (; times > 0; --times) {
    plain_tile(p, blob, taps, rows, cols, first_col, out);
    taps += (size_t)rows * p->taps;
    out += (size_t)rows * p->out_c * PLAIN_BYTES;
  }
}

/* The portable tile under the interface of the others. */
#define PLAIN_TILE(ROWS)                                                                           \
  static void plain_##ROWS(const struct conv_params *p, const uint8_t *blob,                       \
                           const uint8_t *const *taps, int32_t cols, int32_t first_col,            \
                           uint8_t *out, int32_t times) {                                          \
    plain_tiles(p, blob, taps, ROWS, cols, first_col, out, times);                                 \
  }
#define PLAIN_TILES                                                                                \
  PLAIN_TILE(1) PLAIN_TILE(2) PLAIN_TILE(3) PLAIN_TILE(4)                                          \
  PLAIN_TILE(5) PLAIN_TILE(6) PLAIN_TILE(7) PLAIN_TILE(8)                                          \
  static tile_function *choose_tile(int32_t rows, int32_t cols) {                                  \
    static tile_function *const tiles[] = {plain_1, plain_2, plain_3, plain_4,                     \
                                           plain_5, plain_6, plain_7, plain_8};                    \
    (void)cols;                                                                                    \
    return tiles[rows - 1];                                                                        \
  }
#endif

#endif
