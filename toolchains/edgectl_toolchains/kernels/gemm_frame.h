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
  const int32_t tap_bytes = p->in_c * element, run = tap_bytes * p->k_w;
  uint8_t *const end = to + p->depth * element;
  /* What the depth is padded with: less than one step, at most 16 bytes, overwritten where too long. */
  const int32_t rest = (int32_t)(end - to) - run * p->k_h;
  if (rest > 0) {
    __builtin_memset(end - 8, 0, 8);
    if (rest > 8) __builtin_memset(end - 16, 0, 8);
  }
  const int32_t reach = (p->k_h - 1) * p->dilation_h;
  if (p->dilation_w == 1 && at.x >= 0 && at.x + p->k_w <= p->in_w && at.y >= 0 && at.y + reach < p->in_h) {
    /* The taps of one kernel row lie side by side. */
    const uint8_t *from = tap_pointer(p, in, pad, at, 0, 0, element);
    const size_t line = (size_t)p->dilation_h * p->in_w * tap_bytes;
    ROLLED for (int32_t ky = 0; ky < p->k_h; ++ky, from += line, to += run) copy_bytes(to, from, run);
    return;
  }
  for (int32_t ky = 0; ky < p->k_h; ++ky)
    for (int32_t kx = 0; kx < p->k_w; ++kx, to += tap_bytes)
      copy_bytes(to, tap_pointer(p, in, pad, at, ky, kx, element), tap_bytes);
}

/* `line_tile` computes `line_cols` channels of a single row at a time, several panels side by side:
 * one row of a panel alone has too few sums to hide a multiply-add's latency. */
INLINE void run_frame(const uint8_t *in, const uint8_t *blob, uint8_t *out, size_t group,
                      int32_t in_element, int32_t out_element, int32_t tile_rows, int32_t tile_cols,
                      tile_choice *choose, int32_t line_cols, tile_function *line_tile) {
  const struct conv_params *const shared = (const struct conv_params *)blob;
  OWN(p, shared);
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
    if (p->mode == CONV_DIRECT) {
      const size_t line = (size_t)p->depth * in_element;
      const uint8_t *from = in + block * line;
      ROLLED for (int32_t r = 0; r < rows; ++r, from += line) pointers[r] = from;
    } else if (p->mode == CONV_PACKED) {
      const int32_t line = p->depth * in_element;
      struct pixel pixel = locate(p, block);
      uint8_t *to = packed;
      for (int32_t r = 0; r < rows; ++r, to += line, advance(p, &pixel)) {
        pack_row(p, in, pad, pixel, in_element, to);
        pointers[r] = to;
      }
    } else {
      struct pixel pixel = locate(p, block);
      const uint8_t **to = pointers;
      for (int32_t t = 0; t < tiles; ++t) {
        const int32_t count = height + (t < taller);
        for (int32_t r = 0; r < count; ++r, advance(p, &pixel))
          for (int32_t ky = 0; ky < p->k_h; ++ky)
            point_row(p, in, pad, pixel, ky, p->k_w, in_element, to + ky * p->k_w * count + r, count);
        to += (size_t)count * p->taps;
      }
    }
    const size_t row_bytes = (size_t)p->out_c * out_element;
    int32_t col = first_col;
    if (line_tile && rows == 1)
      for (; col + line_cols <= end_col; col += line_cols)
        line_tile(shared, blob, pointers, line_cols, col, out + block * row_bytes + (size_t)col * out_element, 1);
    for (; col < end_col; col += tile_cols) {
      const int32_t cols = least(tile_cols, end_col - col);
      uint8_t *to = out + block * row_bytes + (size_t)col * out_element;
      const uint8_t **at = pointers;
      for (int32_t part = 0; part < 2; ++part) { /* the taller tiles, then the others */
        const int32_t count = height + (part == 0), times = part == 0 ? taller : tiles - taller;
        if (times == 0) continue;
        choose(count, cols)(shared, blob, at, cols, col, to, times);
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
