// A TCG plugin for qemu-aarch64 (plugin API 1, qemu 6 to 8): what one inference executes, by
// dispatch, and which of its memory accesses miss the caches.
//
//   qemu-aarch64 -plugin block_costs.so,plan=PLAN,out=OUT program ...
//
// The program marks the part that counts with getpriority(PRIO_PROCESS, MARK_BEGIN) and MARK_END,
// which no program asks for otherwise. PLAN (text, a statement a line) says where compiled code is
// recognized and in which order it is entered:
//
//   library TEXT_OFFSET FILE      the code of a library as it lies in memory, in a file
//   entry OFFSET                  a function of that library that the runtime calls
//   step LIBRARY OFFSET COUNT     next, this function is entered COUNT times (a dispatch has one
//                                 entry a workgroup); after the last step comes the first
//   cache WAYS SETS               a level of the cache, the nearest first; lines have 64 bytes
//
// What runs inside a library between one step's first entry and the next step's belongs to that
// step. OUT (text): "step I LOADS STORES MISS_1.. WRITEBACKS", "block WORDS OUTSIDE [I:COUNT]..",
// "wrong MESSAGE" when the program does not follow the plan, and "end" when it is complete.
#define _GNU_SOURCE  // process_vm_readv
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

// The part of the interface that is used here; Debian has no package with the header.
typedef uint64_t qemu_plugin_id_t;
typedef uint32_t qemu_plugin_meminfo_t;
typedef struct qemu_info_t qemu_info_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
enum qemu_plugin_cb_flags { QEMU_PLUGIN_CB_NO_REGS };
enum qemu_plugin_mem_rw { QEMU_PLUGIN_MEM_R = 1, QEMU_PLUGIN_MEM_W, QEMU_PLUGIN_MEM_RW };
enum qemu_plugin_op { QEMU_PLUGIN_INLINE_ADD_U64 };
typedef void (*translate_cb)(qemu_plugin_id_t, struct qemu_plugin_tb *);
typedef void (*execute_cb)(unsigned, void *);
typedef void (*memory_cb)(unsigned, qemu_plugin_meminfo_t, uint64_t, void *);
typedef void (*syscall_cb)(qemu_plugin_id_t, unsigned, int64_t, uint64_t, uint64_t, uint64_t,
                           uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
extern void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, translate_cb);
extern void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *, execute_cb,
                                                 enum qemu_plugin_cb_flags, void *);
extern void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *, enum qemu_plugin_op,
                                                     void *, uint64_t);
extern void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *, memory_cb,
                                             enum qemu_plugin_cb_flags, enum qemu_plugin_mem_rw,
                                             void *);
extern void qemu_plugin_register_vcpu_syscall_cb(qemu_plugin_id_t, syscall_cb);
extern size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
extern uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *);
extern struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
extern const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *);
extern void *qemu_plugin_insn_haddr(const struct qemu_plugin_insn *);
extern unsigned qemu_plugin_mem_size_shift(qemu_plugin_meminfo_t);
extern bool qemu_plugin_mem_is_store(qemu_plugin_meminfo_t);
__attribute__((visibility("default"))) int qemu_plugin_version = 1;

enum { GETPRIORITY = 141, MARK_BEGIN = 0x45444701, MARK_END = 0x45444702 };
enum { MAX_LIBRARIES = 64, MAX_LEVELS = 3, LINE_SHIFT = 6, BUCKETS = 1 << 16, PAGE = 4096 };

struct library {
    uint64_t text_offset, size, base;  // base is 0 until the library was seen in memory
    uint8_t *text;
    uint64_t *entries;
    size_t entry_count;
};
struct step {
    size_t library;
    uint64_t offset, count, loads, stores, misses[MAX_LEVELS], writebacks;
};
struct block {
    uint64_t address, outside, *inside;  // inside: executions by step, NULL outside of libraries
    uint32_t length, *words;
    int64_t entry;  // offset of the function that begins here, or -1
    size_t library;
    struct block *next;
};
struct line {
    uint64_t tag;  // line number + 1; 0 is an empty place
    bool dirty;
};
struct level {
    uint64_t ways, sets;
    struct line *lines;  // by set, the most recently used first
};

static struct library libraries[MAX_LIBRARIES];
static struct step *steps;
static struct level levels[MAX_LEVELS];
static size_t library_count, step_count, level_count;
static struct block *table[BUCKETS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *out_path;
static const char *wrong;
static uint64_t current, entered;  // the step that runs, and how often it was entered
static bool counting, done;

// One access of a line at a level of the cache; a demand, or a line that a nearer level wrote back.
static void touch(size_t depth, uint64_t number, bool store, bool demand, struct step *step) {
    if (depth == level_count) return;
    struct level *level = &levels[depth];
    struct line *set = level->lines + number % level->sets * level->ways;
    size_t way = 0;
    while (way < level->ways && set[way].tag != number + 1) way++;
    struct line found = {number + 1, store};
    if (way < level->ways) {
        found.dirty |= set[way].dirty;
    } else {
        step->misses[depth] += demand;
        way = level->ways - 1;
        struct line victim = set[way];
        if (victim.tag && victim.dirty) {
            if (depth + 1 == level_count)
                step->writebacks++;
            else
                touch(depth + 1, victim.tag - 1, true, false, step);
        }
        if (demand) touch(depth + 1, number, false, true, step);
    }
    memmove(set + 1, set, way * sizeof *set);
    set[0] = found;
}

static void access_memory(unsigned cpu, qemu_plugin_meminfo_t info, uint64_t address, void *data) {
    (void)cpu, (void)data;
    struct step *step = &steps[current];
    bool store = qemu_plugin_mem_is_store(info);
    uint64_t last = address + (1ull << qemu_plugin_mem_size_shift(info)) - 1;
    if (store)
        step->stores++;
    else
        step->loads++;
    for (uint64_t line = address >> LINE_SHIFT; line <= last >> LINE_SHIFT; line++)
        touch(0, line, store, true, step);
}

static void execute(unsigned cpu, void *data) {
    (void)cpu;
    struct block *block = data;
    if (block->entry >= 0) {
        struct step *step = &steps[current];
        if (entered == step->count) {
            current = (current + 1) % step_count;
            step = &steps[current];
            entered = 0;
        }
        entered++;
        if (counting && (step->library != block->library || step->offset != (uint64_t)block->entry))
            wrong = "a function was entered that the plan does not have next";
    }
    block->inside[current]++;
}

// Whether a block that begins like one of the library's functions lies in the library.
static bool recognize(struct library *library, uint64_t address, const uint8_t *host, size_t size) {
    for (size_t i = 0; i < library->entry_count; i++) {
        uint64_t offset = library->entries[i], start = offset - library->text_offset;
        if ((address - offset) % PAGE || start + size > library->size ||
            memcmp(library->text + start, host, size))
            continue;
        uint8_t *seen = malloc(library->size);
        struct iovec here = {seen, library->size};
        struct iovec there = {(void *)(host - start), library->size};
        bool same = process_vm_readv(getpid(), &here, 1, &there, 1, 0) == (ssize_t)library->size &&
                    !memcmp(seen, library->text, library->size);
        free(seen);
        if (same) {
            library->base = address - offset;
            return true;
        }
    }
    return false;
}

static struct block *new_block(struct qemu_plugin_tb *tb, uint64_t address, uint32_t length) {
    struct block *block = calloc(1, sizeof *block);
    block->address = address;
    block->length = length;
    block->entry = -1;
    block->words = malloc(4 * length);
    for (uint32_t i = 0; i < length; i++)
        memcpy(&block->words[i], qemu_plugin_insn_data(qemu_plugin_tb_get_insn(tb, i)), 4);
    const uint8_t *host = qemu_plugin_insn_haddr(qemu_plugin_tb_get_insn(tb, 0));
    for (size_t i = 0; i < library_count; i++) {
        struct library *library = &libraries[i];
        if (!library->base && !(host && recognize(library, address, host, 4 * length))) continue;
        uint64_t offset = address - library->base - library->text_offset;
        if (address < library->base || offset >= library->size) continue;
        block->library = i;
        block->inside = calloc(step_count, sizeof *block->inside);
        for (size_t k = 0; k < library->entry_count; k++)
            if (library->entries[k] == address - library->base) block->entry = address - library->base;
    }
    return block;
}

static void translate(qemu_plugin_id_t id, struct qemu_plugin_tb *tb) {
    (void)id;
    uint64_t address = qemu_plugin_tb_vaddr(tb);
    uint32_t length = qemu_plugin_tb_n_insns(tb), first;
    memcpy(&first, qemu_plugin_insn_data(qemu_plugin_tb_get_insn(tb, 0)), 4);
    pthread_mutex_lock(&lock);
    struct block **place = &table[(address >> 2) % BUCKETS], *block = *place;
    while (block && !(block->address == address && block->length == length &&
                      block->words[0] == first))
        block = block->next;
    if (!block) {
        block = new_block(tb, address, length);
        block->next = *place;
        *place = block;
    }
    pthread_mutex_unlock(&lock);
    if (!block->inside) {
        qemu_plugin_register_vcpu_tb_exec_inline(tb, QEMU_PLUGIN_INLINE_ADD_U64, &block->outside, 1);
        return;
    }
    qemu_plugin_register_vcpu_tb_exec_cb(tb, execute, QEMU_PLUGIN_CB_NO_REGS, block);
    for (uint32_t i = 0; level_count && i < length; i++)
        qemu_plugin_register_vcpu_mem_cb(qemu_plugin_tb_get_insn(tb, i), access_memory,
                                         QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_MEM_RW, NULL);
}

static void begin(void) {
    for (size_t i = 0; i < BUCKETS; i++)
        for (struct block *block = table[i]; block; block = block->next) {
            block->outside = 0;
            if (block->inside) memset(block->inside, 0, step_count * sizeof *block->inside);
        }
    for (size_t i = 0; i < step_count; i++) {
        steps[i].loads = steps[i].stores = steps[i].writebacks = 0;
        memset(steps[i].misses, 0, sizeof steps[i].misses);
    }
    // The next entry is the first of the first step.
    current = step_count - 1;
    entered = steps[current].count;
    counting = true;
}

static void report(void) {
    FILE *file = fopen(out_path, "w");
    if (!file) return;
    if (current != step_count - 1 || entered != steps[current].count)
        wrong = wrong ? wrong : "the program ended in the middle of the plan";
    if (wrong) fprintf(file, "wrong %s\n", wrong);
    for (size_t i = 0; i < step_count; i++) {
        struct step *s = &steps[i];
        fprintf(file, "step %zu %" PRIu64 " %" PRIu64, i, s->loads, s->stores);
        for (size_t k = 0; k < level_count; k++) fprintf(file, " %" PRIu64, s->misses[k]);
        fprintf(file, " %" PRIu64 "\n", s->writebacks);
    }
    for (size_t i = 0; i < BUCKETS; i++)
        for (struct block *block = table[i]; block; block = block->next) {
            bool any = block->outside;
            for (size_t k = 0; block->inside && k < step_count; k++) any |= block->inside[k] != 0;
            if (!any) continue;
            fputs("block ", file);
            for (uint32_t k = 0; k < block->length; k++) fprintf(file, "%08x", block->words[k]);
            fprintf(file, " %" PRIu64, block->outside);
            for (size_t k = 0; block->inside && k < step_count; k++)
                if (block->inside[k]) fprintf(file, " %zu:%" PRIu64, k, block->inside[k]);
            fputc('\n', file);
        }
    fputs("end\n", file);
    fclose(file);
}

static void system_call(qemu_plugin_id_t id, unsigned cpu, int64_t number, uint64_t a1, uint64_t a2,
                        uint64_t a3, uint64_t a4, uint64_t a5, uint64_t a6, uint64_t a7,
                        uint64_t a8) {
    (void)id, (void)cpu, (void)a1, (void)a3, (void)a4, (void)a5, (void)a6, (void)a7, (void)a8;
    if (number != GETPRIORITY) return;
    if (a2 == MARK_BEGIN) begin();
    if (a2 == MARK_END && counting && !done) {
        done = true;
        report();
    }
}

static bool read_library(uint64_t offset, const char *path) {
    FILE *file = library_count < MAX_LIBRARIES ? fopen(path, "rb") : NULL;
    if (!file) return false;
    struct library *library = &libraries[library_count++];
    fseek(file, 0, SEEK_END);
    library->size = ftell(file);
    library->text_offset = offset;
    library->text = malloc(library->size);
    rewind(file);
    bool read = fread(library->text, 1, library->size, file) == library->size;
    fclose(file);
    return read;
}

static bool read_plan(const char *path) {
    FILE *file = fopen(path, "r");
    if (!file) return false;
    char line[4352], name[4096];
    uint64_t a, b, c;
    bool good = true;
    while (good && fgets(line, sizeof line, file)) {
        if (sscanf(line, "library %" SCNu64 " %4095[^\n]", &a, name) == 2) {
            good = read_library(a, name);
        } else if (sscanf(line, "entry %" SCNu64, &a) == 1) {
            good = library_count > 0;
            if (!good) break;
            struct library *library = &libraries[library_count - 1];
            library->entries = realloc(library->entries, ++library->entry_count * sizeof a);
            library->entries[library->entry_count - 1] = a;
        } else if (sscanf(line, "step %" SCNu64 " %" SCNu64 " %" SCNu64, &a, &b, &c) == 3) {
            steps = realloc(steps, ++step_count * sizeof *steps);
            steps[step_count - 1] = (struct step){.library = a, .offset = b, .count = c};
        } else if (sscanf(line, "cache %" SCNu64 " %" SCNu64, &a, &b) == 2) {
            good = level_count < MAX_LEVELS && a && b;
            if (!good) break;
            struct line *lines = calloc(a * b, sizeof *lines);
            levels[level_count++] = (struct level){.ways = a, .sets = b, .lines = lines};
        } else {
            good = false;
        }
    }
    fclose(file);
    return good && step_count > 0;
}

__attribute__((visibility("default"))) int qemu_plugin_install(qemu_plugin_id_t id,
                                                               const qemu_info_t *info, int argc,
                                                               char **argv) {
    (void)info;
    bool planned = false;
    for (int i = 0; i < argc; i++) {
        if (!strncmp(argv[i], "plan=", 5)) planned = read_plan(argv[i] + 5);
        if (!strncmp(argv[i], "out=", 4)) out_path = strdup(argv[i] + 4);
    }
    if (!planned || !out_path) {
        fputs("block_costs: the plan cannot be read, or out= is missing\n", stderr);
        return 1;
    }
    qemu_plugin_register_vcpu_tb_trans_cb(id, translate);
    qemu_plugin_register_vcpu_syscall_cb(id, system_call);
    return 0;
}
