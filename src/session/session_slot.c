/*
 * Inside a worker: the slot of a save (its place in the memory tier), and the arenas.
 *
 * The agent's answer takes three wake-ups of threads. A caller that knows that a save is about to
 * come can therefore announce it (pawl_ckpt_announce). That requests a slot, for as many bytes as
 * the last save had, while the caller describes its state. If the save needs more, a second request
 * follows.
 */
#include "session/session.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/pages.h"
#include "base/parallel.h"
#include "base/times.h"
#include "ckpt/tags.h"

#include <stdio.h>
#define POPULATE_BYTES (64u << 20) /* bytes that one thread populates */

/* ---- arenas ---- */

/* Waits until the preparer has populated its arena. */
static void join_preparer(struct pawl_ckpt *ckpt)
{
	if (ckpt->memory.preparing) {
		pthread_join(ckpt->memory.preparer, NULL);
		ckpt->memory.preparing->ready = true;
		ckpt->memory.preparing = NULL;
	}
}

void session_drop_arenas(struct pawl_ckpt *ckpt)
{
	join_preparer(ckpt);
	snap_wait(ckpt->snap);
	for (int s = 0; s < ARENA_SLOTS; s++) {
		arena_unmap(ckpt->memory.arenas[s].map, ckpt->memory.arenas[s].size_bytes);
		ckpt->memory.arenas[s] = (struct session_arena){0};
	}
}

/* Populates piece i, counted from the arena's end, since a preparer populates from the start. */
static void populate_piece(void *user, size_t i)
{
	const struct session_arena *arena = user;
	uint64_t past = (uint64_t)i * POPULATE_BYTES;
	uint64_t left = arena->size_bytes - past;
	uint64_t piece_bytes = left < POPULATE_BYTES ? left : POPULATE_BYTES;

	pages_populate(arena->map + left - piece_bytes, piece_bytes);
}

/* Populates the arena that a save waits for, on all cores, since training waits too. */
static void prepare_now(struct pawl_ckpt *ckpt, struct session_arena *arena)
{
	if (ckpt->memory.preparing == arena &&
		pthread_tryjoin_np(ckpt->memory.preparer, NULL) == 0) {
		ckpt->memory.preparing = NULL; /* the preparer has finished */
	} else {
		parallel_for((arena->size_bytes + POPULATE_BYTES - 1) / POPULATE_BYTES,
			populate_piece, arena);
		if (ckpt->memory.preparing == arena) {
			join_preparer(ckpt);
		}
	}
	arena->ready = true;
}

/* Populates an arena that the next save may need. */
static void *prepare_other(void *user)
{
	const struct session_arena *arena = user;

	pages_populate(arena->map, arena->size_bytes);
	return NULL;
}

/* Maps the arenas that came with a grant, and populates the granted one. session_prepare_next
 * populates the others in the background. */
static int take_arenas(struct pawl_ckpt *ckpt, const struct frame_grant *grant,
	const struct link_reply *reply, struct pawl_err *err)
{
	struct session_arena *granted = &ckpt->memory.arenas[grant->slot];

	for (uint32_t i = 0; i < grant->arenas_n; i++) {
		uint8_t s = grant->arenas[i].slot;
		uint64_t size = grant->arenas[i].size_bytes;

		if (s >= ARENA_SLOTS || i >= reply->fds_n) {
			return pawl_err_set(err, PAWL_ECORRUPT, "malformed grant");
		}
		if (ckpt->memory.preparing == &ckpt->memory.arenas[s]) {
			join_preparer(ckpt);
		}
		arena_unmap(ckpt->memory.arenas[s].map, ckpt->memory.arenas[s].size_bytes);
		ckpt->memory.arenas[s] = (struct session_arena){.size_bytes = size};
		ckpt->memory.arenas[s].map = arena_map_fd(reply->fds[i], size);
		if (!ckpt->memory.arenas[s].map) {
			ckpt->memory.arenas[s].size_bytes = 0;
			return pawl_err_sys(err, "map an arena of %llu bytes",
				(unsigned long long)size);
		}
	}
	if (!granted->map || granted->size_bytes < ckpt->slot_request.need_bytes) {
		return pawl_err_set(err, PAWL_ECORRUPT, "malformed grant: its arena %s",
			granted->map ? "is smaller than the request" : "was never sent");
	}
	if (!granted->ready) {
		prepare_now(ckpt, granted);
	}
	return 0;
}

void session_prepare_next(struct pawl_ckpt *ckpt, int slot)
{
	if (ckpt->memory.preparing && pthread_tryjoin_np(ckpt->memory.preparer, NULL) == 0) {
		ckpt->memory.preparing->ready = true;
		ckpt->memory.preparing = NULL;
	}
	for (int s = 0; s < ARENA_SLOTS && !ckpt->memory.preparing; s++) {
		struct session_arena *other = &ckpt->memory.arenas[s];

		if (s != slot && other->map && !other->ready &&
			pthread_create(&ckpt->memory.preparer, NULL, prepare_other, other) == 0) {
			ckpt->memory.preparing = other;
		}
	}
}

/* ---- requests ---- */

static int send_slot_request(struct pawl_ckpt *ckpt, uint64_t id, uint64_t step,
	uint64_t need_bytes, struct pawl_err *err)
{
	struct session_slot_request *request = &ckpt->slot_request;
	struct frame_begin begin = {.seq = session_seq(ckpt, id),
		.step = step,
		.need_bytes = need_bytes,
		.flags = ckpt->options.named ? (uint8_t)ckpt->current.flags : 0,
		.since_ns = ckpt->opened_ns};
	int rv;

	if (ckpt->options.named) {
		snprintf(begin.tag, sizeof(begin.tag), "%s", ckpt->current.tag);
	} else {
		tag_of_step(begin.tag, sizeof(begin.tag), step);
	}
	rv = link_request(ckpt->link, &request->call, &ckpt->frame, PROTO_BEGIN, &begin,
		&request->reply, err);
	request->pending = rv == 0;
	request->id = id;
	request->step = step;
	request->need_bytes = need_bytes;
	return rv;
}

/* Waits for the answer. Returns 0 and the slot (-1: stream), or why there is none. */
static int await_slot(struct pawl_ckpt *ckpt, int *slot, struct pawl_err *err)
{
	struct session_slot_request *request = &ckpt->slot_request;
	struct frame_grant grant;
	int rv = link_await(ckpt->link, &request->call, times_ms(TIME_SESSION_BEGIN), err);

	request->pending = false;
	if (rv != 0) {
		return rv;
	}
	rv = link_reply_get(&request->reply, PROTO_GRANT, &grant, sizeof(grant), err);
	if (rv == 0 && grant.slot >= ARENA_SLOTS) {
		rv = pawl_err_set(err, PAWL_ECORRUPT, "malformed grant");
	}
	if (rv == 0) {
		session_set_seq(ckpt, request->id, grant.seq);
	}
	if (rv == 0 && !grant.streamed) {
		rv = take_arenas(ckpt, &grant, &request->reply, err);
	} else if (rv == 0) {
		snprintf(ckpt->current.stream_dir, sizeof(ckpt->current.stream_dir), "%s",
			grant.dir);
	}
	link_reply_close(&request->reply);
	*slot = rv == 0 && !grant.streamed ? grant.slot : -1;
	return rv;
}

int session_request_slot(struct pawl_ckpt *ckpt, uint64_t id, uint64_t need_bytes, int *slot,
	struct pawl_err *err)
{
	bool ahead = ckpt->slot_request.pending;
	int rv = 0;

	ASSERT(!ahead ||
		(ckpt->slot_request.id == id && ckpt->slot_request.step == ckpt->current.step));
	if (!ahead) {
		rv = send_slot_request(ckpt, id, ckpt->current.step, need_bytes, err);
	}
	if (rv == 0) {
		rv = await_slot(ckpt, slot, err);
	}
	if (rv == 0 && ahead && ckpt->slot_request.need_bytes < need_bytes) {
		rv = send_slot_request(ckpt, id, ckpt->current.step, need_bytes, err);
		rv = rv == 0 ? await_slot(ckpt, slot, err) : rv;
	}
	return rv;
}

/* Fails save id, which will not come, and reports that to the agent. */
static void cancel_save(struct pawl_ckpt *ckpt, uint64_t id, const char *why)
{
	int slot;

	session_set_failed(ckpt, id, PAWL_ECANCELED, why, -1, -1);
	session_send_fail(ckpt, &ckpt->frame, id, PAWL_ECANCELED, why);
	if (ckpt->slot_request.pending) {
		/* the answer may bring arenas, which the agent sends once */
		(void)await_slot(ckpt, &slot, NULL);
	}
}

void session_cancel_request(struct pawl_ckpt *ckpt, const char *why)
{
	if (ckpt->slot_request.pending) {
		cancel_save(ckpt, ckpt->slot_request.id, why);
	}
}

void session_skip(struct pawl_ckpt *ckpt, const char *why)
{
	if (ckpt->numbered) {
		cancel_save(ckpt,
			ckpt->slot_request.pending ? ckpt->slot_request.id : session_new_save(ckpt),
			why);
	}
}

void session_skip_missed(struct pawl_ckpt *ckpt)
{
	bool missed;

	pthread_mutex_lock(&ckpt->state);
	missed = session_has_missed(ckpt);
	pthread_mutex_unlock(&ckpt->state);
	if (missed) {
		session_skip(ckpt, "a save was due, but this rank learned of it too late");
	}
}

void session_forget_request(struct pawl_ckpt *ckpt)
{
	ckpt->slot_request.pending = false;
	link_reply_close(&ckpt->slot_request.reply);
}

void session_undo_request(struct pawl_ckpt *ckpt)
{
	pthread_mutex_lock(&ckpt->state);
	ASSERT(ckpt->saves.last_id == ckpt->slot_request.id); /* the next save gets this id */
	ckpt->saves.last_id--;
	pthread_mutex_unlock(&ckpt->state);
	session_forget_request(ckpt);
}

void session_slot_deinit(struct pawl_ckpt *ckpt)
{
	session_drop_arenas(ckpt);
	link_reply_deinit(&ckpt->slot_request.reply);
}

void pawl_ckpt_announce(struct pawl_ckpt *ckpt, uint64_t step)
{
	if (session_is_forked(ckpt, NULL)) {
		return;
	}
	pthread_mutex_lock(&ckpt->saving);
	ckpt->current.announced_ns = clock_mono_ns(); /* the stall counts from here */
	session_cancel_request(ckpt, "the save was announced twice");
	session_skip_missed(ckpt);
	if (ckpt->link && link_alive(ckpt->link) && ckpt->slot_request.need_bytes > 0 &&
		!ckpt->options.named) {
		if (send_slot_request(ckpt, session_new_save(ckpt), step,
			    ckpt->slot_request.need_bytes, NULL) != 0) {
			session_undo_request(ckpt); /* the save sends its own request */
		}
	}
	pthread_mutex_unlock(&ckpt->saving);
}

void pawl_ckpt_skip(struct pawl_ckpt *ckpt)
{
	if (session_is_forked(ckpt, NULL)) {
		return;
	}
	pthread_mutex_lock(&ckpt->saving);
	ckpt->current.announced_ns = 0;
	session_skip(ckpt, "the state could not be described");
	pthread_mutex_unlock(&ckpt->saving);
}
