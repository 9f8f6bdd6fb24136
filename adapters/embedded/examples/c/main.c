/* A firmware that keeps its messages on the heap while a timer's interrupt uses the heap as well, and large buffers in PSRAM. */
#include "board.h"
#include "terrace.h"

static unsigned char arena[32 * 1024];
extern unsigned char heap_start[], heap_end[], psram_start[], psram_end[]; /* set by the linker script */

static int failed;
#define CHECK(what) ((what) ? (void)0 : (void)(failed++, print("FAILED: " #what "\n")))

/* The heap's lock: masks interrupts. Without these two, `systick` below could come while main is half way through a call of the
 * heap, and find its lists half changed: the library's own lock does nothing. */
uintptr_t terrace_lock(void) {
    uint32_t state;
    __asm volatile("mrs %0, primask\n cpsid i" : "=r"(state) : : "memory");
    return state;
}
void terrace_unlock(uintptr_t state) { __asm volatile("msr primask, %0" : : "r"(state) : "memory"); }

/* SysTick is the timer that every Cortex-M4 has. Here it stands for any interrupt with data: a radio, a UART, a DMA channel. It
 * counts the processor's clock down from `reload` to 0, calls `systick` (entry 15 of the vectors in startup.c), and begins
 * anew: so the handler interrupts main after every RELOAD + 1 cycles, wherever main is, also inside the heap but for the lock. */
struct systick {
    volatile uint32_t control, reload, current;
};
#define SYSTICK ((struct systick *)0xE000E010)
#define SYSTICK_ON 7u /* bit 0: it counts; bit 1: it interrupts; bit 2: it counts the processor's clock */
#define RELOAD 20000u

struct message {
    struct message *next;
    uint32_t ticks, length;
    unsigned char text[];
};

static volatile uint32_t ticks;
static struct message *volatile inbox;

/* The interrupt handler. It allocates a message and main frees it: the program's test of the lock. */
void systick(void) {
    uint32_t length = ticks++ % 200;
    struct message *message = terrace_malloc(sizeof *message + length);
    if (!message) return;
    message->ticks = ticks;
    message->length = length;
    for (uint32_t i = 0; i < length; i++) message->text[i] = (unsigned char)ticks;
    message->next = inbox;
    inbox = message;
}

static struct message *take_all(void) {
    uintptr_t state = terrace_lock();
    struct message *all = inbox;
    inbox = 0;
    terrace_unlock(state);
    return all;
}

/* Reads 500 messages, while a block of its own grows. */
static void work(void) {
    uint32_t *seen = 0, count = 0, room = 0;
    SYSTICK->reload = RELOAD;
    SYSTICK->current = 0; /* any write clears it */
    SYSTICK->control = SYSTICK_ON;
    while (count < 500) {
        for (struct message *message = take_all(), *next; message; message = next, count++) {
            next = message->next;
            for (uint32_t i = 0; i < message->length; i++) CHECK(message->text[i] == (unsigned char)message->ticks);
            if (count == room) {
                uint32_t *more = terrace_realloc(seen, (room += 100) * sizeof *seen);
                CHECK(more);
                if (!more) return;
                seen = more;
            }
            seen[count] = message->ticks;
            terrace_free_sized(message, sizeof *message + message->length);
        }
    }
    SYSTICK->control = 0;
    for (struct message *message = take_all(), *next; message; message = next) {
        next = message->next;
        terrace_free(message);
    }
    uint64_t sum = 0;
    for (uint32_t i = 0; i < 500; i++) sum += seen[i];
    CHECK(sum >= 500 * 501 / 2);
    terrace_free(seen);
}

static int is_in_psram(const void *block) {
    return (const unsigned char *)block >= psram_start && (const unsigned char *)block < psram_end;
}

/* Memory by what it can do: PSRAM is large and slow, and what must not be there says so. */
static void buffers(void) {
    CHECK(terrace_malloc_with(100, TERRACE_EXTERNAL, TERRACE_EXTERNAL) == 0); /* no such region yet */
    CHECK(terrace_add_region_with(psram_start, (size_t)(psram_end - psram_start), TERRACE_EXTERNAL) == TERRACE_OK);
    void *image = terrace_malloc_with(150000, TERRACE_EXTERNAL, TERRACE_ANY);
    void *fast = terrace_malloc_with(150000, TERRACE_INTERNAL, TERRACE_EXTERNAL), *next;
    CHECK(is_in_psram(image) && fast && !is_in_psram(fast));
    CHECK(terrace_malloc_with(150000, TERRACE_INTERNAL, TERRACE_INTERNAL) == 0);                /* there is no room */
    CHECK((next = terrace_malloc_with(150000, TERRACE_INTERNAL, TERRACE_EXTERNAL)) != 0);       /* so the fallback serves it */
    CHECK(is_in_psram(next));
    terrace_free(image);
    terrace_free(fast);
    terrace_free(next);
}

static void *reserve;
static int make_room(size_t bytes, size_t align) {
    (void)bytes;
    (void)align;
    if (!reserve) return 0;
    terrace_free(reserve);
    reserve = 0;
    return 1;
}

int main(void) {
    struct terrace_stats stats;
    CHECK(terrace_malloc(8) == 0);
    CHECK(terrace_init(arena, sizeof arena) == TERRACE_OK);
    CHECK(terrace_init(arena, sizeof arena) == TERRACE_AGAIN);
    CHECK(terrace_add_region(arena, sizeof arena) == TERRACE_OVERLAPS);

    reserve = terrace_malloc(20000);
    terrace_set_out_of_memory_hook(make_room);
    void *large = terrace_memalign(256, 24000);
    CHECK(large && (uintptr_t)large % 256 == 0 && !reserve);
    CHECK(terrace_malloc(24000) == 0);
    CHECK(terrace_add_region_with(heap_start, (size_t)(heap_end - heap_start), TERRACE_INTERNAL) == TERRACE_OK);
    void *second = terrace_calloc(100, 1000);
    CHECK(second);
    terrace_free(large);
    terrace_free(second);

    buffers();
    work();

    CHECK(terrace_check() == 1);
    terrace_stats(&stats);
    CHECK(stats.live == 0 && stats.refused == 0 && stats.failures == 4 && stats.allocations > 500);
    CHECK(stats.total == stats.tables + stats.free);
    print_number(stats.allocations);
    print(" allocations, the most at once ");
    print_number(stats.peak);
    print(" bytes\n");
    print(failed ? "bad\n" : "good: every check passed\n");
    return failed != 0;
}
