/*
 * Rounds of replication: see rounds.h. One mutex guards everything. Whoever changes something wakes
 * all who wait, in any root: there are few, and changes are rare.
 */
#include "agent/peer/rounds.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MISSING_BYTES 128u /* bytes of the text that names missing ranks; more are "…" */

/* How a round ended. */
struct result {
	struct peer_save save; /* run 0: none has ended */
	int code;              /* 0: the save is global */
	char text[PEER_TEXT_MAX];
};

struct round_root {
	bool used;                  /* this entry is a root's */
	uint64_t root;              /* number of the root */
	uint64_t run;               /* run in force; 0: none */
	bool canceled;              /* rounds_cancel, until the next run */
	struct peer_part announced; /* the leader's part of the save; save.run 0: none */
	struct peer_save global;    /* run 0: none; of an earlier run until this one has one */
	bool open;                  /* the round of the announced save has not ended */
	uint32_t missing;           /* ranks whose part is not done */
	bool *done;                 /* owned; for each rank, whether its part is done */
	struct peer_part wrong;     /* what a host has in place of the save; ranks 0: nothing */
	struct result last;         /* the round that ended last */
	struct peer_save chosen;    /* what all hosts make durable; run 0: none */
	struct peer_save wanted;    /* oldest save that a host wants; run 0: none */
};

struct rounds {
	pthread_mutex_t lock;
	pthread_cond_t changed; /* anything in roots, or all_canceled */
	bool all_canceled;      /* also the roots that have no entry */
	struct round_root roots[ROUNDS_ROOTS_MAX];
};

int rounds_open(struct rounds **out, struct pawl_err *err)
{
	struct rounds *rounds = FAULT_MEM("rounds.open", calloc(1, sizeof(*rounds)));

	if (rounds == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for rounds of replication");
	}
	pthread_mutex_init(&rounds->lock, NULL);
	clock_cond_init(&rounds->changed);
	*out = rounds;
	return 0;
}

void rounds_close(struct rounds *rounds)
{
	if (rounds == NULL) {
		return;
	}
	for (uint32_t i = 0; i < ROUNDS_ROOTS_MAX; i++) {
		free(rounds->roots[i].done);
	}
	pthread_cond_destroy(&rounds->changed);
	pthread_mutex_destroy(&rounds->lock);
	free(rounds);
}

/* ---- all below with the lock, unless they take it ---- */

static struct round_root *find(struct rounds *rounds, uint64_t root)
{
	for (uint32_t i = 0; i < ROUNDS_ROOTS_MAX; i++) {
		if (rounds->roots[i].used && rounds->roots[i].root == root) {
			return &rounds->roots[i];
		}
	}
	return NULL;
}

/* Finds a root's entry, or makes one, in place of one without a run if need be. NULL: all roots
 * have a run. */
static struct round_root *find_or_make(struct rounds *rounds, uint64_t root)
{
	struct round_root *entry = find(rounds, root);

	for (uint32_t i = 0; i < ROUNDS_ROOTS_MAX && entry == NULL; i++) {
		entry = rounds->roots[i].used ? NULL : &rounds->roots[i];
	}
	for (uint32_t i = 0; i < ROUNDS_ROOTS_MAX && entry == NULL; i++) {
		entry = rounds->roots[i].run != 0 ? NULL : &rounds->roots[i];
	}
	if (entry != NULL && !(entry->used && entry->root == root)) {
		free(entry->done);
		*entry = (struct round_root){.used = true, .root = root};
	}
	return entry;
}

/* Begins or ends a run: nothing is announced then. */
static void set_run(struct round_root *entry, uint64_t run)
{
	entry->run = run;
	entry->announced = (struct peer_part){.save = {0}};
	entry->global = (struct peer_save){0};
	entry->chosen = (struct peer_save){0};
	entry->wanted = (struct peer_save){0};
	entry->open = false;
}

static void end_round(struct round_root *entry, int code, const char *text)
{
	ASSERT(entry->open);
	entry->open = false;
	entry->last = (struct result){.save = entry->announced.save, .code = code};
	snprintf(entry->last.text, sizeof(entry->last.text), "%s", text);
	if (code == 0) {
		entry->global = entry->announced.save;
	}
}

/* Ends the round, as a host has something else under the number of the save. */
static void end_mismatched(struct round_root *entry)
{
	const struct peer_part *own = &entry->announced;
	const struct peer_part *wrong = &entry->wrong;
	char text[PEER_TEXT_MAX];

	snprintf(text, sizeof(text),
		"rank %u's host has step %" PRIu64 " (%.48s) where rank 0's has step %" PRIu64
		" (%.48s): all ranks must save the same steps, in the same order",
		wrong->first_rank, wrong->step, wrong->tag, own->step, own->tag);
	end_round(entry, PAWL_EMISMATCH, text);
}

/* Ends the round if it is open, and all parts are done or one is of something else. */
static void end_if_over(struct round_root *entry)
{
	if (entry->open && entry->wrong.ranks > 0) {
		end_mismatched(entry);
	} else if (entry->open && entry->missing == 0) {
		end_round(entry, 0, "");
	}
}

/* ---- the leader's ---- */

void rounds_begin(struct rounds *rounds, uint64_t root, uint64_t run)
{
	struct round_root *entry;

	pthread_mutex_lock(&rounds->lock);
	entry = find_or_make(rounds, root);
	if (entry != NULL) {
		entry->canceled = false;
		set_run(entry, run);
	}
	pthread_cond_broadcast(&rounds->changed);
	pthread_mutex_unlock(&rounds->lock);
}

/* Goes on with the round of the announced save if it has failed. Parts that are done stay so. */
static void reopen(struct round_root *entry)
{
	if (!entry->open && !peer_save_is(&entry->global, &entry->announced.save)) {
		entry->open = true;
		entry->last = (struct result){.code = 0};
		end_if_over(entry);
	}
}

static int announce(struct round_root *entry, const struct peer_part *part,
	const struct peer_save *before, struct pawl_err *err)
{
	const struct peer_save *save = &part->save;
	bool *done;

	if (entry == NULL || entry->run == 0 || entry->run != save->run || part->world == 0) {
		return pawl_err_set(err, PAWL_EINVAL,
			"save %" PRIu64 " of %u ranks is not of the run in force", save->number,
			part->world);
	}
	if (peer_save_is(&entry->announced.save, save)) {
		reopen(entry);
		return 0;
	}
	done = FAULT_MEM("rounds.announce", calloc(part->world, sizeof(*done)));
	if (done == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM,
			"no memory to replicate the parts of %u ranks", part->world);
	}
	free(entry->done);
	entry->done = done;
	entry->missing = part->world;
	entry->announced = *part;
	entry->global = entry->global.run != 0 ? entry->global : *before;
	entry->wrong = (struct peer_part){.ranks = 0};
	entry->open = true;
	return 0;
}

int rounds_announce(struct rounds *rounds, uint64_t root, const struct peer_part *part,
	const struct peer_save *before, struct pawl_err *err)
{
	int rv;

	pthread_mutex_lock(&rounds->lock);
	rv = announce(find(rounds, root), part, before, err);
	pthread_cond_broadcast(&rounds->changed);
	pthread_mutex_unlock(&rounds->lock);
	return rv;
}

/* ---- reports ---- */

/* A part is done; its ranks are within those of the save. */
static void take_part(struct round_root *entry, const struct peer_part *part)
{
	const struct peer_part *own = &entry->announced;
	bool same = part->step == own->step && strcmp(part->tag, own->tag) == 0;

	if (!same && part->ranks > 0) {
		entry->wrong = *part;
	}
	for (uint32_t r = part->first_rank; same && r < part->first_rank + part->ranks; r++) {
		entry->missing -= entry->done[r] ? 0 : 1;
		entry->done[r] = true;
	}
	end_if_over(entry);
}

void rounds_done(struct rounds *rounds, uint64_t root, const struct peer_part *part, int code,
	const char *text)
{
	struct round_root *entry;
	uint32_t world;

	pthread_mutex_lock(&rounds->lock);
	entry = find(rounds, root);
	world = entry != NULL ? entry->announced.world : 0;
	if (entry == NULL || !peer_save_is(&entry->announced.save, &part->save) ||
		(code != 0 && !entry->open)) {
		pthread_mutex_unlock(&rounds->lock);
		return;
	}
	if (code != 0) {
		end_round(entry, code < 0 ? code : PAWL_EIO, text != NULL ? text : "");
	} else if (part->ranks <= world && part->first_rank <= world - part->ranks) {
		take_part(entry, part);
	}
	pthread_cond_broadcast(&rounds->changed);
	pthread_mutex_unlock(&rounds->lock);
}

/* ---- waits ---- */

static struct timespec due_in(int64_t timeout_ns)
{
	int64_t due_ns = clock_add_ns(clock_mono_ns(), timeout_ns > 0 ? timeout_ns : 0);

	return (struct timespec){.tv_sec = due_ns / NS_PER_S, .tv_nsec = due_ns % NS_PER_S};
}

/* Whether there is a save that is not the one that is known. */
static bool is_news(const struct peer_save *save, const struct peer_save *known)
{
	return save->run != 0 && !peer_save_is(save, known);
}

static int set_canceled(struct pawl_err *err)
{
	return pawl_err_set(err, PAWL_ECANCELED, "waiting for saves to replicate ends");
}

int rounds_next(struct rounds *rounds, uint64_t root, struct peer_save *announced,
	struct peer_save *global, int64_t timeout_ns, struct pawl_err *err)
{
	const struct timespec due = due_in(timeout_ns);
	const struct round_root nothing = {.used = false};
	const struct round_root *now;
	bool canceled;
	bool late = false;

	pthread_mutex_lock(&rounds->lock);
	for (;;) {
		now = find(rounds, root);
		canceled = now != NULL ? now->canceled : rounds->all_canceled;
		now = now != NULL ? now : &nothing;
		if (late || canceled || is_news(&now->announced.save, announced) ||
			is_news(&now->global, global)) {
			break;
		}
		late = pthread_cond_timedwait(&rounds->changed, &rounds->lock, &due) != 0;
	}
	if (!canceled) {
		*announced = now->announced.save;
		*global = now->global;
	}
	pthread_mutex_unlock(&rounds->lock);
	return canceled ? set_canceled(err) : 0;
}

/* ---- what becomes durable ---- */

void rounds_choose(struct rounds *rounds, uint64_t root, const struct peer_save *save)
{
	struct round_root *entry;

	pthread_mutex_lock(&rounds->lock);
	entry = find(rounds, root);
	if (entry != NULL && entry->run != 0 && entry->run == save->run) {
		entry->chosen = *save;
		pthread_cond_broadcast(&rounds->changed);
	}
	pthread_mutex_unlock(&rounds->lock);
}

void rounds_want(struct rounds *rounds, uint64_t root, const struct peer_save *save)
{
	struct round_root *entry;

	pthread_mutex_lock(&rounds->lock);
	entry = find(rounds, root);
	if (entry != NULL && entry->run != 0 && entry->run == save->run &&
		(entry->wanted.run == 0 || save->number < entry->wanted.number)) {
		entry->wanted = *save;
		pthread_cond_broadcast(&rounds->changed);
	}
	pthread_mutex_unlock(&rounds->lock);
}

/* Waits for something in a root's entry. Returns the entry, or one in which there is nothing; NULL:
 * the waits were canceled. The caller holds the lock. */
static struct round_root *await_news(struct rounds *rounds, uint64_t root, int64_t timeout_ns,
	bool (*has_news)(const struct round_root *entry, const struct peer_save *known),
	const struct peer_save *known, struct round_root *nothing)
{
	const struct timespec due = due_in(timeout_ns);
	bool late = false;

	for (;;) {
		struct round_root *entry = find(rounds, root);

		if (entry != NULL ? entry->canceled : rounds->all_canceled) {
			return NULL;
		}
		entry = entry != NULL ? entry : nothing;
		if (late || has_news(entry, known)) {
			return entry;
		}
		late = pthread_cond_timedwait(&rounds->changed, &rounds->lock, &due) != 0;
	}
}

static bool is_chosen(const struct round_root *entry, const struct peer_save *known)
{
	return is_news(&entry->chosen, known);
}

static bool is_wanted(const struct round_root *entry, const struct peer_save *known)
{
	return entry->wanted.run != 0;
}

int rounds_next_chosen(struct rounds *rounds, uint64_t root, struct peer_save *chosen,
	int64_t timeout_ns, struct pawl_err *err)
{
	struct round_root nothing = {.used = false};
	struct round_root *entry;

	pthread_mutex_lock(&rounds->lock);
	entry = await_news(rounds, root, timeout_ns, is_chosen, chosen, &nothing);
	if (entry != NULL) {
		*chosen = entry->chosen;
	}
	pthread_mutex_unlock(&rounds->lock);
	return entry != NULL ? 0 : set_canceled(err);
}

int rounds_take_wanted(struct rounds *rounds, uint64_t root, struct peer_save *wanted,
	int64_t timeout_ns, struct pawl_err *err)
{
	struct round_root nothing = {.used = false};
	struct round_root *entry;

	pthread_mutex_lock(&rounds->lock);
	entry = await_news(rounds, root, timeout_ns, is_wanted, NULL, &nothing);
	if (entry != NULL) {
		*wanted = entry->wanted;
		entry->wanted = (struct peer_save){0};
	}
	pthread_mutex_unlock(&rounds->lock);
	return entry != NULL ? 0 : set_canceled(err);
}

/* ---- the end of a round ---- */

/* Names the ranks that are missing, as "4 to 7, 12". */
static void name_missing(const struct round_root *entry, char text[MISSING_BYTES])
{
	uint32_t world = entry->announced.world;
	size_t at = 0;

	text[0] = '\0';
	for (uint32_t r = 0; r < world; r++) {
		uint32_t last = r;
		char range[32];

		if (entry->done[r]) {
			continue;
		}
		while (last + 1 < world && !entry->done[last + 1]) {
			last++;
		}
		if (last > r) {
			snprintf(range, sizeof(range), "%s%u to %u", at > 0 ? ", " : "", r, last);
		} else {
			snprintf(range, sizeof(range), "%s%u", at > 0 ? ", " : "", r);
		}
		if (at + strlen(range) + sizeof("…") > MISSING_BYTES) {
			snprintf(text + at, MISSING_BYTES - at, "…");
			return;
		}
		at += (size_t)snprintf(text + at, MISSING_BYTES - at, "%s", range);
		r = last;
	}
}

/* Returns whether there is nothing to wait for; then *rv is the result. */
static bool is_over(const struct round_root *entry, const struct peer_save *save, bool late,
	int *rv, struct pawl_err *err)
{
	char missing[MISSING_BYTES];

	if (entry != NULL && peer_save_is(&entry->last.save, save)) {
		*rv = entry->last.code == 0
			? 0
			: pawl_err_set(err, entry->last.code, "%s", entry->last.text);
		return true;
	}
	if (entry != NULL && peer_save_is(&entry->global, save)) {
		*rv = 0; /* a later round ended since */
		return true;
	}
	if (entry == NULL || entry->canceled || !peer_save_is(&entry->announced.save, save)) {
		*rv = pawl_err_set(err, PAWL_ECANCELED,
			"replication of save %" PRIu64 " was given up", save->number);
		return true;
	}
	if (late) {
		name_missing(entry, missing);
		*rv = pawl_err_set(err, PAWL_ETIMEDOUT,
			"replication: the parts of ranks %s are not at their peers", missing);
	}
	return late;
}

int rounds_await(struct rounds *rounds, uint64_t root, const struct peer_save *save,
	int64_t timeout_ns, struct pawl_err *err)
{
	const struct timespec due = due_in(timeout_ns);
	bool late = false;
	int rv = 0;

	pthread_mutex_lock(&rounds->lock);
	while (!is_over(find(rounds, root), save, late, &rv, err)) {
		late = pthread_cond_timedwait(&rounds->changed, &rounds->lock, &due) != 0;
	}
	pthread_mutex_unlock(&rounds->lock);
	return rv;
}

static void cancel(struct round_root *entry)
{
	entry->canceled = true;
	set_run(entry, 0);
}

void rounds_cancel(struct rounds *rounds, uint64_t root)
{
	struct round_root *entry;

	pthread_mutex_lock(&rounds->lock);
	for (uint32_t i = 0; i < ROUNDS_ROOTS_MAX && root == 0; i++) {
		cancel(&rounds->roots[i]);
	}
	rounds->all_canceled = rounds->all_canceled || root == 0;
	entry = root != 0 ? find_or_make(rounds, root) : NULL;
	if (entry != NULL) {
		cancel(entry);
	}
	pthread_cond_broadcast(&rounds->changed);
	pthread_mutex_unlock(&rounds->lock);
}
