/*
 * Admits newcomers as ranks: see pawl_group_admit and pawl_group_request_join.
 *
 * The ranks of a group exchange, by collectives of the group, how many newcomers wait at their join
 * listeners; then the endpoints of the new group; and at last whether all have joined it. So all
 * ranks decide alike. Until then the group stays as it was, and it still does if a step fails.
 *
 * If a rank is lost in the last of these collectives, some ranks may know that all have joined, and
 * others not. A rank that knows goes on in the new group, and sends a notice of that on the streams
 * of the old one. A rank that does not know keeps both groups until it receives such a notice. It
 * drops the new group if the remaining ranks of the old one agree to go on there: see
 * group_shrink.c.
 */
#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/times.h"
#include "coll/group/group_impl.h"
#include "coll/group/join_listener.h"
#include "coll/transport/dial.h"
#include "coll/transport/tcp.h"
#include "io/address.h"

#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define JOIN_ATTEMPTS_MAX 3u /* attempts of a newcomer: one may fail because of another newcomer */

/* ---- the ranks ---- */

struct admission {
	struct pawl_group *group;            /* the caller's */
	struct pawl_join_listener *listener; /* the caller's, or NULL */
	int64_t end_ns;                      /* deadline, monotonic ns */
	uint32_t *newcomers;    /* owned; per rank, newcomers admitted at its join listener */
	uint32_t newcomers_max; /* largest number in newcomers */
	uint32_t first;         /* number of our first newcomer in the next group */
	uint32_t ranks;         /* number of ranks of the next group */
	char *endpoints;        /* owned; endpoints of all ranks of the next group */
};

static int gather(struct admission *a, const void *in, void *out, size_t len_bytes,
	struct pawl_err *err)
{
	const struct pawl_coll_call call = {.kind = PAWL_ALL_GATHER,
		.dtype = PAWL_UINT8,
		.len_bytes = len_bytes,
		.in = in,
		.out = out,
		.timeout_ns = a->end_ns - clock_mono_ns()};
	struct pawl_work work;
	int rv = call.timeout_ns > 0
		? pawl_group_submit(a->group, &work, &call, err)
		: pawl_err_set(err, PAWL_ETIMEDOUT, "collectives: no time is left to admit ranks");

	return rv == 0 ? pawl_group_wait(a->group, &work, -1, err) : rv;
}

/* Counts the newcomers to admit, so that the group gets `most` ranks at most. */
static int count_newcomers(struct admission *a, uint32_t most, struct pawl_err *err)
{
	uint32_t ranks = a->group->ranks;
	uint32_t ours = htole32(pawl_join_listener_waiting(a->listener));
	int rv;

	a->newcomers = FAULT_MEM("coll.listener", calloc(ranks, sizeof(*a->newcomers)));
	rv = a->newcomers ? gather(a, &ours, a->newcomers, sizeof(ours), err)
			  : pawl_err_set(err, PAWL_ENOMEM, "no memory for %u ranks", ranks);
	if (rv != 0) {
		return rv;
	}
	a->ranks = ranks;
	for (uint32_t r = 0; r < ranks; r++) {
		uint32_t room = most > a->ranks ? most - a->ranks : 0;
		uint32_t n = le32toh(a->newcomers[r]);

		a->newcomers[r] = n < room ? n : room;
		a->first = r == a->group->rank ? a->ranks : a->first;
		a->newcomers_max =
			a->newcomers[r] > a->newcomers_max ? a->newcomers[r] : a->newcomers_max;
		a->ranks += a->newcomers[r];
	}
	return 0;
}

/* Gathers the endpoints of all ranks of the next group, in order. Each rank sends its own, then
 * those of its newcomers. */
static int gather_endpoints(struct admission *a, const char *endpoint, struct pawl_err *err)
{
	uint32_t n = a->group->ranks;
	size_t block = (size_t)(1 + a->newcomers_max) * PAWL_ENDPOINT_MAX;
	uint32_t at = n;
	char *ours;
	char *all;
	int rv;

	ASSERT(n > 0 && a->ranks > n);
	ours = FAULT_MEM("coll.listener", calloc(1, block));
	all = FAULT_MEM("coll.listener", calloc(n, block));
	a->endpoints = FAULT_MEM("coll.listener", calloc(a->ranks, PAWL_ENDPOINT_MAX));
	if (!ours || !all || !a->endpoints) {
		rv = pawl_err_set(err, PAWL_ENOMEM, "no memory for the endpoints of %u ranks",
			a->ranks);
		goto out;
	}
	memcpy(ours, endpoint, PAWL_ENDPOINT_MAX);
	join_listener_invite(a->listener, a->newcomers[a->group->rank], a->first, a->ranks,
		ours + PAWL_ENDPOINT_MAX);
	rv = gather(a, ours, all, block, err);
	for (uint32_t r = 0; r < n && rv == 0; r++) {
		const char *from = all + r * block;

		memcpy(a->endpoints + (size_t)r * PAWL_ENDPOINT_MAX, from, PAWL_ENDPOINT_MAX);
		memcpy(a->endpoints + (size_t)at * PAWL_ENDPOINT_MAX, from + PAWL_ENDPOINT_MAX,
			(size_t)a->newcomers[r] * PAWL_ENDPOINT_MAX);
		at += a->newcomers[r];
	}
out:
	free(ours);
	free(all);
	return rv;
}

static int join_next_group(struct pawl_group *group, const char *endpoints, struct pawl_err *err)
{
	const char **at = FAULT_MEM("coll.listener", calloc(group->ranks, sizeof(*at)));
	int rv;

	for (uint32_t r = 0; r < group->ranks && at; r++) {
		at[r] = endpoints + (size_t)r * PAWL_ENDPOINT_MAX;
	}
	rv = at ? group_join_barrier(group, at, times_ns(TIME_JOIN_STEP), err)
		: pawl_err_set(err, PAWL_ENOMEM, "no memory for %u ranks", group->ranks);
	free(at);
	return rv;
}

/* Exchanges whether each rank can go on. *first becomes the first rank that cannot, or the number
 * of ranks if all can. */
static int agree(struct admission *a, bool can, uint32_t *first, struct pawl_err *err)
{
	uint8_t *each = FAULT_MEM("coll.listener", calloc(a->group->ranks, 1));
	uint8_t ours = can;
	int rv = each ? gather(a, &ours, each, 1, err)
		      : pawl_err_set(err, PAWL_ENOMEM, "no memory for %u ranks", a->group->ranks);

	for (*first = 0; rv == 0 && *first < a->group->ranks && each[*first]; ++*first) {
	}
	free(each);
	return rv;
}

static bool has_failed(struct pawl_group *group)
{
	bool failed;

	pthread_mutex_lock(&group->state);
	failed = group->failure.code != 0;
	pthread_mutex_unlock(&group->state);
	return failed;
}

/* Opens and joins the next group. *out stays NULL if a rank could not join. */
static int open_next(struct admission *a, struct pawl_group **out, struct pawl_err *err)
{
	uint32_t ranks = a->group->ranks;
	uint32_t newcomers = a->newcomers[a->group->rank];
	uint32_t culprit = ranks;
	char endpoint[PAWL_ENDPOINT_MAX] = "";
	struct pawl_group *next = NULL;
	struct pawl_err why = {0};
	int joined = pawl_group_open(&next, a->group->rank, a->ranks, a->group->route_hint,
		endpoint, &why);
	int rv = gather_endpoints(a, endpoint, err);

	for (uint32_t r = 0; r < a->ranks && rv == 0 && joined == 0; r++) {
		if (a->endpoints[(size_t)r * PAWL_ENDPOINT_MAX] == '\0') {
			joined = pawl_err_set(&why, PAWL_EPEER, "rank %u has not answered", r);
		}
	}
	if (rv == 0) {
		rv = agree(a, joined == 0, &culprit, err);
	}
	if (rv == 0 && culprit == ranks) {
		join_listener_send_endpoints(a->listener, newcomers, a->endpoints, a->ranks);
		joined = join_next_group(next, a->endpoints, &why);
		if (joined == 0 && !join_listener_all_joined(a->listener, newcomers)) {
			joined = pawl_err_set(&why, PAWL_EPEER, "a newcomer could not join");
		}
		rv = agree(a, joined == 0, &culprit, err);
		if (rv != 0 && joined == 0 && has_failed(a->group)) {
			a->group->lineage.grown = next;
			next = NULL;
		}
	}
	if (rv == 0 && culprit == ranks) {
		rv = group_notify_moved(a->group, err);
	}
	join_listener_dismiss(a->listener, newcomers, rv == 0 && culprit == ranks);
	if (rv == 0 && culprit == a->group->rank) {
		log_line(LOG_WARNING, "collectives: %u newcomers are not admitted: %s",
			a->ranks - ranks, why.msg);
	}
	if (rv != 0 || culprit < ranks) {
		pawl_group_close(next);
		return rv;
	}
	*out = next;
	return 0;
}

int pawl_group_admit(struct pawl_group **out, struct pawl_group *group,
	struct pawl_join_listener *listener, uint32_t most, int64_t timeout_ns,
	struct pawl_err *err)
{
	struct admission a = {.group = group,
		.listener = listener,
		.end_ns = clock_add_ns(clock_mono_ns(), timeout_ns)};
	uint32_t room = most < COLL_RANKS_MAX ? most : COLL_RANKS_MAX;
	int rv = count_newcomers(&a, room, err);

	*out = NULL;
	if (rv == 0 && a.ranks > group->ranks) {
		rv = open_next(&a, out, err);
	}
	if (rv != 0 && !has_failed(group)) {
		pawl_group_leave(group); /* else the other ranks would wait for us */
	}
	free(a.newcomers);
	free(a.endpoints);
	return rv;
}

/* ---- a newcomer ---- */

struct newcomer {
	const char *name;          /* name of the join listener; the caller's */
	char address[ADDRESS_MAX]; /* address of the join listener */
	int fd;                    /* connection to the join listener; -1: none */
	bool invited;              /* the join listener has invited us */
	struct pawl_group *next;   /* group that is being joined, or NULL */
};

static int set_lost_error(const struct newcomer *n, struct pawl_err *err)
{
	bool late = errno == ETIMEDOUT;

	return pawl_err_set(err, late ? PAWL_ETIMEDOUT : PAWL_EPEER,
		"collectives: the join listener at %s: %s", n->name,
		late ? "nobody was admitted in time" : strerror(errno));
}

static int receive_reply(const struct newcomer *n, enum join_reply_type type,
	struct join_reply *reply, int64_t end_ns, struct pawl_err *err)
{
	uint8_t bytes[JOIN_REPLY_BYTES];
	int rv;

	if (!dial_receive(n->fd, bytes, sizeof(bytes), end_ns)) {
		return set_lost_error(n, err);
	}
	rv = join_reply_decode(bytes, type, reply, err);
	return rv == 0 ? 0
		       : pawl_err_prefix(err, rv, "collectives: the join listener at %s", n->name);
}

static int send_join_request(struct newcomer *n, int64_t end_ns, struct pawl_err *err)
{
	struct addrinfo *at = NULL;
	uint8_t bytes[JOIN_REQUEST_BYTES];
	uint64_t key;

	if (coll_tcp_parse(n->name, &at, &key) != 0 ||
		getnameinfo(at->ai_addr, at->ai_addrlen, n->address, sizeof(n->address), NULL, 0,
			NI_NUMERICHOST) != 0) {
		return pawl_err_set(err, PAWL_EINVAL,
			"collectives: \"%.60s\" names no join listener: ADDRESS:PORT:KEY", n->name);
	}
	join_request_encode(bytes, key);
	n->fd = dial_connect(at, end_ns);
	freeaddrinfo(at);
	return n->fd >= 0 && dial_send(n->fd, bytes, sizeof(bytes), end_ns)
		? 0
		: set_lost_error(n, err);
}

/* Waits for the invitation, sends our endpoint, and receives the endpoints of all ranks. */
static int exchange(struct newcomer *n, char **endpoints, int64_t end_ns, struct pawl_err *err)
{
	char endpoint[PAWL_ENDPOINT_MAX] = "";
	struct join_reply reply;
	int rv = receive_reply(n, JOIN_REPLY_INVITE, &reply, end_ns, err);

	if (rv != 0) {
		return rv;
	}
	n->invited = true;
	rv = pawl_group_open(&n->next, reply.rank, reply.ranks, n->address, endpoint, err);
	if (!dial_send(n->fd, endpoint, sizeof(endpoint), end_ns) && rv == 0) {
		rv = set_lost_error(n, err);
	}
	rv = rv == 0 ? receive_reply(n, JOIN_REPLY_ENDPOINTS, &reply, end_ns, err) : rv;
	if (rv != 0) {
		return rv;
	}
	*endpoints = FAULT_MEM("coll.listener", calloc(n->next->ranks, PAWL_ENDPOINT_MAX));
	if (!*endpoints) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for %u ranks", n->next->ranks);
	}
	return dial_receive(n->fd, *endpoints, (size_t)n->next->ranks * PAWL_ENDPOINT_MAX, end_ns)
		? 0
		: set_lost_error(n, err);
}

/* Makes one attempt to join. */
static int try_to_join(struct newcomer *n, int64_t end_ns, struct pawl_err *err)
{
	char *endpoints = NULL;
	struct join_reply reply;
	uint8_t joined;
	int rv = send_join_request(n, end_ns, err);

	rv = rv == 0 ? exchange(n, &endpoints, end_ns, err) : rv;
	for (uint32_t r = 0; rv == 0 && r < n->next->ranks; r++) {
		endpoints[(size_t)(r + 1) * PAWL_ENDPOINT_MAX - 1] = '\0';
	}
	if (rv == 0) {
		rv = join_next_group(n->next, endpoints, err);
		joined = rv == 0;
		dial_send(n->fd, &joined, 1, end_ns);
	}
	rv = rv == 0 ? receive_reply(n, JOIN_REPLY_ADMITTED, &reply, end_ns, err) : rv;
	free(endpoints);
	if (n->fd >= 0) {
		close(n->fd);
	}
	return rv;
}

int pawl_group_request_join(struct pawl_group **out, const char *name, int64_t timeout_ns,
	struct pawl_err *err)
{
	int64_t end_ns = clock_add_ns(clock_mono_ns(), timeout_ns);
	int rv = PAWL_EPEER;

	for (uint32_t i = 0; i < JOIN_ATTEMPTS_MAX && rv == PAWL_EPEER; i++) {
		struct newcomer n = {.name = name, .fd = -1};

		rv = try_to_join(&n, end_ns, err);
		if (rv == 0) {
			*out = n.next;
		} else {
			pawl_group_close(n.next);
		}
		if (!n.invited) {
			break;
		}
	}
	return rv;
}
