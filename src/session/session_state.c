/* Inside a worker: sending to the agent, the numbers and statuses of saves, and what the agent
 * reports of them. Waits for no answer, and does not call the snapshot engine. See session.h. */
#include "session/session.h"

#include "base/err.h"

#include <stdio.h>
#include <unistd.h>

bool session_is_forked(const struct pawl_ckpt *ckpt, struct pawl_err *err)
{
	if (ckpt->pid == getpid()) {
		return false;
	}
	pawl_err_set(err, PAWL_EPEER,
		"this process is a fork of the one (pid %d) that opened the checkpointer",
		(int)ckpt->pid);
	return true;
}

struct link *session_link(struct pawl_ckpt *ckpt)
{
	struct link *link;

	pthread_mutex_lock(&ckpt->state);
	link = ckpt->link ? link_hold(ckpt->link) : NULL;
	pthread_mutex_unlock(&ckpt->state);
	return link;
}

int session_send(struct pawl_ckpt *ckpt, struct wire_out *out, enum proto_type type,
	const void *body, struct pawl_err *err)
{
	struct link *link = session_link(ckpt);
	int rv;

	if (!link) {
		return pawl_err_set(err, PAWL_EPEER, "no agent");
	}
	rv = link_send(link, out, type, body, err);
	link_release(link);
	return rv;
}

/* ---- numbers ---- */

/* Saves that all ranks make have one number on all ranks. The lower half counts saves since the
 * ranks restored together; neither an agent's death nor a failed save changes it. The upper half
 * counts the joint restores, so that numbers only grow. */
static uint64_t number_of(const struct pawl_ckpt *ckpt, uint64_t id)
{
	return id > ckpt->numbers.base
		? (uint64_t)ckpt->numbers.rounds << 32 | (id - ckpt->numbers.base)
		: 0;
}

uint64_t session_last_number(const struct pawl_ckpt *ckpt)
{
	return (uint64_t)ckpt->numbers.rounds << 32 | (ckpt->saves.last_id - ckpt->numbers.base);
}

void session_reset_numbers(struct pawl_ckpt *ckpt, uint32_t rounds)
{
	pthread_mutex_lock(&ckpt->state);
	ckpt->numbers.base = ckpt->saves.last_id;
	ckpt->numbers.rounds = rounds;
	pthread_mutex_unlock(&ckpt->state);
}

/* ---- statuses ---- */

uint64_t session_new_save(struct pawl_ckpt *ckpt)
{
	struct session_status *entry;
	uint64_t id;

	pthread_mutex_lock(&ckpt->state);
	id = ++ckpt->saves.last_id;
	entry = &ckpt->saves.statuses[id % PAWL_CKPT_STATUS_KEPT];
	*entry = (struct session_status){.id = id,
		.status = {.level = PAWL_CKPT_STAGING, .part = -1, .storage = -1}};
	pthread_mutex_unlock(&ckpt->state);
	return id;
}

struct session_status *session_find_status(struct pawl_ckpt *ckpt, uint64_t id)
{
	struct session_status *status = &ckpt->saves.statuses[id % PAWL_CKPT_STATUS_KEPT];

	return id != 0 && status->id == id ? status : NULL;
}

/* Returns the agent's number for a save. Called with state. */
static uint64_t seq_of(const struct pawl_ckpt *ckpt, struct session_status *entry)
{
	if (ckpt->numbered && entry->seq == 0) {
		entry->seq = number_of(ckpt, entry->id);
	}
	return entry->seq;
}

/* Returns the id of the save that the agent has this number for, or 0. Called with state. */
static uint64_t id_of(const struct pawl_ckpt *ckpt, uint64_t seq)
{
	for (uint32_t i = 0; i < PAWL_CKPT_STATUS_KEPT; i++) {
		if (seq != 0 && ckpt->saves.statuses[i].seq == seq) {
			return ckpt->saves.statuses[i].id;
		}
	}
	return 0;
}

uint64_t session_seq(struct pawl_ckpt *ckpt, uint64_t id)
{
	struct session_status *entry;
	uint64_t seq;

	pthread_mutex_lock(&ckpt->state);
	entry = session_find_status(ckpt, id);
	seq = entry ? seq_of(ckpt, entry) : 0;
	pthread_mutex_unlock(&ckpt->state);
	return seq;
}

void session_set_seq(struct pawl_ckpt *ckpt, uint64_t id, uint64_t seq)
{
	struct session_status *entry;

	pthread_mutex_lock(&ckpt->state);
	entry = session_find_status(ckpt, id);
	if (entry) {
		entry->seq = seq;
	}
	pthread_mutex_unlock(&ckpt->state);
}

/* Called with state. */
static void set_failed(struct session_status *entry, int code, const char *why, int part,
	int storage)
{
	if (entry->status.level == PAWL_CKPT_FAILED || entry->status.level == PAWL_CKPT_DURABLE) {
		return;
	}
	entry->status.level = PAWL_CKPT_FAILED;
	entry->status.code = code;
	entry->status.part = part;
	entry->status.storage = storage;
	snprintf(entry->status.why, sizeof(entry->status.why), "%s", why);
}

void session_set_level(struct pawl_ckpt *ckpt, uint64_t id, enum pawl_ckpt_level level)
{
	struct session_status *entry;

	pthread_mutex_lock(&ckpt->state);
	entry = session_find_status(ckpt, id);
	if (entry && entry->status.level != PAWL_CKPT_FAILED && entry->status.level < level) {
		entry->status.level = level;
		if (level == PAWL_CKPT_DURABLE) {
			entry->status.code = 0; /* the storage works again */
		}
	}
	pthread_cond_broadcast(&ckpt->changed);
	pthread_mutex_unlock(&ckpt->state);
}

void session_set_failed(struct pawl_ckpt *ckpt, uint64_t id, int code, const char *why, int part,
	int storage)
{
	struct session_status *entry;

	pthread_mutex_lock(&ckpt->state);
	entry = session_find_status(ckpt, id);
	if (entry) {
		set_failed(entry, code, why, part, storage);
	}
	pthread_cond_broadcast(&ckpt->changed);
	pthread_mutex_unlock(&ckpt->state);
}

int pawl_ckpt_status(struct pawl_ckpt *ckpt, uint64_t id, struct pawl_ckpt_status *status,
	struct pawl_err *err)
{
	struct session_status *entry;

	pthread_mutex_lock(&ckpt->state);
	entry = session_find_status(ckpt, id);
	if (entry) {
		*status = entry->status;
	}
	pthread_mutex_unlock(&ckpt->state);
	return entry ? 0
		     : pawl_err_set(err, PAWL_ENOENT, "save %llu: unknown, or no longer remembered",
			       (unsigned long long)id);
}

/* ---- events from the agent; run by the receiving thread ---- */

void session_handle_agent_lost(struct pawl_ckpt *ckpt)
{
	pthread_mutex_lock(&ckpt->state);
	for (uint32_t i = 0; i < PAWL_CKPT_STATUS_KEPT; i++) {
		struct session_status *entry = &ckpt->saves.statuses[i];

		if (entry->id != 0 && !entry->superseded) {
			set_failed(entry, PAWL_EPEER,
				entry->status.level == PAWL_CKPT_REPLICATED
					? "the agent is gone; the save was not durable yet, but "
					  "other hosts have it in memory"
					: "the agent is gone, and with it what was not durable yet",
				-1, -1);
		}
	}
	/* Without yes_at the next agent decides again. With it, other ranks got yes, too. */
	if (ckpt->questions.at[QUESTION_DUE].yes_at == UINT64_MAX) {
		ckpt->questions.at[QUESTION_DUE].yes_pending = false;
	}
	pthread_cond_broadcast(&ckpt->changed);
	pthread_mutex_unlock(&ckpt->state);
}

/* The storage failed; the save stays as safe as it is. */
static void set_trouble(struct pawl_ckpt *ckpt, uint64_t id, int code, const char *why)
{
	struct session_status *entry;

	pthread_mutex_lock(&ckpt->state);
	entry = session_find_status(ckpt, id);
	if (entry) {
		entry->status.code = code;
		snprintf(entry->status.why, sizeof(entry->status.why), "%s", why);
	}
	pthread_cond_broadcast(&ckpt->changed);
	pthread_mutex_unlock(&ckpt->state);
}

static void set_superseded(struct pawl_ckpt *ckpt, uint64_t id)
{
	struct session_status *entry;

	pthread_mutex_lock(&ckpt->state);
	entry = session_find_status(ckpt, id);
	if (entry) {
		entry->superseded = true;
	}
	pthread_cond_broadcast(&ckpt->changed);
	pthread_mutex_unlock(&ckpt->state);
}

void session_handle_level(struct pawl_ckpt *ckpt, const struct frame_level *frame)
{
	uint64_t id;

	pthread_mutex_lock(&ckpt->state);
	id = id_of(ckpt, frame->seq);
	pthread_mutex_unlock(&ckpt->state);
	switch (frame->level) {
	case LEVEL_COMMITTED:
		session_set_level(ckpt, id, PAWL_CKPT_COMMITTED);
		break;
	case LEVEL_REPLICATED:
		session_set_level(ckpt, id, PAWL_CKPT_REPLICATED);
		break;
	case LEVEL_DURABLE:
		session_set_level(ckpt, id, PAWL_CKPT_DURABLE);
		break;
	case LEVEL_FAILED:
		session_set_failed(ckpt, id, frame->code, frame->why, -1, -1);
		break;
	case LEVEL_SUPERSEDED:
		set_superseded(ckpt, id);
		break;
	case LEVEL_TROUBLE:
		set_trouble(ckpt, id, frame->code, frame->why);
		break;
	default:
		break; /* an agent sends no other */
	}
}

void session_handle_diverged(struct pawl_ckpt *ckpt, const struct frame_diverged *frame)
{
	pthread_mutex_lock(&ckpt->state);
	if (ckpt->diverged.n < SESSION_DIVERGED_MAX) {
		snprintf(ckpt->diverged.names[ckpt->diverged.n++], CKPT_NAME_MAX, "%s",
			frame->part);
	}
	pthread_mutex_unlock(&ckpt->state);
}
