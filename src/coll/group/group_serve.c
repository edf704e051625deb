/*
 * A server's side of a group: it has no vectors, and adds those of the ranks. See group_impl.h for
 * the locks.
 *
 * No thread submits operations here. What is to be done is what the first rank to begin on a
 * channel says in its header; the headers of the others must say the same.
 */
#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/times.h"
#include "coll/group/group_impl.h"

#include <stdlib.h>
#include <string.h>

/* The headers that have come for the next operation of each channel, and the operations under
 * way. */
struct group_heads {
	struct pawl_work works[COLL_CHANNELS]; /* under way, if the channel has one */
	uint64_t next[COLL_CHANNELS];          /* per channel: least number that may come */
	struct group_head *heads; /* in this allocation; index channel * ranks + rank */
};

int group_heads_init(struct pawl_group *group, struct pawl_err *err)
{
	size_t all = (size_t)COLL_CHANNELS * group->ranks;
	struct group_heads *heads =
		FAULT_MEM("coll.group", calloc(1, sizeof(*heads) + all * sizeof(*heads->heads)));

	if (!heads) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for %u ranks", group->ranks);
	}
	heads->heads = (struct group_head *)(void *)(heads + 1);
	for (uint32_t c = 0; c < COLL_CHANNELS; c++) {
		heads->next[c] = c;
	}
	group->heads = heads;
	return 0;
}

/* Hands the headers of ranks that have come so far to the operation. */
static int hand_over(struct pawl_group *group, struct pawl_work *work, struct pawl_err *err)
{
	struct group_head *theirs =
		&group->heads->heads[work->number % COLL_CHANNELS * group->ranks];
	struct group_slot *slot = priv_of(work)->slot;
	struct group_head *ours = slot->heads;
	int rv = 0;

	for (uint32_t p = 0; p < group->ranks && rv == 0; p++) {
		memcpy(ours[p].bytes, theirs[p].bytes, GROUP_HEAD_BYTES);
		ours[p].got = theirs[p].got;
		theirs[p].got = 0;
		if (ours[p].got == GROUP_HEAD_BYTES) {
			slot->heads_left--;
			rv = group_head_check(ours[p].bytes, slot->head, &work->call,
				priv_of(work)->caller, p, err);
		}
		if (rv == 0 && ours[p].got > 0 && !ours[p].comes) {
			rv = pawl_err_set(err, PAWL_EPEER, "rank %u takes a server for another", p);
		}
	}
	return rv;
}

/* Begins the collective that a rank has begun. */
static int begin(struct pawl_group *group, uint32_t channel, uint32_t rank, struct pawl_err *err)
{
	struct group_heads *heads = group->heads;
	const uint8_t *head = heads->heads[channel * group->ranks + rank].bytes;
	struct pawl_work *work = &heads->works[channel];
	struct pawl_coll_call call;
	uint64_t number;
	int rv = group_head_decode(head, rank, &call, &number, err);

	if (rv == 0 && (number % COLL_CHANNELS != channel || number < heads->next[channel])) {
		rv = pawl_err_set(err, PAWL_EPEER, "rank %u is at collective %llu again", rank,
			(unsigned long long)number);
	}
	if (rv != 0) {
		return rv;
	}
	*work = (struct pawl_work){.call = call, .number = number};
	priv_of(work)->caller = rank;
	priv_of(work)->deadline_ns = NEVER_NS;
	heads->next[channel] = number + COLL_CHANNELS;
	rv = group_slot_take(group, work, err);
	if (rv == 0) {
		memcpy(priv_of(work)->slot->head, head, GROUP_HEAD_BYTES);
		rv = hand_over(group, work, err);
	}
	pthread_mutex_lock(&group->state);
	group_push(&group->channels[channel], work);
	group->pending++;
	group->submitted = group->submitted > number ? group->submitted : number + 1;
	pthread_mutex_unlock(&group->state);
	return rv;
}

static bool hear_channel(struct pawl_group *group, uint32_t channel)
{
	struct coll_port *port = group->port;
	struct pawl_err err;
	bool moved = false;

	for (uint32_t p = 0; p < group->ranks; p++) {
		struct group_head *head = &group->heads->heads[channel * group->ranks + p];
		size_t n = port->receive(port, p, channel, head->bytes + head->got,
			GROUP_HEAD_BYTES - head->got);

		head->got = (uint8_t)(head->got + n);
		moved |= n > 0;
		if (head->got == GROUP_HEAD_BYTES) {
			if (begin(group, channel, p, &err) != 0) {
				group_fail(group, &err);
			}
			return true;
		}
	}
	return moved;
}

bool group_hear_heads(struct pawl_group *group)
{
	bool moved = false;

	for (uint32_t c = 0; c < COLL_CHANNELS && group->failure.code == 0; c++) {
		if (group->channels[c].first == NULL) {
			moved |= hear_channel(group, c);
		}
	}
	return moved;
}

static bool all_left(const struct pawl_group *group)
{
	uint64_t number;
	bool left = true;

	for (uint32_t p = 0; p < group->ranks; p++) {
		left &= coll_talk_left(&group->talk, p, &number);
	}
	return left;
}

int coll_group_serve(struct pawl_group *group, const atomic_bool *stop, struct pawl_err *err)
{
	ASSERT(group->heads != NULL);
	pthread_mutex_lock(&group->driving);
	while (group->failure.code == 0 && !atomic_load(stop) &&
		(group->pending > 0 || !all_left(group))) {
		group_drive(group, times_ns(TIME_GROUP_WAIT));
	}
	pthread_mutex_unlock(&group->driving);
	return group->failure.code == 0
		? 0
		: pawl_err_set(err, group->failure.code, "%s", group->failure.msg);
}
