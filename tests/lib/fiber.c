/* Functions that take turns on one thread: see fiber.h. Sanitizers keep their own state for each
 * stack, and are notified of each switch. */
#include "fiber.h"

#include "base/assert.h"

#include <stdlib.h>
#include <ucontext.h>

#define STACK_BYTES (1u << 20)

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TELLS_ASAN 1
#include <sanitizer/common_interface_defs.h>
#endif
#if __has_feature(thread_sanitizer)
#define TELLS_TSAN 1
#include <sanitizer/tsan_interface.h>
#endif
#endif

/* A stack, and a sanitizer's state for it. */
struct side {
	ucontext_t context; /* point at which the stack continues */
	const void *bottom; /* lowest address of the stack */
	size_t size_bytes;  /* size of the stack */
	void *fake;         /* ASan's state, while it does not run */
	void *tsan;         /* TSan's state */
};

struct fiber {
	struct side side;
	void (*run)(void *user); /* the caller's */
	void *user;              /* passed to run */
	bool ended;              /* run has returned */
	char stack[STACK_BYTES]; /* last, since most of it is never touched */
};

static struct side outside;   /* stack of the thread that resumes fibers */
static struct fiber *running; /* the running fiber; NULL: none */

static void switch_to(struct side *to, struct side *from, bool for_good)
{
#ifdef TELLS_TSAN
	__tsan_switch_to_fiber(to->tsan, 0);
#endif
#ifdef TELLS_ASAN
	__sanitizer_start_switch_fiber(for_good ? NULL : &from->fake, to->bottom, to->size_bytes);
#endif
	swapcontext(&from->context, &to->context);
#ifdef TELLS_ASAN
	__sanitizer_finish_switch_fiber(from->fake, NULL, NULL);
#endif
}

static void begin(void)
{
	struct fiber *fiber = running;

#ifdef TELLS_ASAN
	__sanitizer_finish_switch_fiber(NULL, &outside.bottom, &outside.size_bytes);
#endif
	fiber->run(fiber->user);
	fiber->ended = true;
	switch_to(&outside, &fiber->side, true);
}

struct fiber *fiber_open(void (*run)(void *user), void *user)
{
	struct fiber *fiber = malloc(sizeof(*fiber));

	ASSERT(fiber != NULL);
	fiber->side = (struct side){.bottom = fiber->stack, .size_bytes = STACK_BYTES};
	fiber->run = run;
	fiber->user = user;
	fiber->ended = false;
	getcontext(&fiber->side.context);
	fiber->side.context.uc_stack.ss_sp = fiber->stack;
	fiber->side.context.uc_stack.ss_size = STACK_BYTES;
	makecontext(&fiber->side.context, begin, 0);
#ifdef TELLS_TSAN
	fiber->side.tsan = __tsan_create_fiber(0);
#endif
	return fiber;
}

bool fiber_resume(struct fiber *fiber)
{
	ASSERT(running == NULL && !fiber->ended);
#ifdef TELLS_TSAN
	outside.tsan = __tsan_get_current_fiber();
#endif
	running = fiber;
	switch_to(&fiber->side, &outside, false);
	running = NULL;
	return fiber->ended;
}

void fiber_pause(void)
{
	struct fiber *fiber = running;

	ASSERT(fiber != NULL);
	switch_to(&outside, &fiber->side, false);
}

bool fiber_runs(void)
{
	return running != NULL;
}

void fiber_close(struct fiber *fiber)
{
#ifdef TELLS_TSAN
	__tsan_destroy_fiber(fiber->side.tsan);
#endif
	free(fiber);
}
