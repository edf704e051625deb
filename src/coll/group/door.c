/* See door.h for the contract. */
#include "coll/group/door.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/times.h"
#include "coll/plan/topo.h"
#include "coll/transport/dial.h"
#include "coll/transport/tcp.h"
#include "io/address.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

/* A newcomer that has connected. */
struct waiter {
	int fd;                     /* socket of the connection */
	int64_t since_ns;           /* time of connection, monotonic ns */
	uint8_t knock[KNOCK_BYTES]; /* knock, as received so far */
	size_t got;                 /* bytes of knock received */
};

struct pawl_door {
	int listener;                        /* listening socket, which does not block */
	uint64_t key;                        /* secret that a knock must contain */
	struct waiter waiters[DOOR_WAITERS]; /* newcomers that have knocked come first */
	uint32_t waiters_n;                  /* number of entries in waiters */
	uint32_t knocked;                    /* number of waiters that have knocked */
};

/* ---- bytes ---- */

void door_encode_knock(uint8_t *bytes, uint64_t key)
{
	const uint64_t words[2] = {htole64(KNOCK_MAGIC), htole64(key)};

	memcpy(bytes, words, sizeof(words));
}

bool door_check_knock(const uint8_t *bytes, uint64_t key)
{
	uint8_t right[KNOCK_BYTES];

	door_encode_knock(right, key);
	return memcmp(bytes, right, KNOCK_BYTES) == 0;
}

void door_encode(uint8_t *bytes, const struct door_says *says)
{
	const uint32_t words[4] = {htole32(says->word), htole32(says->rank), htole32(says->ranks),
		0};

	memcpy(bytes, words, sizeof(words));
}

int door_decode(const uint8_t *bytes, enum door_word word, struct door_says *says,
	struct pawl_err *err)
{
	uint32_t words[4];

	memcpy(words, bytes, sizeof(words));
	*says = (struct door_says){le32toh(words[0]), le32toh(words[1]), le32toh(words[2])};
	if (says->word != (uint32_t)word) {
		return pawl_err_set(err, PAWL_EINVAL,
			"says what is not expected: is it another version of Pawl?");
	}
	return word != DOOR_INVITE || (says->ranks <= COLL_RANKS_MAX && says->rank < says->ranks)
		? 0
		: pawl_err_set(err, PAWL_EINVAL, "invites as rank %u of %u", says->rank,
			  says->ranks);
}

/* ---- opening and closing ---- */

int pawl_door_open(struct pawl_door **out, const char *toward, char *name, struct pawl_err *err)
{
	struct pawl_door *door = FAULT_MEM("coll.door", calloc(1, sizeof(*door)));
	char address[ADDRESS_MAX];
	int rv;

	_Static_assert(COLL_TCP_NAME <= PAWL_DOOR_NAME, "no room for a name");
	if (!door) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for a door");
	}
	rv = address_find(toward ? toward : "127.0.0.1", address, err);
	if (rv == 0 && getrandom(&door->key, sizeof(door->key), 0) != sizeof(door->key)) {
		rv = pawl_err_sys(err, "random number");
	}
	if (rv == 0) {
		door->listener = coll_tcp_listen(address, 0, door->key, name, err);
		rv = door->listener < 0 ? door->listener : 0;
	}
	if (rv != 0) {
		free(door);
		return pawl_err_prefix(err, rv, "collectives: a door");
	}
	*out = door;
	return 0;
}

/* Closes the connection of waiter i; the last waiter takes its place. */
static void drop(struct pawl_door *door, uint32_t i)
{
	close(door->waiters[i].fd);
	if (i < door->knocked) {
		door->knocked--;
		door->waiters[i] = door->waiters[door->knocked];
		i = door->knocked;
	}
	door->waiters[i] = door->waiters[--door->waiters_n];
}

void pawl_door_close(struct pawl_door *door)
{
	if (door) {
		while (door->waiters_n > 0) {
			drop(door, 0);
		}
		close(door->listener);
		free(door);
	}
}

/* ---- newcomers ---- */

/* Reads more of a knock. False: it is not the right one, or comes too slowly. */
static bool hear(const struct pawl_door *door, struct waiter *w, int64_t now_ns)
{
	ssize_t n = recv(w->fd, w->knock + w->got, KNOCK_BYTES - w->got, 0);

	w->got += n > 0 ? (size_t)n : 0;
	if (w->got < KNOCK_BYTES) {
		return n != 0 && now_ns - w->since_ns < times_ns(TIME_DOOR_KNOCK);
	}
	return door_check_knock(w->knock, door->key);
}

static void hear_all(struct pawl_door *door, int64_t now_ns)
{
	for (uint32_t i = door->waiters_n; i-- > door->knocked;) {
		if (!hear(door, &door->waiters[i], now_ns)) {
			drop(door, i);
		}
	}
	for (uint32_t i = door->knocked; i < door->waiters_n; i++) {
		if (door->waiters[i].got == KNOCK_BYTES) {
			struct waiter w = door->waiters[i];

			door->waiters[i] = door->waiters[door->knocked];
			door->waiters[door->knocked++] = w;
		}
	}
}

/* Makes room for another newcomer, by dropping the first that came of those that have not knocked.
 * False: all have knocked. */
static bool make_room(struct pawl_door *door, int64_t now_ns)
{
	uint32_t oldest;

	if (door->waiters_n == DOOR_WAITERS) {
		hear_all(door, now_ns);
	}
	if (door->waiters_n < DOOR_WAITERS) {
		return true;
	}
	oldest = door->knocked;
	for (uint32_t i = oldest; i < door->waiters_n; i++) {
		oldest = door->waiters[i].since_ns < door->waiters[oldest].since_ns ? i : oldest;
	}
	if (oldest < door->waiters_n) {
		drop(door, oldest);
	}
	return door->waiters_n < DOOR_WAITERS;
}

static void let_in(struct pawl_door *door, int64_t now_ns)
{
	int fd;

	while ((fd = FAULT_SYS("coll.door",
			accept4(door->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK))) >= 0) {
		if (!make_room(door, now_ns)) {
			close(fd); /* the newcomer may come again when others are in */
			continue;
		}
		door->waiters[door->waiters_n++] = (struct waiter){.fd = fd, .since_ns = now_ns};
	}
}

/* Returns whether a waiter is still connected. One that has knocked says nothing until it is
 * asked. */
static bool is_there(const struct waiter *w)
{
	uint8_t byte;

	return recv(w->fd, &byte, 1, MSG_PEEK) < 0;
}

uint32_t pawl_door_waiting(struct pawl_door *door)
{
	int64_t now_ns = clock_mono_ns();

	if (!door) {
		return 0;
	}
	let_in(door, now_ns);
	for (uint32_t i = door->knocked; i-- > 0;) {
		if (!is_there(&door->waiters[i])) {
			drop(door, i);
		}
	}
	hear_all(door, now_ns);
	return door->knocked;
}

/* ---- newcomers that are admitted ---- */

/* Sends a message to a waiter. One that does not take it fails to answer. */
static void say(struct pawl_door *door, uint32_t i, const struct door_says *says)
{
	uint8_t head[DOOR_HEAD];

	door_encode(head, says);
	dial_send(door->waiters[i].fd, head, sizeof(head),
		clock_mono_ns() + times_ns(TIME_DOOR_STEP));
}

void door_invite(struct pawl_door *door, uint32_t n, uint32_t first, uint32_t ranks, char *cards)
{
	int64_t end_ns = clock_mono_ns() + times_ns(TIME_DOOR_STEP);

	for (uint32_t i = 0; i < n; i++) {
		say(door, i, &(struct door_says){DOOR_INVITE, first + i, ranks});
	}
	for (uint32_t i = 0; i < n; i++) {
		char *card = cards + (size_t)i * PAWL_CARD_MAX;

		if (!dial_receive(door->waiters[i].fd, card, PAWL_CARD_MAX, end_ns)) {
			card[0] = '\0';
		}
		card[PAWL_CARD_MAX - 1] = '\0';
	}
}

void door_hand_out(struct pawl_door *door, uint32_t n, const char *cards, uint32_t ranks)
{
	int64_t end_ns = clock_mono_ns() + times_ns(TIME_DOOR_STEP);

	for (uint32_t i = 0; i < n; i++) {
		say(door, i, &(struct door_says){DOOR_CARDS, 0, ranks});
		dial_send(door->waiters[i].fd, cards, (size_t)ranks * PAWL_CARD_MAX, end_ns);
	}
}

bool door_all_joined(struct pawl_door *door, uint32_t n)
{
	int64_t end_ns = clock_mono_ns() + times_ns(TIME_DOOR_STEP);
	bool all = true;

	for (uint32_t i = 0; i < n; i++) {
		uint8_t joined = 0;

		all &= dial_receive(door->waiters[i].fd, &joined, 1, end_ns) && joined == 1;
	}
	return all;
}

void door_dismiss(struct pawl_door *door, uint32_t n, bool in)
{
	while (n-- > 0) {
		if (in) {
			say(door, n, &(struct door_says){.word = DOOR_WELCOME});
		}
		drop(door, n);
	}
}
