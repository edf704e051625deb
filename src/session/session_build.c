/*
 * Inside a worker: a save by tag, put together partition by partition.
 *
 * Happy path: begin -> add -> commit. add lays the partition out behind the ones before it,
 * requests a slot, and copies the bytes. If the arena is too small, it requests the slot again, and
 * the arena's bytes stay. commit reports to the agent what was staged. Where the agent refuses
 * memory, this and all further partitions of the save are written to the store instead. A failure
 * fails the save for all ranks at once, and commit returns the error.
 */
#include "session/session.h"

#include "base/assert.h"
#include "base/err.h"

#include <stdio.h>

static void set_building(struct pawl_ckpt *ckpt, uint64_t id)
{
	pthread_mutex_lock(&ckpt->state);
	ckpt->saves.building_id = id;
	pthread_mutex_unlock(&ckpt->state);
}

/* Ends the save being put together: it has failed, or is committed. */
static void end_build(struct pawl_ckpt *ckpt)
{
	ASSERT(ckpt->build.open);
	session_stream_close(ckpt->build.stream);
	ckpt->build.stream = NULL;
	ckpt->build.open = false;
	set_building(ckpt, 0);
}

static int fail_build(struct pawl_ckpt *ckpt, int rv, const char *why)
{
	uint64_t id = ckpt->build.id;

	session_set_failed(ckpt, id, rv, why, -1, -1);
	session_send_fail(ckpt, &ckpt->frame, id, rv, why);
	end_build(ckpt);
	return rv;
}

int pawl_ckpt_begin(struct pawl_ckpt *ckpt, const char *tag, uint64_t step, uint32_t flags,
	uint64_t *id, struct pawl_err *err)
{
	int rv = session_lock_for_save(ckpt, tag, step, flags, err);

	if (rv != 0) {
		return rv;
	}
	session_free_parts(ckpt);
	ckpt->layout.pieces.n = 0;
	ckpt->current.summing = false;
	ckpt->current.proof = SNAP_COPIED;
	ckpt->build.open = true;
	ckpt->build.lost = false;
	ckpt->build.slot = SESSION_NO_SLOT;
	ckpt->build.used_bytes = 0;
	ckpt->build.id = session_new_save(ckpt);
	*id = ckpt->build.id;
	set_building(ckpt, *id);
	pthread_mutex_unlock(&ckpt->saving);
	return 0;
}

/* snap_done_fn */
static void copied(void *user, int rv, size_t piece)
{
	struct pawl_ckpt *ckpt = user;

	ckpt->build.rv = rv;
}

/* Makes room for need_bytes in all. Requests more than that, so as not to send a request for each
 * partition. */
static int ensure_room(struct pawl_ckpt *ckpt, uint64_t need_bytes, struct pawl_err *err)
{
	struct session_build *build = &ckpt->build;
	uint64_t request_bytes = need_bytes;

	if (build->slot == -1 ||
		(build->slot >= 0 && ckpt->memory.arenas[build->slot].size_bytes >= need_bytes)) {
		return 0;
	}
	if (build->slot == SESSION_NO_SLOT) {
		request_bytes =
			request_bytes > build->last_bytes ? request_bytes : build->last_bytes;
	} else if (request_bytes < 2 * build->used_bytes) {
		request_bytes = 2 * build->used_bytes;
	}
	return session_request_slot(ckpt, build->id, request_bytes, &build->slot, err);
}

/* Copies the newest partition into the arena. */
static int stage(struct pawl_ckpt *ckpt, struct pawl_err *err)
{
	const struct session_arena *arena;
	size_t first = ckpt->layout.pieces.n;
	int rv;

	ASSERT(ckpt->build.slot >= 0);
	arena = &ckpt->memory.arenas[ckpt->build.slot];
	ASSERT(arena->size_bytes >= ckpt->build.used_bytes);
	rv = session_list_part(ckpt, ckpt->layout.parts_n - 1, arena->map, err);
	if (rv != 0 || ckpt->layout.pieces.n == first) {
		return rv;
	}
	rv = snap_begin(ckpt->snap, ckpt->layout.pieces.at + first, ckpt->layout.pieces.n - first,
		false, copied, ckpt, &ckpt->current.proof, err);
	if (rv != 0) {
		return rv;
	}
	snap_wait(ckpt->snap);
	session_prepare_next(ckpt, ckpt->build.slot);
	return ckpt->build.rv == 0
		? 0
		: pawl_err_set(err, ckpt->build.rv, "could not be copied from its CUDA device");
}

static int stream(struct pawl_ckpt *ckpt, struct pawl_err *err)
{
	int rv = 0;

	if (!ckpt->build.stream) {
		session_drop_arenas(ckpt); /* the agent has what was staged so far */
		rv = session_stream_open(&ckpt->build.stream, ckpt, err);
	}
	return rv == 0
		? session_stream_part(ckpt->build.stream, ckpt, ckpt->layout.parts_n - 1, err)
		: rv;
}

/* Checks that the save has not failed, and that we are still connected to the agent that has the
 * partitions staged so far. Connects if nothing was staged yet. */
static int ensure_same_agent(struct pawl_ckpt *ckpt, struct pawl_err *err)
{
	const struct session_build *build = &ckpt->build;
	struct pawl_ckpt_status status;
	int rv = pawl_ckpt_status(ckpt, build->id, &status, err);

	if (rv == 0 && status.level == PAWL_CKPT_FAILED) {
		return pawl_err_set(err, status.code, "%s", status.why);
	}
	if (rv != 0) {
		return rv;
	}
	if (build->lost ||
		(build->slot != SESSION_NO_SLOT && !(ckpt->link && link_alive(ckpt->link)))) {
		return pawl_err_set(err, PAWL_EPEER,
			"the agent is gone, and with it the partitions staged so far");
	}
	return session_ensure_connected(ckpt, err);
}

/* Copies the newest partition into the arena, or writes it to the store. */
static int put_part(struct pawl_ckpt *ckpt, struct pawl_err *err)
{
	struct session_build *build = &ckpt->build;
	const struct record_part *record = ckpt->layout.parts[ckpt->layout.parts_n - 1].record;
	uint64_t end =
		record->arena_off + (record->size_bytes + CKPT_PAGE - 1) / CKPT_PAGE * CKPT_PAGE;
	int rv = ensure_same_agent(ckpt, err);

	if (rv == 0) {
		rv = ensure_room(ckpt, end, err);
	}
	if (rv == 0 && build->slot < 0) {
		return stream(ckpt, err);
	}
	if (rv == 0) {
		rv = stage(ckpt, err);
		build->used_bytes = end;
	}
	return rv;
}

static int check_open(const struct pawl_ckpt *ckpt, struct pawl_err *err)
{
	return ckpt->build.open ? 0 : pawl_err_set(err, PAWL_EINVAL, "no save is in progress");
}

int pawl_ckpt_add(struct pawl_ckpt *ckpt, const struct pawl_ckpt_part *part, struct pawl_err *err)
{
	struct pawl_err why = {0};
	int rv;

	if (session_is_forked(ckpt, err)) {
		return PAWL_EPEER;
	}
	pthread_mutex_lock(&ckpt->saving);
	rv = check_open(ckpt, &why);
	if (rv == 0) {
		rv = session_append_part(ckpt, part, ckpt->build.used_bytes, &why);
		if (rv == 0) {
			rv = put_part(ckpt, &why);
		}
		if (rv != 0) {
			pawl_err_prefix(&why, rv, "save %.64s: %.64s", ckpt->current.tag,
				part->name);
		}
		if (rv != 0 && rv != PAWL_EEXIST) {
			fail_build(ckpt, rv, why.msg);
		}
	}
	pthread_mutex_unlock(&ckpt->saving);
	if (rv != 0 && err) {
		*err = why;
	}
	return rv;
}

int pawl_ckpt_commit(struct pawl_ckpt *ckpt, struct pawl_err *err)
{
	struct session_build *build = &ckpt->build;
	struct pawl_err why = {0};
	int rv;

	if (session_is_forked(ckpt, err)) {
		return PAWL_EPEER;
	}
	pthread_mutex_lock(&ckpt->saving);
	rv = check_open(ckpt, &why);
	if (rv == 0) {
		rv = ensure_same_agent(ckpt, &why);
		if (rv == 0 && build->slot == SESSION_NO_SLOT) {
			rv = session_request_slot(ckpt, build->id, 0, &build->slot, &why);
		}
		if (rv == 0) {
			session_record_stall(ckpt, build->id);
			session_send_staged(ckpt, build->id);
			build->last_bytes = build->used_bytes;
			end_build(ckpt);
		} else {
			pawl_err_prefix(&why, rv, "save %.64s", ckpt->current.tag);
			fail_build(ckpt, rv, why.msg);
		}
	}
	pthread_mutex_unlock(&ckpt->saving);
	if (rv != 0 && err) {
		*err = why;
	}
	return rv;
}

void pawl_ckpt_drop(struct pawl_ckpt *ckpt, const char *why)
{
	if (session_is_forked(ckpt, NULL)) {
		return;
	}
	pthread_mutex_lock(&ckpt->saving);
	if (ckpt->build.open) {
		fail_build(ckpt, PAWL_ECANCELED, why);
	}
	pthread_mutex_unlock(&ckpt->saving);
}
