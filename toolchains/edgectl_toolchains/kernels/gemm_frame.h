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

/* Computes `rows` x `cols` outputs; pointers come tap by tap, `rows` per tap. */
typedef void tile_function(const struct conv_params *p, const uint8_t *blob, const uint8_t *const *taps,
                           int32_t rows, int32_t cols, int32_t first_col, uint8_t *out);

INLINE void pack_row(const struct conv_params *p, const uint8_t *in, const uint8_t *pad, int32_t row,
                     int32_t element, uint8_t *to) {
  const struct pixel at = locate(p, row);
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
                      tile_function *tile) {
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
    int32_t row = block;
    for (int32_t t = 0; t < tiles; ++t) {
      const int32_t count = height + (t < taller);
      if (p->mode == CONV_TAPS) {
        for (int32_t r = 0; r < count; ++r) {
          const struct pixel pixel = locate(p, row + r);
          int32_t tap = r;
          for (int32_t ky = 0; ky < p->k_h; ++ky)
            for (int32_t kx = 0; kx < p->k_w; ++kx, tap += count)
              at[tap] = tap_pointer(p, in, pad, pixel, ky, kx, in_element);
        }
      } else {
        for (int32_t r = 0; r < count; ++r) {
          if (p->mode == CONV_DIRECT) {
            at[r] = in + (size_t)(row + r) * p->depth * in_element;
          } else {
            uint8_t *to = packed + (size_t)(row + r - block) * p->depth * in_element;
            pack_row(p, in, pad, row + r, in_element, to);
            at[r] = to;
          }
        }
      }
      at += (size_t)count * p->taps;
      row += count;
    }
    for (int32_t col = first_col; col < end_col; col += tile_cols) {
      const size_t row_bytes = (size_t)p->out_c * out_element;
      const int32_t cols = least(tile_cols, end_col - col);
      uint8_t *to = out + block * row_bytes + (size_t)col * out_element;
      at = pointers;
      for (int32_t t = 0; t < tiles; ++t) {
        const int32_t count = height + (t < taller);
        tile(p, blob, at, count, cols, col, to);
        at += count * p->taps;
        to += count * row_bytes;
      }
    }
  }
}

#endif
