/*
 * A server's side of a group: it has no vectors, and adds those of the ranks. See group_impl.h for
 * the locks.
 *
 * No thread submits operations here. The first rank that begins on a channel says in its header
 * what is to be done; the headers of the others must say the same.
 */
#include "base/err.h"
#include "base/fault.h"
#include "coll/group/group_impl.h"

#include <stdlib.h>
#include <string.h>

/* The headers that have come for the next operation of each channel, and the operations under
 * way. */
struct group_server {
	struct pawl_work works[COLL_CHANNELS]; /* per channel: the one under way, if any */
	uint64_t next[COLL_CHANNELS];          /* per channel: lowest number that may come */
	struct group_header *headers; /* in this allocation; index channel * ranks + rank */
};

int group_server_init(struct pawl_group *group, struct pawl_err *err)
{
	size_t all = (size_t)COLL_CHANNELS * group->ranks;
	struct group_server *server = FAULT_MEM("coll.group",
		calloc(1, sizeof(*server) + all * sizeof(*server->headers)));

	if (!server) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for %u ranks", group->ranks);
	}
	server->headers = (struct group_header *)(void *)(server + 1);
	for (uint32_t c = 0; c < COLL_CHANNELS; c++) {
		server->next[c] = c;
	}
	group->server_state = server;
	return 0;
}

/* Moves the headers that have come so far to the operation's slot, and checks them. */
static int hand_over(struct pawl_group *group, struct pawl_work *work, struct pawl_err *err)
{
	struct group_header *theirs =
		&group->server_state->headers[work->number % COLL_CHANNELS * group->ranks];
	struct group_slot *slot = priv_of(work)->slot;
	struct group_header *ours = slot->headers;
	int rv = 0;

	for (uint32_t p = 0; p < group->ranks && rv == 0; p++) {
		memcpy(ours[p].bytes, theirs[p].bytes, GROUP_HEADER_BYTES);
		ours[p].got = theirs[p].got;
		theirs[p].got = 0;
		if (ours[p].got == GROUP_HEADER_BYTES) {
			slot->headers_left--;
			rv = group_header_check(ours[p].bytes, slot->header, &work->call,
				priv_of(work)->caller, p, err);
		}
		if (rv == 0 && ours[p].got > 0 && !ours[p].incoming) {
			rv = pawl_err_set(err, PAWL_EPEER,
				"rank %u mistakes this server for another", p);
		}
	}
	return rv;
}

/* Begins the collective whose header a rank has sent. */
static int begin(struct pawl_group *group, uint32_t channel, uint32_t rank, struct pawl_err *err)
{
	struct group_server *server = group->server_state;
	const uint8_t *header = server->headers[channel * group->ranks + rank].bytes;
	struct pawl_work *work = &server->works[channel];
	struct pawl_coll_call call;
	uint64_t number;
	int rv = group_header_decode(header, rank, &call, &number, err);

	if (rv == 0 && (number % COLL_CHANNELS != channel || number < server->next[channel])) {
		rv = pawl_err_set(err, PAWL_EPEER, "rank %u is at collective %llu again", rank,
			(unsigned long long)number);
	}
	if (rv != 0) {
		return rv;
	}
	*work = (struct pawl_work){.call = call, .number = number};
	priv_of(work)->caller = rank;
	priv_of(work)->deadline_ns = NEVER_NS;
	server->next[channel] = number + COLL_CHANNELS;
	rv = group_slot_take(group, work, err);
	if (rv == 0) {
		memcpy(priv_of(work)->slot->header, header, GROUP_HEADER_BYTES);
		rv = hand_over(group, work, err);
	}
	pthread_mutex_lock(&group->state);
	group_push(&group->queues.channels[channel], work);
	group->queues.pending++;
	group->queues.submitted =
		group->queues.submitted > number ? group->queues.submitted : number + 1;
	pthread_mutex_unlock(&group->state);
	return rv;
}

static bool receive_headers(struct pawl_group *group, uint32_t channel)
{
	struct coll_transport *transport = group->transport;
	struct pawl_err err;
	bool moved = false;

	for (uint32_t p = 0; p < group->ranks; p++) {
		struct group_header *header =
			&group->server_state->headers[channel * group->ranks + p];
		size_t n = transport->receive(transport, p, channel, header->bytes + header->got,
			GROUP_HEADER_BYTES - header->got);

		header->got = (uint8_t)(header->got + n);
		moved |= n > 0;
		if (header->got == GROUP_HEADER_BYTES) {
			if (begin(group, channel, p, &err) != 0) {
				group_fail(group, &err);
			}
			return true;
		}
	}
	return moved;
}

bool group_server_receive(struct pawl_group *group)
{
	bool moved = false;

	for (uint32_t c = 0; c < COLL_CHANNELS && group->failure.code == 0; c++) {
		if (group->queues.channels[c].first == NULL) {
			moved |= receive_headers(group, c);
		}
	}
	return moved;
}
