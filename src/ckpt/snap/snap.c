/*
 * The snapshot engine: see snap.h for the contract.
 *
 * Happy path: begin finds the list of units (snap_list.h) of the pieces, protects all its extents,
 * copies the eager units and publishes the rest. A free thread takes a unit, copies it, asks the
 * kernel what was written meanwhile, and lifts the protection: the engine's threads take units in
 * order of address, a thread in fence takes those it waits for. Units share nothing: a piece that
 * reaches into two units gets its checksum from both, joined by exclusive or.
 *
 * Failure modes: protecting fails because memory was replaced since it was registered -> the list
 * is made again, once; if that does not help, everything is copied before begin returns. A read
 * faults because memory has vanished -> its piece counts as changed.
 *
 * One lock guards the state of the snapshot; the copying, the kernel and the callback run without
 * it. No other lock is taken while it is held (not even huge.lock).
 */
#include "ckpt/snap/snap.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/crc.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/parallel.h"
#include "ckpt/snap/copy.h"
#include "ckpt/snap/cuda.h"
#include "ckpt/snap/snap_guard.h"
#include "ckpt/snap/snap_hook.h"
#include "ckpt/snap/snap_huge.h"
#include "ckpt/snap/snap_list.h"
#include "ckpt/snap/snap_thread.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SNAP_GROUPS_MAX  64u        /* number of groups: bits of a set */
#define SNAP_EAGER_ALONE (8u << 20) /* eager bytes for which waking threads does not pay */
#define SNAP_TRIES_MAX   2 /* tries to protect: with the existing list, then with a new one */

_Static_assert(SNAP_GROUPS_MAX == 64 && CUDA_DEVICES_MAX <= 64, "sets have 64 bits");
_Static_assert(CUDA_COPIES_MAX >= SNAP_THREADS_MAX, "each engine thread can copy from one device");

/* The failed piece with the lowest index. */
struct fault {
	int rv;       /* 0: none; PAWL_ECHANGED; for devices also the error of cuda_copy_crc32c */
	size_t piece; /* index of the piece */
};

enum engine_state {
	ENGINE_IDLE,      /* no snapshot in progress */
	ENGINE_STARTING,  /* begin prepares a snapshot; no other thread looks at it */
	ENGINE_COPYING,   /* units are taken and finished */
	ENGINE_COPIED,    /* all units are finished, the callback is due */
	ENGINE_REPORTING, /* the callback runs */
};

struct snap {
	pid_t pid;                           /* the process that opened the engine */
	struct watch watch;                  /* the kernel's watch over memory */
	enum snap_proof best;                /* the strongest proof possible */
	struct pawl_err why_not;             /* why a stronger proof is not possible */
	enum copy_kernel kernel;             /* copy kernel in use */
	struct huge *huge;                   /* NULL if best is SNAP_COPIED */
	struct cuda *cuda;                   /* NULL until a piece lies on a device */
	pthread_t threads[SNAP_THREADS_MAX]; /* threads of the engine */
	unsigned threads_n;                  /* number of threads started */
	unsigned device_threads; /* number of threads to have once a piece lies on a device */

	/* The snapshot in progress: written while starting, only read afterwards. */
	struct snap_list lists[3]; /* one per proof, each kept while the pieces stay the same */
	struct snap_list *list;    /* the list in use */
	struct ckpt_piece *pieces; /* the caller's */
	snap_done_fn *done;        /* the caller's */
	void *user;                /* passed to done */

	pthread_mutex_t lock;          /* guards all below */
	pthread_cond_t work;           /* wakes engine threads: units, a callback or the end */
	pthread_cond_t progress;       /* wakes all others: a unit or the snapshot is finished */
	enum engine_state state;       /* state of the snapshot */
	bool closing;                  /* tells engine threads to end */
	size_t next_eager;             /* index of the next eager unit to take */
	size_t next_wanted;            /* index of the next unit to check for wanted groups */
	size_t next_any;               /* index of the next other unit to check */
	uint64_t wanted;               /* groups that fences have asked for */
	size_t eager_left;             /* eager units not finished */
	size_t units_left;             /* units not finished, eager ones included */
	int64_t left[SNAP_GROUPS_MAX]; /* units not finished, per group; eager units have none */
	struct fault fault;            /* first fault of the finished units */
};

void (*snap_hook)(enum snap_stage stage, struct snap_range range);

/* A unit being copied. */
struct unit_copy {
	const struct snap *snap;      /* the engine */
	const struct snap_unit *unit; /* the unit to copy */
	struct snap_range range;      /* addresses to copy; pieces are cut to it */
	volatile size_t at; /* index of the piece being read; survives the jump out of the read */
	struct fault fault; /* first fault of the unit's pieces */
};

static bool is_forked(const struct snap *snap)
{
	return snap->pid != getpid();
}

static void record_fault(struct fault *fault, int rv, size_t piece)
{
	if (rv != 0 && (fault->rv == 0 || piece < fault->piece)) {
		*fault = (struct fault){rv, piece};
	}
}

/* Copies the parts of a unit's pieces that lie in its range. */
static void read_unit(void *user)
{
	struct unit_copy *copy = user;
	const struct snap *snap = copy->snap;

	for (size_t i = copy->unit->first; i < copy->unit->end; i++) {
		struct ckpt_piece *piece = &snap->pieces[snap->list->order[i]];
		uintptr_t src = (uintptr_t)piece->src;
		uintptr_t end = src + piece->len_bytes;
		uintptr_t lo = src > copy->range.lo ? src : copy->range.lo;
		uintptr_t hi = end < copy->range.hi ? end : copy->range.hi;
		uint8_t *dst = piece->dst == NULL ? NULL : piece->dst + (lo - src);
		uint32_t crc = 0;

		if (lo >= hi) {
			continue;
		}
		copy->at = snap->list->order[i];
		if (piece->device == 0) {
			crc = copy_crc32c(snap->kernel, dst, (const void *)lo, hi - lo);
		} else {
			int rv = cuda_copy_crc32c(snap->cuda, piece->device - 1, dst,
				(const void *)lo, hi - lo, &crc, NULL);

			record_fault(&copy->fault, rv, copy->at);
		}
		crc = crc32c_combine(crc, 0, end - hi);
		/* another thread may be adding the rest of the piece */
		__atomic_fetch_xor(&piece->crc, crc, __ATOMIC_RELAXED);
	}
}

static void record_hit(void *user, struct snap_range run)
{
	struct unit_copy *copy = user;
	const struct snap *snap = copy->snap;

	for (size_t i = copy->unit->first; i < copy->unit->end; i++) {
		size_t index = snap->list->order[i];
		uintptr_t src = (uintptr_t)snap->pieces[index].src;

		if (src < run.hi && run.lo < src + snap->pieces[index].len_bytes) {
			record_fault(&copy->fault, PAWL_ECHANGED, index);
		}
	}
}

static void call_hook(enum snap_stage stage, const struct snap_unit *unit)
{
	if (snap_hook != NULL) {
		snap_hook(stage, unit->range);
	}
}

static struct fault copy_unit(const struct snap *snap, const struct snap_unit *unit)
{
	struct unit_copy copy = {snap, unit, {0, UINTPTR_MAX}, 0, {0, 0}};

	if (unit->kind != SNAP_GUARDED) {
		read_unit(&copy);
		return copy.fault;
	}
	copy.range = unit->range;
	call_hook(SNAP_UNIT_TAKEN, unit);
	if (!snap_guard(read_unit, &copy, unit->range.lo, unit->range.hi)) {
		record_fault(&copy.fault, PAWL_ECHANGED, copy.at);
	}
	call_hook(SNAP_UNIT_COPIED, unit);
	watch_scan(&snap->watch, unit->range, record_hit, &copy);
	watch_lift(&snap->watch, unit->range);
	call_hook(SNAP_UNIT_LIFTED, unit);
	return copy.fault;
}

/* Takes the next free unit from *next on that has one of groups (0: any unit). Returns NULL if
 * there is none. */
static struct snap_unit *scan_units(struct snap *snap, size_t *next, uint64_t groups)
{
	while (*next < snap->list->units_n) {
		struct snap_unit *unit = &snap->list->units[(*next)++];

		if (!unit->taken && (groups == 0 || (unit->groups & groups) != 0)) {
			unit->taken = true;
			return unit;
		}
	}
	return NULL;
}

static struct snap_unit *take_eager(struct snap *snap)
{
	if (snap->next_eager == snap->list->eager_n) {
		return NULL;
	}
	return &snap->list->units[snap->next_eager++];
}

static struct snap_unit *take_wanted(struct snap *snap)
{
	return snap->wanted == 0 ? NULL : scan_units(snap, &snap->next_wanted, snap->wanted);
}

static struct snap_unit *take_any(struct snap *snap)
{
	struct snap_unit *unit = take_eager(snap);

	if (unit == NULL) {
		unit = take_wanted(snap);
	}
	return unit != NULL ? unit : scan_units(snap, &snap->next_any, 0);
}

/* Adds a unit to the counts of its groups (by 1), or removes it (by -1). */
static void count_groups(struct snap *snap, const struct snap_unit *unit, int by)
{
	for (uint64_t groups = unit->groups; groups != 0; groups &= groups - 1) {
		int64_t *left = &snap->left[__builtin_ctzll(groups)];

		*left += by;
		ASSERT(*left >= 0);
	}
}

/* Copies a taken unit. The lock is held on entry and return, but not in between. */
static void work_unit(struct snap *snap, const struct snap_unit *unit)
{
	struct fault fault;

	pthread_mutex_unlock(&snap->lock);
	fault = copy_unit(snap, unit);
	pthread_mutex_lock(&snap->lock);
	ASSERT(snap->state == ENGINE_COPYING && snap->units_left > 0);
	ASSERT(unit->kind != SNAP_EAGER || snap->eager_left > 0);
	record_fault(&snap->fault, fault.rv, fault.piece);
	snap->eager_left -= unit->kind == SNAP_EAGER;
	count_groups(snap, unit, -1);
	if (--snap->units_left == 0) {
		snap->state = ENGINE_COPIED;
		pthread_cond_signal(&snap->work);
	}
	pthread_cond_broadcast(&snap->progress);
}

static void end_snapshot(struct snap *snap)
{
	ASSERT(snap->state == ENGINE_STARTING || snap->state == ENGINE_REPORTING);
	snap->state = ENGINE_IDLE;
	pthread_cond_broadcast(&snap->progress);
}

static void report_done(struct snap *snap)
{
	struct fault fault = snap->fault;

	ASSERT(snap->units_left == 0 && snap->eager_left == 0);
	snap->state = ENGINE_REPORTING;
	pthread_mutex_unlock(&snap->lock);
	snap->done(snap->user, fault.rv, fault.piece);
	if (snap->huge != NULL) {
		huge_allow(snap->huge, true);
	}
	pthread_mutex_lock(&snap->lock);
	end_snapshot(snap);
}

static void *run_engine(void *user)
{
	struct snap *snap = user;

	pthread_mutex_lock(&snap->lock);
	while (!snap->closing) {
		struct snap_unit *unit = snap->state == ENGINE_COPYING ? take_any(snap) : NULL;

		if (unit != NULL) {
			work_unit(snap, unit);
		} else if (snap->state == ENGINE_COPIED) {
			report_done(snap);
		} else {
			pthread_cond_wait(&snap->work, &snap->lock);
		}
	}
	pthread_mutex_unlock(&snap->lock);
	return NULL;
}

/* Opens the watch. Leaves best at SNAP_COPIED, and sets why_not, if the kernel cannot watch. */
static int open_watch(struct snap *snap, struct pawl_err *err)
{
	int rv;

	if (watch_open(&snap->watch, &snap->why_not) != 0 || snap_guard_init(&snap->why_not) != 0) {
		return 0;
	}
	rv = huge_open(&snap->huge, err);
	if (rv == 0) {
		snap->best = SNAP_WATCHED;
	}
	return rv;
}

int snap_open(struct snap **snap, const struct snap_options *options, struct pawl_err *err)
{
	unsigned threads = options->threads == 0 ? 1 : options->threads;
	struct snap *s;
	int rv = 0;

	if (threads > SNAP_THREADS_MAX || options->device_threads > SNAP_THREADS_MAX) {
		return pawl_err_set(err, PAWL_EINVAL,
			"open the snapshot engine: %u threads, more than %u",
			threads > options->device_threads ? threads : options->device_threads,
			SNAP_THREADS_MAX);
	}
	s = FAULT_MEM("snap.open", calloc(1, sizeof(*s)));
	if (s == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for the snapshot engine");
	}
	s->pid = getpid();
	s->watch = (struct watch){-1, -1};
	s->best = SNAP_COPIED;
	s->kernel = copy_best();
	s->device_threads = options->device_threads;
	s->list = &s->lists[SNAP_COPIED];
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->work, NULL);
	pthread_cond_init(&s->progress, NULL);
	if (options->watch) {
		rv = open_watch(s, err);
	} else {
		pawl_err_set(&s->why_not, PAWL_ENOTSUP, "turned off by the caller");
	}
	for (; rv == 0 && s->threads_n < threads; s->threads_n += rv == 0) {
		rv = snap_thread_start(&s->threads[s->threads_n], "pawl-snap", run_engine, s, err);
	}
	if (rv != 0) {
		snap_close(s);
		return rv;
	}
	*snap = s;
	return 0;
}

static void unregister_extents(const struct snap *snap)
{
	const struct snap_list *list = &snap->lists[SNAP_WATCHED];

	for (size_t e = 0; e < list->extents_n; e++) {
		watch_unregister(&snap->watch, list->extents[e]);
	}
}

void snap_close(struct snap *snap)
{
	if (snap == NULL || is_forked(snap)) {
		return;
	}
	pthread_mutex_lock(&snap->lock);
	while (snap->state != ENGINE_IDLE) {
		pthread_cond_wait(&snap->progress, &snap->lock);
	}
	snap->closing = true;
	pthread_cond_broadcast(&snap->work);
	pthread_mutex_unlock(&snap->lock);
	for (unsigned i = 0; i < snap->threads_n; i++) {
		pthread_join(snap->threads[i], NULL);
	}
	huge_close(snap->huge);
	unregister_extents(snap); /* a forked child may still hold the descriptor */
	watch_close(&snap->watch);
	cuda_close(snap->cuda);
	snap_list_deinit(&snap->lists[SNAP_COPIED]);
	snap_list_deinit(&snap->lists[SNAP_WATCHED]);
	snap_list_deinit(&snap->lists[SNAP_FENCED]);
	pthread_cond_destroy(&snap->progress);
	pthread_cond_destroy(&snap->work);
	pthread_mutex_destroy(&snap->lock);
	free(snap);
}

enum pawl_ckpt_proof snap_public_proof(enum snap_proof proof)
{
	static const enum pawl_ckpt_proof proofs[] = {[SNAP_COPIED] = PAWL_CKPT_COPIED,
		[SNAP_WATCHED] = PAWL_CKPT_WATCHED,
		[SNAP_FENCED] = PAWL_CKPT_FENCED};

	return proofs[proof];
}

enum snap_proof snap_best(const struct snap *snap, const char **why_not)
{
	if (why_not != NULL) {
		*why_not = snap->best == SNAP_WATCHED ? NULL : snap->why_not.msg;
	}
	return snap->best;
}

/* Finds or makes a list of these pieces with nothing watched. late: pieces on devices wait for
 * their fences. */
static int make_plain_list(struct snap *snap, const struct ckpt_piece *pieces, size_t n, bool late,
	struct pawl_err *err)
{
	static const struct snap_range none;
	struct snap_list *list = &snap->lists[late ? SNAP_FENCED : SNAP_COPIED];
	int rv = 0;

	if (!snap_list_matches(list, pieces, n)) {
		rv = snap_list_extents(list, pieces, n, late ? &none : NULL, 0, err);
		if (rv == 0) {
			rv = snap_list_units(list, err);
		}
	}
	snap->list = list;
	return rv;
}

static void register_extents(struct snap *snap, struct snap_list *list)
{
	size_t kept = 0;

	for (size_t e = 0; e < list->extents_n; e++) {
		if (watch_register(&snap->watch, list->extents[e])) {
			list->extents[kept++] = list->extents[e];
		}
	}
	list->extents_n = kept;
}

/* Makes a list of these pieces, with all memory registered that can be watched. */
static int make_watched_list(struct snap *snap, const struct ckpt_piece *pieces, size_t n,
	struct pawl_err *err)
{
	struct snap_list *list = &snap->lists[SNAP_WATCHED];
	struct snap_range *ranges;
	size_t ranges_n;
	int rv = watch_ranges(&ranges, &ranges_n, err);

	unregister_extents(snap);
	if (rv != 0) {
		return rv;
	}
	rv = snap_list_extents(list, pieces, n, ranges, ranges_n, err);
	free(ranges);
	if (rv != 0) {
		return rv;
	}
	register_extents(snap, list);
	rv = snap_list_units(list, err);
	if (rv == 0) {
		huge_set(snap->huge, list->extents, list->extents_n);
	}
	return rv;
}

static bool protect_extents(const struct snap *snap)
{
	const struct snap_list *list = &snap->lists[SNAP_WATCHED];

	for (size_t e = 0; e < list->extents_n; e++) {
		if (!watch_protect(&snap->watch, list->extents[e])) {
			return false;
		}
	}
	return true;
}

/* Finds or makes the list of these pieces and protects the memory it watches. Returns false if
 * watching fails this time; then nothing is protected. */
static bool watch_pieces(struct snap *snap, const struct ckpt_piece *pieces, size_t n)
{
	struct snap_list *list = &snap->lists[SNAP_WATCHED];
	bool same = snap_list_matches(list, pieces, n);

	for (int try = 0; try < SNAP_TRIES_MAX; try++) {
		int64_t began_ns;

		if (!same && make_watched_list(snap, pieces, n, NULL) != 0) {
			break;
		}
		began_ns = clock_mono_ns();
		if (protect_extents(snap)) {
			huge_protected(snap->huge, clock_mono_ns() - began_ns);
			snap->list = list;
			return true;
		}
		same = false;
	}
	unregister_extents(snap);
	snap_list_deinit(list);
	return false;
}

static int claim_engine(struct snap *snap, struct pawl_err *err)
{
	int rv = 0;

	if (is_forked(snap)) {
		return pawl_err_set(err, PAWL_ENOTSUP,
			"snapshot: the engine belongs to the parent of this forked process");
	}
	pthread_mutex_lock(&snap->lock);
	if (snap->state != ENGINE_IDLE) {
		rv = pawl_err_set(err, PAWL_EBUSY,
			"snapshot: the previous one is still in progress");
	} else {
		snap->state = ENGINE_STARTING;
	}
	pthread_mutex_unlock(&snap->lock);
	return rv;
}

/* Publishes the units, except the first copied eager ones, which the caller has copied. */
static void publish_units(struct snap *snap, size_t copied)
{
	struct snap_list *list = snap->list;

	pthread_mutex_lock(&snap->lock);
	ASSERT(snap->state == ENGINE_STARTING);
	ASSERT(copied <= list->eager_n && list->eager_n <= list->units_n);
	snap->next_eager = copied;
	snap->next_wanted = list->eager_n;
	snap->next_any = list->eager_n;
	snap->wanted = 0;
	snap->eager_left = list->eager_n - copied;
	snap->units_left = list->units_n - copied;
	for (size_t i = list->eager_n; i < list->units_n; i++) {
		list->units[i].taken = false;
		count_groups(snap, &list->units[i], 1);
	}
	snap->state = snap->units_left == 0 ? ENGINE_COPIED : ENGINE_COPYING;
	pthread_cond_broadcast(&snap->work);
	pthread_mutex_unlock(&snap->lock);
}

/* Copies the eager units: alone if they have few bytes, else together with the engine's threads. */
static void run_snapshot(struct snap *snap)
{
	struct snap_list *list = snap->list;
	struct snap_unit *unit;

	if (list->eager_bytes <= SNAP_EAGER_ALONE) {
		for (size_t i = 0; i < list->eager_n; i++) {
			struct fault fault = copy_unit(snap, &list->units[i]);

			record_fault(&snap->fault, fault.rv, fault.piece);
		}
		publish_units(snap, list->eager_n);
		return;
	}
	publish_units(snap, 0);
	pthread_mutex_lock(&snap->lock);
	while ((unit = take_eager(snap)) != NULL) {
		work_unit(snap, unit);
	}
	while (snap->eager_left > 0) {
		pthread_cond_wait(&snap->progress, &snap->lock);
	}
	pthread_mutex_unlock(&snap->lock);
}

static enum snap_proof proof_of(const struct snap_list *list)
{
	if (list->units_n == list->eager_n) {
		return SNAP_COPIED;
	}
	return list->units[list->units_n - 1].kind == SNAP_DEVICE ? SNAP_FENCED : SNAP_WATCHED;
}

unsigned snap_device_threads(uint32_t processes)
{
	unsigned threads;

	ASSERT(processes > 0);
	threads = parallel_cores() / 2 / processes;
	return threads < PARALLEL_THREADS_MAX ? threads : PARALLEL_THREADS_MAX;
}

/* Starts more threads, or as many as possible. */
static void start_device_threads(struct snap *snap)
{
	while (snap->threads_n < snap->device_threads &&
		snap_thread_start(&snap->threads[snap->threads_n], "pawl-snap", run_engine, snap,
			NULL) == 0) {
		snap->threads_n++;
	}
}

/* Marks the default streams of all devices: their later work is not in the snapshot. */
static int mark_devices(struct snap *snap, const struct ckpt_piece *pieces, size_t n,
	struct pawl_err *err)
{
	uint64_t marked = 0; /* bit set of devices */
	int rv = 0;

	for (size_t i = 0; i < n && rv == 0; i++) {
		int device = pieces[i].device - 1;

		ASSERT(device < CUDA_DEVICES_MAX);
		if (device < 0 || (marked >> device & 1) != 0) {
			continue;
		}
		marked |= 1ull << device;
		rv = cuda_mark(&snap->cuda, device, err);
	}
	if (rv == 0 && marked != 0) {
		start_device_threads(snap);
	}
	return rv;
}

/* Ends a snapshot that could not begin. */
static void release_engine(struct snap *snap)
{
	if (snap->huge != NULL) {
		huge_allow(snap->huge, true);
	}
	pthread_mutex_lock(&snap->lock);
	end_snapshot(snap);
	pthread_mutex_unlock(&snap->lock);
}

int snap_begin(struct snap *snap, struct ckpt_piece *pieces, size_t n, bool watch,
	snap_done_fn *done, void *user, enum snap_proof *proof, struct pawl_err *err)
{
	int rv = claim_engine(snap, err);

	if (rv != 0) {
		return rv;
	}
	if (snap->huge != NULL) {
		huge_allow(snap->huge, false);
	}
	rv = mark_devices(snap, pieces, n, err);
	if (rv == 0 && (!watch || snap->best == SNAP_COPIED || !watch_pieces(snap, pieces, n))) {
		rv = make_plain_list(snap, pieces, n, watch, err);
	}
	if (rv != 0) {
		release_engine(snap);
		return rv;
	}
	for (size_t i = 0; i < n; i++) {
		pieces[i].crc = 0;
	}
	snap->fault = (struct fault){0, 0};
	snap->pieces = pieces;
	snap->done = done;
	snap->user = user;
	*proof = proof_of(snap->list);
	run_snapshot(snap);
	return 0;
}

static bool is_pending(const struct snap *snap, uint64_t groups)
{
	for (; groups != 0; groups &= groups - 1) {
		if (snap->left[__builtin_ctzll(groups)] > 0) {
			return true;
		}
	}
	return false;
}

void snap_fence(struct snap *snap, uint64_t groups)
{
	if (is_forked(snap)) {
		return;
	}
	pthread_mutex_lock(&snap->lock);
	if ((groups & ~snap->wanted) != 0) {
		snap->wanted |= groups;
		snap->next_wanted = 0;
	}
	while (is_pending(snap, groups)) {
		struct snap_unit *unit = take_wanted(snap);

		if (unit != NULL) {
			work_unit(snap, unit);
		} else {
			pthread_cond_wait(&snap->progress, &snap->lock);
		}
	}
	pthread_mutex_unlock(&snap->lock);
}

void snap_wait(struct snap *snap)
{
	if (snap == NULL || is_forked(snap)) {
		return;
	}
	pthread_mutex_lock(&snap->lock);
	while (snap->state != ENGINE_IDLE) {
		pthread_cond_wait(&snap->progress, &snap->lock);
	}
	pthread_mutex_unlock(&snap->lock);
}
