/* Asks a server for its side of a group: see serve.h and docs/protocol.md. */
#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "coll/group/serve_impl.h"
#include "coll/transport/dial.h"

#include <endian.h>
#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

size_t serve_more_bytes(const struct coll_ask *ask)
{
	return ask->probe ? (size_t)(ask->ranks - ask->rank - 1) * COLL_TCP_NAME
			  : ask->ranks * sizeof(uint32_t);
}

size_t serve_encode_ask(uint8_t *bytes, uint64_t key, const struct coll_ask *ask)
{
	uint64_t words[3] = {htole64(ask->probe ? ASK_PROBE : ASK_MAGIC), htole64(key),
		htole64(ask->group)};
	uint32_t numbers[4] = {htole32(ask->rank), htole32(ask->ranks), htole32(ask->server),
		htole32(ask->servers)};

	memcpy(bytes, words, sizeof(words));
	memcpy(bytes + sizeof(words), numbers, sizeof(numbers));
	if (ask->probe && ask->rank + 1 < ask->ranks) {
		memcpy(bytes + ASK_BYTES, ask->names, serve_more_bytes(ask));
	}
	for (uint32_t r = 0; r < ask->ranks && !ask->probe; r++) {
		uint32_t where = htole32(ask->where[r]);

		memcpy(bytes + ASK_BYTES + r * sizeof(where), &where, sizeof(where));
	}
	return ASK_BYTES + serve_more_bytes(ask);
}

static bool is_sane(const struct coll_ask *ask)
{
	if (ask->probe) {
		return ask->ranks > 1 && ask->ranks <= SURVEY_HOSTS_MAX && ask->rank > 0 &&
			ask->rank < ask->ranks && ask->server == 0 && ask->servers == 0;
	}
	return ask->ranks > 1 && ask->ranks <= COLL_RANKS_MAX - COLL_SERVERS_MAX &&
		ask->rank < ask->ranks && ask->server < ask->servers &&
		ask->servers <= COLL_SERVERS_MAX;
}

int serve_decode_ask(const uint8_t *bytes, uint64_t key, struct coll_ask *ask)
{
	uint64_t words[3];
	uint32_t numbers[4];

	memcpy(words, bytes, sizeof(words));
	memcpy(numbers, bytes + sizeof(words), sizeof(numbers));
	*ask = (struct coll_ask){.group = le64toh(words[2]),
		.probe = le64toh(words[0]) == ASK_PROBE,
		.rank = le32toh(numbers[0]),
		.ranks = le32toh(numbers[1]),
		.server = le32toh(numbers[2]),
		.servers = le32toh(numbers[3])};
	return (ask->probe || le64toh(words[0]) == ASK_MAGIC) && le64toh(words[1]) == key &&
			is_sane(ask)
		? 0
		: -1;
}

/* Sends a request, and receives the answer: the server's name for its side, or why it refuses.
 * Returns 1 if the server agrees, 0 if it refuses; -1 with errno: no answer. */
static int ask_at(int fd, uint64_t key, const struct coll_ask *ask, int64_t end_ns, char *answer)
{
	uint8_t *bytes = FAULT_MEM("coll.serve", malloc(ASK_BYTES + serve_more_bytes(ask)));
	uint8_t willing = 0;
	bool answered = bytes && dial_send(fd, bytes, serve_encode_ask(bytes, key, ask), end_ns) &&
		dial_receive(fd, &willing, 1, end_ns) &&
		dial_receive(fd, answer, ANSWER_TEXT, end_ns);
	int sys = bytes ? errno : ENOMEM;

	free(bytes);
	errno = sys;
	answer[ANSWER_TEXT - 1] = '\0';
	return answered ? willing : -1;
}

/* Sets the error. answer: why the server refuses; NULL: it did not answer, and errno says why. */
static void set_refused_error(const char *name, const struct coll_ask *ask, const char *answer,
	struct pawl_err *err)
{
	if (ask->probe) {
		pawl_err_set(err, PAWL_EPEER, "%s %s: %s%s", name,
			answer ? "refuses" : "cannot be reached", answer ? answer : strerror(errno),
			answer ? ""
			       : ": does pawl serve run there, of this version, and with that "
				 "key?");
		return;
	}
	pawl_err_set(err, PAWL_EPEER, "collectives: server %u %s %s: %s%s", ask->server,
		answer ? "refuses, at" : "cannot be reached at", name,
		answer ? answer : strerror(errno),
		!answer && errno == ETIMEDOUT ? ": is a firewall between them?" : "");
}

int coll_serve_ask(const char *name, const struct coll_ask *ask, int64_t timeout_ns, char *side,
	struct pawl_err *err)
{
	int64_t end_ns = clock_add_ns(clock_mono_ns(), timeout_ns);
	struct addrinfo *at = NULL;
	char answer[ANSWER_TEXT] = "";
	uint64_t key;
	int willing = -1;
	int fd;

	if (coll_tcp_parse(name, &at, &key) != 0) {
		return pawl_err_set(err, PAWL_EINVAL,
			"%s\"%.60s\" is no server: ADDRESS:PORT:KEY, as pawl serve prints it",
			ask->probe ? "" : "PAWL_SERVERS: ", name);
	}
	fd = dial_connect(at, end_ns);
	freeaddrinfo(at);
	if (fd >= 0) {
		willing = ask_at(fd, key, ask, end_ns, answer);
	}
	if (willing > 0) {
		memcpy(side, answer, COLL_TCP_NAME);
		side[COLL_TCP_NAME - 1] = '\0';
	} else {
		set_refused_error(name, ask, willing == 0 ? answer : NULL, err);
	}
	if (fd >= 0) {
		close(fd);
	}
	return willing > 0 ? 0 : PAWL_EPEER;
}
