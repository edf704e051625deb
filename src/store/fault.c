/* The store that misbehaves: see fault.h.
 *
 * A transfer that is to fail takes a slot, is passed on as far as its fault allows, and is withheld
 * in the slot until it is due. All others pass straight through. */
#include "store/fault.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "store/dirs.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A transfer that misbehaves. */
struct fault_slot {
	struct store_io *io;   /* the caller's request; NULL: the slot is free */
	enum store_fault what; /* the fault of the transfer */
	int code;              /* error code for FAIL, TEAR and UNANSWERED */
	size_t len_bytes;      /* length of the transfer as the caller gave it */
	int64_t due_ns;        /* earliest time to return it, by clock_mono_ns */
	bool finished;         /* the inner store has returned it, or never received it */
};

struct fault_store {
	struct store store;           /* first: what callers hold */
	struct store *inner;          /* owned */
	struct store_fault_plan plan; /* nth 0: no fault */
	uint64_t ops;                 /* operations since the plan was set */
	unsigned in_flight;           /* transfers submitted and not reaped */
	atomic_bool released;         /* hangs have ended; set by any thread, read by the owner */
	struct fault_slot slots[STORE_DEPTH]; /* withheld transfers, in no order */
};

static const struct store_ops fault_ops;

static struct fault_store *fault_of(struct store *store)
{
	ASSERT(store->ops == &fault_ops);
	return (struct fault_store *)store;
}

static void sleep_ms(uint32_t ms)
{
	struct timespec ts = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * NS_PER_MS};

	nanosleep(&ts, NULL);
}

/* Returns whether the operation counted last is to fail. */
static bool is_hit(const struct fault_store *f)
{
	return f->plan.nth != 0 &&
		(f->ops == f->plan.nth || (f->plan.forever && f->ops > f->plan.nth));
}

/* Passes an operation that a fault can only fail or delay. Returns 0 or the error. */
static int pass_op(struct fault_store *f, const char *verb, const char *path, struct pawl_err *err)
{
	f->ops++;
	if (!is_hit(f)) {
		return 0;
	}
	switch (f->plan.what) {
	case STORE_FAULT_FAIL:
	case STORE_FAULT_TEAR:
		return pawl_err_set(err, f->plan.code, "%s %s: injected fault", verb, path);
	case STORE_FAULT_DELAY:
		sleep_ms(f->plan.arg_ms);
		return 0;
	case STORE_FAULT_HANG:
		while (!atomic_load(&f->released)) {
			sleep_ms(1);
		}
		return 0;
	default:
		return 0;
	}
}

/* Loses the answer of an operation that returned rv, if its fault asks for that. */
static int lose_answer(const struct fault_store *f, int rv, struct pawl_err *err)
{
	return rv == 0 && is_hit(f) && f->plan.what == STORE_FAULT_UNANSWERED
		? pawl_err_set(err, f->plan.code, "injected fault: the answer is lost")
		: rv;
}

/* ---- transfers ---- */

static struct fault_slot *find_slot(struct fault_store *f, const struct store_io *io)
{
	for (unsigned i = 0; i < STORE_DEPTH; i++) {
		if (f->slots[i].io == io) {
			return &f->slots[i];
		}
	}
	return NULL;
}

/* Passes on as much of the transfer as its fault allows. */
static int submit_part(struct fault_store *f, struct fault_slot *slot, struct pawl_err *err)
{
	struct store_io *io = slot->io;

	if (slot->what == STORE_FAULT_TEAR && io->write) {
		io->len_bytes = io->len_bytes / 2 / STORE_ALIGN * STORE_ALIGN;
	}
	if (slot->what == STORE_FAULT_FAIL || io->len_bytes == 0 ||
		(slot->what == STORE_FAULT_TEAR && !io->write)) {
		slot->finished = true;
		return 0;
	}
	return store_submit(f->inner, io, err);
}

static int fault_submit(struct store *store, struct store_io *io, struct pawl_err *err)
{
	struct fault_store *f = fault_of(store);
	struct fault_slot *slot;
	int rv;

	ASSERT(f->in_flight < STORE_DEPTH);
	f->ops++;
	if (!is_hit(f)) {
		rv = store_submit(f->inner, io, err);
		f->in_flight += rv == 0;
		return rv;
	}
	slot = find_slot(f, NULL);
	ASSERT(slot != NULL); /* in_flight bounds their number */
	*slot = (struct fault_slot){.io = io,
		.what = f->plan.what,
		.code = f->plan.code,
		.len_bytes = io->len_bytes};
	if (slot->what == STORE_FAULT_DELAY) {
		slot->due_ns = clock_mono_ns() + f->plan.arg_ms * NS_PER_MS;
	}
	rv = submit_part(f, slot, err);
	if (rv != 0) {
		io->len_bytes = slot->len_bytes;
		slot->io = NULL;
		return rv;
	}
	f->in_flight++;
	return 0;
}

static bool is_due(const struct fault_store *f, const struct fault_slot *slot)
{
	if (slot->io == NULL || !slot->finished) {
		return false;
	}
	if (slot->what == STORE_FAULT_HANG) {
		return atomic_load(&f->released);
	}
	return slot->due_ns <= clock_mono_ns();
}

/* Takes a withheld transfer that is due, with the result of its fault. */
static struct store_io *take_due(struct fault_store *f)
{
	for (unsigned i = 0; i < STORE_DEPTH; i++) {
		struct fault_slot *slot = &f->slots[i];
		struct store_io *io = slot->io;

		if (!is_due(f, slot)) {
			continue;
		}
		slot->io = NULL;
		io->len_bytes = slot->len_bytes;
		if (slot->what == STORE_FAULT_FAIL || slot->what == STORE_FAULT_TEAR ||
			slot->what == STORE_FAULT_UNANSWERED) {
			io->rv = slot->code;
			io->sys = 0;
		} else if (slot->what == STORE_FAULT_SHORT && !io->write) {
			memset((char *)io->buf + io->len_bytes / 2, 0, io->len_bytes / 2);
		}
		return io;
	}
	return NULL;
}

/* Takes a transfer that the inner store has finished; NULL also if it is to be withheld. */
static struct store_io *take_inner(struct fault_store *f, int timeout_ms)
{
	struct store_io *io = store_reap(f->inner, timeout_ms);
	struct fault_slot *slot = io != NULL ? find_slot(f, io) : NULL;

	if (slot != NULL) {
		ASSERT(!slot->finished); /* the inner store gives it back once */
		slot->finished = true;
		return NULL;
	}
	return io;
}

static bool is_withholding(const struct fault_store *f)
{
	bool any = false;

	for (unsigned i = 0; i < STORE_DEPTH; i++) {
		any = any || f->slots[i].io != NULL;
	}
	return any;
}

static struct store_io *fault_reap(struct store *store, int timeout_ms)
{
	struct fault_store *f = fault_of(store);
	int64_t due_ns = clock_mono_ns() + timeout_ms * NS_PER_MS;
	struct store_io *io = NULL;

	while (f->in_flight > 0) {
		bool polls = is_withholding(f);

		io = take_due(f);
		io = io != NULL ? io : take_inner(f, polls ? 0 : timeout_ms);
		if (io != NULL) {
			f->in_flight--;
			break;
		}
		if (!polls || (timeout_ms >= 0 && clock_mono_ns() >= due_ns)) {
			break;
		}
		sleep_ms(1);
	}
	return io;
}

/* ---- the other operations ---- */

static int fault_mkdir(struct store *store, const char *path, struct pawl_err *err)
{
	struct fault_store *f = fault_of(store);
	int rv = pass_op(f, "make directory", path, err);

	return rv != 0 ? rv : lose_answer(f, store_mkdir(f->inner, path, err), err);
}

static int fault_create(struct store *store, const char *path, uint64_t size_bytes,
	struct store_file **file, struct pawl_err *err)
{
	struct fault_store *f = fault_of(store);
	struct store_file *made;
	int rv = pass_op(f, "create", path, err);

	rv = rv != 0 ? rv : store_create(f->inner, path, size_bytes, &made, err);
	if (rv != 0) {
		return rv;
	}
	rv = lose_answer(f, rv, err);
	if (rv != 0) {
		store_close_file(f->inner, made);
		return rv;
	}
	*file = made;
	return 0;
}

static int fault_open(struct store *store, const char *path, struct store_file **file,
	uint64_t *size_bytes, struct pawl_err *err)
{
	struct fault_store *f = fault_of(store);
	int rv = pass_op(f, "open", path, err);

	return rv != 0 ? rv : store_open(f->inner, path, file, size_bytes, err);
}

static int fault_resize(struct store *store, struct store_file *file, uint64_t size_bytes,
	struct pawl_err *err)
{
	struct fault_store *f = fault_of(store);
	int rv = pass_op(f, "resize", "file", err);

	return rv != 0 ? rv : lose_answer(f, store_resize(f->inner, file, size_bytes, err), err);
}

static int fault_clone(struct store *store, const struct store_range *to,
	const struct store_range *from, uint64_t len_bytes, struct pawl_err *err)
{
	struct fault_store *f = fault_of(store);
	int rv = pass_op(f, "clone", "file", err);

	return rv != 0 ? rv : lose_answer(f, store_clone(f->inner, to, from, len_bytes, err), err);
}

static int fault_sync(struct store *store, struct store_file *file, struct pawl_err *err)
{
	struct fault_store *f = fault_of(store);
	int rv = pass_op(f, "sync", "file", err);

	return rv != 0 ? rv : lose_answer(f, store_sync(f->inner, file, err), err);
}

static void fault_close_file(struct store *store, struct store_file *file)
{
	store_close_file(fault_of(store)->inner, file);
}

static int fault_sync_dir(struct store *store, const char *path, struct pawl_err *err)
{
	struct fault_store *f = fault_of(store);
	int rv = pass_op(f, "sync directory", path, err);

	return rv != 0 ? rv : lose_answer(f, store_sync_dir(f->inner, path, err), err);
}

/* Writes a small file; a torn write writes half of the bytes. */
static int fault_write_small(struct store *store, const char *path, const void *bytes,
	size_t len_bytes, struct pawl_err *err)
{
	struct fault_store *f = fault_of(store);
	int rv = pass_op(f, "write", path, err);

	if (rv != 0 && f->plan.what == STORE_FAULT_TEAR && !store_is_flat(store)) {
		store_write_small(f->inner, path, bytes, len_bytes / 2, NULL);
	}
	return rv != 0
		? rv
		: lose_answer(f, store_write_small(f->inner, path, bytes, len_bytes, err), err);
}

/* Appends to a small file; a torn append writes half of the bytes. */
static int fault_append_small(struct store *store, const char *path, const void *bytes,
	size_t len_bytes, bool sync, struct pawl_err *err)
{
	struct fault_store *f = fault_of(store);
	int rv = pass_op(f, "write", path, err);

	if (rv != 0 && f->plan.what == STORE_FAULT_TEAR) {
		store_append_small(f->inner, path, bytes, len_bytes / 2, sync, NULL);
	}
	return rv != 0
		? rv
		: lose_answer(f, store_append_small(f->inner, path, bytes, len_bytes, sync, err),
			  err);
}

/* Zeros the second half of what was read, if its fault asks for that. */
static void shorten(const struct fault_store *f, void *bytes, size_t len_bytes)
{
	if (is_hit(f) && f->plan.what == STORE_FAULT_SHORT) {
		memset((char *)bytes + len_bytes / 2, 0, len_bytes - len_bytes / 2);
	}
}

static int fault_read_small(struct store *store, const char *path, void **bytes, size_t *len_bytes,
	size_t max_bytes, struct pawl_err *err)
{
	struct fault_store *f = fault_of(store);
	int rv = pass_op(f, "read", path, err);

	if (rv == 0) {
		rv = store_read_small(f->inner, path, bytes, len_bytes, max_bytes, err);
	}
	if (rv == 0) {
		shorten(f, *bytes, *len_bytes);
	}
	return rv;
}

static int fault_stat(struct store *store, const char *path, enum store_kind *kind,
	uint64_t *size_bytes, struct pawl_err *err)
{
	struct fault_store *f = fault_of(store);
	int rv = pass_op(f, "stat", path, err);

	return rv != 0 ? rv : store_stat(f->inner, path, kind, size_bytes, err);
}

static int fault_list(struct store *store, const char *path, store_list_fn *each, void *user,
	struct pawl_err *err)
{
	struct fault_store *f = fault_of(store);
	int rv = pass_op(f, "list", path, err);

	return rv != 0 ? rv : store_list(f->inner, path, each, user, err);
}

static int fault_rename(struct store *store, const char *from, const char *to,
	enum store_rename how, struct pawl_err *err)
{
	struct fault_store *f = fault_of(store);
	int rv = pass_op(f, "rename", from, err);

	return rv != 0 ? rv : lose_answer(f, store_rename(f->inner, from, to, how, err), err);
}

static int fault_link(struct store *store, const char *from, const char *to, struct pawl_err *err)
{
	struct fault_store *f = fault_of(store);
	int rv = pass_op(f, "link", from, err);

	return rv != 0 ? rv : lose_answer(f, store_link(f->inner, from, to, err), err);
}

static int fault_remove(struct store *store, const char *path, struct pawl_err *err)
{
	struct fault_store *f = fault_of(store);
	int rv = pass_op(f, "remove", path, err);

	return rv != 0 ? rv : lose_answer(f, store_remove(f->inner, path, err), err);
}

static int fault_put_if(struct store *store, const char *path, const void *bytes, size_t len_bytes,
	const char *match, char *etag, struct pawl_err *err)
{
	struct fault_store *f = fault_of(store);
	int rv = pass_op(f, "put", path, err);

	return rv != 0
		? rv
		: lose_answer(f, store_put_if(f->inner, path, bytes, len_bytes, match, etag, err),
			  err);
}

static int fault_read_etag(struct store *store, const char *path, void **bytes, size_t *len_bytes,
	size_t max_bytes, char *etag, struct pawl_err *err)
{
	struct fault_store *f = fault_of(store);
	int rv = pass_op(f, "read", path, err);

	if (rv == 0) {
		rv = store_read_etag(f->inner, path, bytes, len_bytes, max_bytes, etag, err);
	}
	if (rv == 0) {
		shorten(f, *bytes, *len_bytes);
	}
	return rv;
}

/* ---- the store ---- */

/* Closes the store. Withheld transfers are dropped; the inner store waits for those it has. */
static void fault_close(struct store *store)
{
	struct fault_store *f = fault_of(store);

	store_close(f->inner);
	free(f);
}

static const struct store_ops fault_ops = {
	.name = "fault",
	.close = fault_close,
	.create = fault_create,
	.open = fault_open,
	.submit = fault_submit,
	.reap = fault_reap,
	.resize = fault_resize,
	.sync = fault_sync,
	.close_file = fault_close_file,
	.write_small = fault_write_small,
	.read_small = fault_read_small,
	.stat = fault_stat,
	.list = fault_list,
	.remove = fault_remove,
	.put_if = fault_put_if,
	.read_etag = fault_read_etag,
};

static const struct store_dir_ops fault_dir_ops = {
	.mkdir = fault_mkdir,
	.sync_dir = fault_sync_dir,
	.rename = fault_rename,
	.link = fault_link,
	.append_small = fault_append_small,
	.clone = fault_clone,
};

int store_fault_open(struct store *inner, const struct store_fault_plan *plan, struct store **store,
	struct pawl_err *err)
{
	struct fault_store *f = calloc(1, sizeof(*f));

	if (f == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "fault store: out of memory");
	}
	f->store = (struct store){&fault_ops, store_is_flat(inner) ? NULL : &fault_dir_ops};
	f->inner = inner;
	store_fault_set(&f->store, plan);
	*store = &f->store;
	return 0;
}

void store_fault_set(struct store *store, const struct store_fault_plan *plan)
{
	struct fault_store *f = fault_of(store);

	f->plan = plan != NULL ? *plan : (struct store_fault_plan){0};
	f->ops = 0;
}

uint64_t store_fault_ops(const struct store *store)
{
	ASSERT(store->ops == &fault_ops);
	return ((const struct fault_store *)store)->ops;
}

void store_fault_release(struct store *store)
{
	atomic_store(&fault_of(store)->released, true);
}
