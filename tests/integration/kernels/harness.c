/* Runs one kernel over cases from a file: harness CASES RESULTS, compiled with -DKERNEL_SYMBOL=name.
 *
 * CASES holds, per case, five 32-bit counts (bytes of input, blob and output, workgroups, 0) and the
 * bytes of input and blob. Every buffer ends right before a page that may not be touched (or, with
 * -DUSE_MALLOC, where a sanitizer's red zone begins), so that reading or writing past an end is a
 * crash and not luck. Workgroups run last to first: none may lean on another.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifndef USE_MALLOC
#include <sys/mman.h>
#include <unistd.h>
#endif

void KERNEL_SYMBOL(const uint8_t *in, size_t in_at, const uint8_t *blob, size_t blob_at, uint8_t *out,
                   size_t out_at, size_t group);

static uint8_t *fenced(size_t bytes, size_t aligned) {
#ifdef USE_MALLOC
  (void)aligned;
  return malloc(bytes ? bytes : 1);
#else
  const size_t page = (size_t)sysconf(_SC_PAGESIZE), pages = (bytes + page - 1) / page + 1;
  uint8_t *at = mmap(NULL, pages * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED || mprotect(at + (pages - 1) * page, page, PROT_NONE)) exit(3);
  uint8_t *start = at + (pages - 1) * page - bytes;
  return start - (uintptr_t)start % aligned;
#endif
}

int main(int argc, char **argv) {
  if (argc != 3) return 2;
  FILE *cases = fopen(argv[1], "rb"), *results = fopen(argv[2], "wb");
  if (!cases || !results) return 2;
  uint32_t head[5];
  while (fread(head, sizeof head, 1, cases) == 1) {
    uint8_t *in = fenced(head[0], 1), *blob = fenced(head[1], 64), *out = fenced(head[2], 1);
    if (fread(in, 1, head[0], cases) != head[0] || fread(blob, 1, head[1], cases) != head[1]) return 2;
    memset(out, 0x5A, head[2]);
    for (uint32_t group = head[3]; group-- > 0;) KERNEL_SYMBOL(in, 0, blob, 0, out, 0, group);
    fwrite(out, 1, head[2], results);
#ifdef USE_MALLOC
    free(in);
    free(blob);
    free(out);
#endif
  }
  return fclose(results) ? 2 : 0;
}
