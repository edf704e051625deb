/*
 * Admits newcomers as ranks: see pawl_group_admit and pawl_group_knock.
 *
 * The ranks of a group tell each other, by collectives of the group, how many wait at their doors,
 * then the cards of the new group, and at last whether all have joined it. So all decide alike.
 * Until then the group is as it was, and so it stays if that fails.
 *
 * If a rank is lost in the very last of these collectives, some ranks may have heard that all have
 * joined, and others not. A rank that has goes on in the new group, and says so on the streams of
 * the old one. A rank that has not keeps both, until it hears that, or until the remaining ranks of
 * the old group have agreed to go on in the old one: see group_shrink.c.
 */
#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/times.h"
#include "coll/group/door.h"
#include "coll/group/group_impl.h"
#include "coll/transport/dial.h"
#include "coll/transport/tcp.h"
#include "io/address.h"

#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define KNOCKS_MAX 3u /* attempts of a newcomer: another one may be why they fail */

/* ---- the ranks ---- */

struct admission {
	struct pawl_group *group; /* the caller's */
	struct pawl_door *door;   /* the caller's, or NULL */
	int64_t end_ns;           /* deadline, monotonic ns */
	uint32_t *guests;         /* owned; per rank, newcomers admitted at its door */
	uint32_t guests_max;      /* largest number in guests */
	uint32_t first;           /* number of our first newcomer in the next group */
	uint32_t ranks;           /* number of ranks of the next group */
	char *cards;              /* owned; cards of all ranks of the next group */
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

/* Counts the newcomers to admit, so that there are at most `most` ranks. */
static int count_guests(struct admission *a, uint32_t most, struct pawl_err *err)
{
	uint32_t ranks = a->group->ranks;
	uint32_t ours = htole32(pawl_door_waiting(a->door));
	int rv;

	a->guests = FAULT_MEM("coll.door", calloc(ranks, sizeof(*a->guests)));
	rv = a->guests ? gather(a, &ours, a->guests, sizeof(ours), err)
		       : pawl_err_set(err, PAWL_ENOMEM, "no memory for %u ranks", ranks);
	if (rv != 0) {
		return rv;
	}
	a->ranks = ranks;
	for (uint32_t r = 0; r < ranks; r++) {
		uint32_t room = most > a->ranks ? most - a->ranks : 0;
		uint32_t n = le32toh(a->guests[r]);

		a->guests[r] = n < room ? n : room;
		a->first = r == a->group->rank ? a->ranks : a->first;
		a->guests_max = a->guests[r] > a->guests_max ? a->guests[r] : a->guests_max;
		a->ranks += a->guests[r];
	}
	return 0;
}

/* Gathers the cards of all, in the order of ranks. A rank's newcomers stand behind its own in what
 * it sends. */
static int gather_cards(struct admission *a, const char *card, struct pawl_err *err)
{
	uint32_t n = a->group->ranks;
	size_t block = (size_t)(1 + a->guests_max) * PAWL_CARD_MAX;
	uint32_t at = n;
	char *ours;
	char *all;
	int rv;

	ASSERT(n > 0 && a->ranks > n);
	ours = FAULT_MEM("coll.door", calloc(1, block));
	all = FAULT_MEM("coll.door", calloc(n, block));
	a->cards = FAULT_MEM("coll.door", calloc(a->ranks, PAWL_CARD_MAX));
	if (!ours || !all || !a->cards) {
		rv = pawl_err_set(err, PAWL_ENOMEM, "no memory for the cards of %u ranks",
			a->ranks);
		goto out;
	}
	memcpy(ours, card, PAWL_CARD_MAX);
	door_invite(a->door, a->guests[a->group->rank], a->first, a->ranks, ours + PAWL_CARD_MAX);
	rv = gather(a, ours, all, block, err);
	for (uint32_t r = 0; r < n && rv == 0; r++) {
		const char *from = all + r * block;

		memcpy(a->cards + (size_t)r * PAWL_CARD_MAX, from, PAWL_CARD_MAX);
		memcpy(a->cards + (size_t)at * PAWL_CARD_MAX, from + PAWL_CARD_MAX,
			(size_t)a->guests[r] * PAWL_CARD_MAX);
		at += a->guests[r];
	}
out:
	free(ours);
	free(all);
	return rv;
}

static int meet_all(struct pawl_group *group, const char *cards, struct pawl_err *err)
{
	const char **at = FAULT_MEM("coll.door", calloc(group->ranks, sizeof(*at)));
	int rv;

	for (uint32_t r = 0; r < group->ranks && at; r++) {
		at[r] = cards + (size_t)r * PAWL_CARD_MAX;
	}
	rv = at ? group_meet(group, at, times_ns(TIME_DOOR_STEP), err)
		: pawl_err_set(err, PAWL_ENOMEM, "no memory for %u ranks", group->ranks);
	free(at);
	return rv;
}

/* Finds the first rank that cannot go on, each for its own reason; *first is the number of ranks if
 * all can. */
static int agree(struct admission *a, bool can, uint32_t *first, struct pawl_err *err)
{
	uint8_t *each = FAULT_MEM("coll.door", calloc(a->group->ranks, 1));
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

/* Opens and joins the next group. *out stays NULL where some rank could not join. */
static int open_next(struct admission *a, struct pawl_group **out, struct pawl_err *err)
{
	uint32_t ranks = a->group->ranks;
	uint32_t guests = a->guests[a->group->rank];
	uint32_t culprit = ranks;
	char card[PAWL_CARD_MAX] = "";
	struct pawl_group *next = NULL;
	struct pawl_err why = {0};
	int joined = pawl_group_open(&next, a->group->rank, a->ranks, a->group->toward, card, &why);
	int rv = gather_cards(a, card, err);

	for (uint32_t r = 0; r < a->ranks && rv == 0 && joined == 0; r++) {
		if (a->cards[(size_t)r * PAWL_CARD_MAX] == '\0') {
			joined = pawl_err_set(&why, PAWL_EPEER, "rank %u has not answered", r);
		}
	}
	if (rv == 0) {
		rv = agree(a, joined == 0, &culprit, err);
	}
	if (rv == 0 && culprit == ranks) {
		door_hand_out(a->door, guests, a->cards, a->ranks);
		joined = meet_all(next, a->cards, &why);
		if (joined == 0 && !door_all_joined(a->door, guests)) {
			joined = pawl_err_set(&why, PAWL_EPEER, "one could not join");
		}
		rv = agree(a, joined == 0, &culprit, err);
		if (rv != 0 && joined == 0 && has_failed(a->group)) {
			a->group->grown = next;
			next = NULL;
		}
	}
	if (rv == 0 && culprit == ranks) {
		rv = group_tell_moved(a->group, err);
	}
	door_dismiss(a->door, guests, rv == 0 && culprit == ranks);
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

int pawl_group_admit(struct pawl_group **out, struct pawl_group *group, struct pawl_door *door,
	uint32_t most, int64_t timeout_ns, struct pawl_err *err)
{
	struct admission a = {.group = group, .door = door, .end_ns = clock_mono_ns() + timeout_ns};
	uint32_t room = most < COLL_RANKS_MAX ? most : COLL_RANKS_MAX;
	int rv = count_guests(&a, room, err);

	*out = NULL;
	if (rv == 0 && a.ranks > group->ranks) {
		rv = open_next(&a, out, err);
	}
	if (rv != 0 && !has_failed(group)) {
		pawl_group_leave(group); /* the others would wait for us */
	}
	free(a.guests);
	free(a.cards);
	return rv;
}

/* ---- a newcomer ---- */

struct newcomer {
	const char *name;         /* name of the door; the caller's */
	char toward[ADDRESS_MAX]; /* address of the door */
	int fd;                   /* connection to the door; -1: none */
	bool invited;             /* the door has invited us */
	struct pawl_group *next;  /* group that is being joined, or NULL */
};

static int lose_door(const struct newcomer *n, struct pawl_err *err)
{
	bool late = errno == ETIMEDOUT;

	return pawl_err_set(err, late ? PAWL_ETIMEDOUT : PAWL_EPEER,
		"collectives: the door at %s: %s", n->name,
		late ? "nobody was admitted in time" : strerror(errno));
}

static int hear(const struct newcomer *n, enum door_word word, struct door_says *says,
	int64_t end_ns, struct pawl_err *err)
{
	uint8_t head[DOOR_HEAD];
	int rv;

	if (!dial_receive(n->fd, head, sizeof(head), end_ns)) {
		return lose_door(n, err);
	}
	rv = door_decode(head, word, says, err);
	return rv == 0 ? 0 : pawl_err_prefix(err, rv, "collectives: the door at %s", n->name);
}

static int knock(struct newcomer *n, int64_t end_ns, struct pawl_err *err)
{
	struct addrinfo *at = NULL;
	uint8_t bytes[KNOCK_BYTES];
	uint64_t key;

	if (coll_tcp_parse(n->name, &at, &key) != 0 ||
		getnameinfo(at->ai_addr, at->ai_addrlen, n->toward, sizeof(n->toward), NULL, 0,
			NI_NUMERICHOST) != 0) {
		return pawl_err_set(err, PAWL_EINVAL,
			"collectives: \"%.60s\" is no door: ADDRESS:PORT:KEY", n->name);
	}
	door_encode_knock(bytes, key);
	n->fd = dial_connect(at, end_ns);
	freeaddrinfo(at);
	return n->fd >= 0 && dial_send(n->fd, bytes, sizeof(bytes), end_ns) ? 0 : lose_door(n, err);
}

/* Waits for the invitation, gives our card, and reads all cards. */
static int exchange(struct newcomer *n, char **cards, int64_t end_ns, struct pawl_err *err)
{
	char card[PAWL_CARD_MAX] = "";
	struct door_says says;
	int rv = hear(n, DOOR_INVITE, &says, end_ns, err);

	if (rv != 0) {
		return rv;
	}
	n->invited = true;
	rv = pawl_group_open(&n->next, says.rank, says.ranks, n->toward, card, err);
	if (!dial_send(n->fd, card, sizeof(card), end_ns) && rv == 0) {
		rv = lose_door(n, err);
	}
	rv = rv == 0 ? hear(n, DOOR_CARDS, &says, end_ns, err) : rv;
	if (rv != 0) {
		return rv;
	}
	*cards = FAULT_MEM("coll.door", calloc(n->next->ranks, PAWL_CARD_MAX));
	if (!*cards) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for %u ranks", n->next->ranks);
	}
	return dial_receive(n->fd, *cards, (size_t)n->next->ranks * PAWL_CARD_MAX, end_ns)
		? 0
		: lose_door(n, err);
}

/* Makes one attempt. */
static int try_to_join(struct newcomer *n, int64_t end_ns, struct pawl_err *err)
{
	char *cards = NULL;
	struct door_says says;
	uint8_t joined;
	int rv = knock(n, end_ns, err);

	rv = rv == 0 ? exchange(n, &cards, end_ns, err) : rv;
	for (uint32_t r = 0; rv == 0 && r < n->next->ranks; r++) {
		cards[(size_t)(r + 1) * PAWL_CARD_MAX - 1] = '\0';
	}
	if (rv == 0) {
		rv = meet_all(n->next, cards, err);
		joined = rv == 0;
		dial_send(n->fd, &joined, 1, end_ns);
	}
	rv = rv == 0 ? hear(n, DOOR_WELCOME, &says, end_ns, err) : rv;
	free(cards);
	if (n->fd >= 0) {
		close(n->fd);
	}
	return rv;
}

int pawl_group_knock(struct pawl_group **out, const char *name, int64_t timeout_ns,
	struct pawl_err *err)
{
	int64_t end_ns = clock_mono_ns() + timeout_ns;
	int rv = PAWL_EPEER;

	for (uint32_t i = 0; i < KNOCKS_MAX && rv == PAWL_EPEER; i++) {
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
