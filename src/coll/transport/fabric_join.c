/*
 * How ranks join over libfabric: see fabric.h for the contract.
 *
 * Each rank sends a hello to all others. It has joined once all hellos were received and its own
 * were sent. By then the provider has made its connections, if it makes any.
 */
#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/times.h"
#include "coll/transport/fabric_impl.h"

#include <inttypes.h>
#include <rdma/fi_errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROVIDER 32u /* bytes of a provider's name, terminator included */

_Static_assert(2 * FABRIC_ADDRESS == 64 && PROVIDER == 32, "the field widths of parse_name");

struct name {
	uint8_t address[FABRIC_ADDRESS];
	size_t len_bytes; /* bytes of address */
	uint64_t key;
	char provider[PROVIDER];
};

/* ---- names ---- */

/* Reads a name. -1: text is not one. */
static int parse_name(const char *text, struct name *name)
{
	char hex[2 * FABRIC_ADDRESS + 1];
	unsigned int version;
	int n = 0;

	if (sscanf(text, "fi%u:%64[0-9a-f]:%" SCNx64 ":%31[^ ]%n", &version, hex, &name->key,
		    name->provider, &n) != 4 ||
		text[n] != '\0' || version != FABRIC_VERSION || strlen(hex) % 2 != 0) {
		return -1;
	}
	name->len_bytes = strlen(hex) / 2;
	for (size_t i = 0; i < name->len_bytes; i++) {
		const char digits[] = {hex[2 * i], hex[2 * i + 1], '\0'};

		name->address[i] = (uint8_t)strtoul(digits, NULL, 16);
	}
	return 0;
}

static int add_peer(struct fabric *fabric, uint32_t rank, const char *text, struct pawl_err *err)
{
	const char *provider = fabric->info->fabric_attr->prov_name;
	struct fabric_peer *peer = &fabric->peers[rank];
	struct name name;

	if (parse_name(text, &name) != 0) {
		return pawl_err_set(err, PAWL_EINVAL,
			"collectives: the address of rank %u is malformed: %.95s: is it another "
			"version of Pawl?",
			rank, text);
	}
	if (strcmp(name.provider, provider) != 0) {
		return pawl_err_set(err, PAWL_EINVAL,
			"collectives: libfabric: rank %u uses provider %s, rank %u uses %s: "
			"FI_PROVIDER must be the same",
			fabric->rank, provider, rank, name.provider);
	}
	peer->key = name.key;
	return FAULT_SYS("coll.fabric.open",
		       fi_av_insert(fabric->av, name.address, 1, &peer->at, 0, NULL)) == 1
		? 0
		: pawl_err_set(err, PAWL_EINVAL,
			  "collectives: libfabric does not accept the address of rank %u: %.95s",
			  rank, text);
}

/* ---- memory ---- */

/* Assigns the buffers of a peer's streams and of its control messages, from at on. Returns the
 * start of the next peer's buffers. */
static uint8_t *place_peer(struct fabric *fabric, struct fabric_peer *peer, uint8_t *at,
	uint8_t *ring)
{
	uint32_t rank = (uint32_t)(peer - fabric->peers);

	for (uint32_t s = 0; s < COLL_STREAMS; s++) {
		peer->in[s].ring = ring + (size_t)s * fabric->window;
		peer->in[s].credited = 0;
		peer->out[s].limit = fabric->window;
		for (uint32_t i = 0; i < FABRIC_SENDS; i++) {
			peer->out[s].ops[i] = (struct fabric_op){.bytes = at, .peer = rank};
			at += FABRIC_MESSAGE;
		}
	}
	peer->control = (struct fabric_op){.bytes = at, .peer = rank};
	return at + FABRIC_CONTROL;
}

/* Allocates all memory of the streams; none is allocated later. */
static int allocate_buffers(struct fabric *fabric, uint32_t peers_n, struct pawl_err *err)
{
	size_t of_peer = (size_t)COLL_STREAMS * FABRIC_SENDS * FABRIC_MESSAGE + FABRIC_CONTROL;
	size_t len = (size_t)fabric->recvs_n * FABRIC_MESSAGE + peers_n * of_peer;
	size_t ring_bytes = (size_t)COLL_STREAMS * fabric->window;
	uint8_t *at;
	uint8_t *ring;

	fabric->memory = FAULT_MEM("coll.fabric.open", calloc(1, len));
	fabric->rings = FAULT_MEM("coll.fabric.open", calloc(peers_n + 1, ring_bytes));
	fabric->recvs =
		FAULT_MEM("coll.fabric.open", calloc(fabric->recvs_n, sizeof(*fabric->recvs)));
	if (!fabric->memory || !fabric->rings || !fabric->recvs) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for the streams of %u ranks",
			fabric->ranks);
	}
	at = fabric->memory;
	ring = fabric->rings;
	for (uint32_t i = 0; i < fabric->recvs_n; i++, at += FABRIC_MESSAGE) {
		fabric->recvs[i] = (struct fabric_op){.bytes = at, .peer = UINT32_MAX};
	}
	for (uint32_t p = 0; p < fabric->ranks; p++) {
		if (fabric->peers[p].has_streams) {
			at = place_peer(fabric, &fabric->peers[p], at, ring);
			ring += ring_bytes;
		}
	}
	ASSERT(at == fabric->memory + len && ring == fabric->rings + peers_n * ring_bytes);
	if ((fabric->info->domain_attr->mr_mode & FI_MR_LOCAL) == 0) {
		return 0;
	}
	return fi_mr_reg(fabric->domain, fabric->memory, len, FI_SEND | FI_RECV, 0, 0, 0,
		       &fabric->mr, NULL) == 0
		? 0
		: pawl_err_set(err, PAWL_EIO,
			  "collectives: libfabric: register %zu bytes: is the limit of locked "
			  "memory (ulimit -l) too low?",
			  len);
}

/* ---- joining ---- */

/* Returns the number of peers that have not joined. *first: the first of these; *wrong: the first
 * peer that is lost or of another version, or ranks if there is none. */
static uint32_t count_missing(const struct fabric *fabric, uint32_t *first, uint32_t *wrong)
{
	uint32_t n = 0;

	*wrong = fabric->ranks;
	for (uint32_t p = fabric->ranks; p-- > 0;) {
		const struct fabric_peer *peer = &fabric->peers[p];

		if (peer->has_streams && (!peer->hello_received || !peer->hello_sent)) {
			*first = p;
			n++;
		}
		if (peer->has_streams && (peer->broken || peer->other_version)) {
			*wrong = p;
		}
	}
	return n;
}

static int set_peer_error(const struct fabric *fabric, uint32_t rank, const char *name,
	struct pawl_err *err)
{
	if (fabric->peers[rank].other_version) {
		return pawl_err_set(err, PAWL_EINVAL,
			"collectives: libfabric: rank %u runs another version of Pawl", rank);
	}
	ASSERT(fabric->peers[rank].broken != NULL);
	return pawl_err_set(err, PAWL_EPEER,
		"collectives: libfabric: rank %u cannot be reached at %.95s: %s", rank, name,
		fabric->peers[rank].broken);
}

static int connect_all(struct fabric *fabric, const char *const *names, int64_t end_ns,
	const atomic_bool *stop, struct pawl_err *err)
{
	int64_t poll_ns = times_ns(TIME_FABRIC_LOOK);
	uint32_t missing = 0;
	uint32_t wrong = 0;

	fabric->post_pending = true; /* everything is to be posted */
	fabric_progress(fabric);
	while (count_missing(fabric, &missing, &wrong) > 0 || wrong < fabric->ranks) {
		int64_t left_ns = end_ns - clock_mono_ns();

		if (fabric->broken) {
			return pawl_err_set(err, PAWL_EIO, "collectives: join: %s", fabric->broken);
		}
		if (wrong < fabric->ranks) {
			return set_peer_error(fabric, wrong, names[wrong], err);
		}
		if (stop && atomic_load(stop)) {
			return pawl_err_set(err, PAWL_ECANCELED,
				"collectives: joining was stopped");
		}
		if (left_ns <= 0) {
			return pawl_err_set(err, PAWL_EPEER,
				"collectives: rank %u, at %.95s, and rank %u cannot reach each "
				"other over libfabric: has one ended, is a firewall between them, "
				"or is it the wrong interface (PAWL_IFNAME)?",
				missing, names[missing], fabric->rank);
		}
		fabric_sleep(fabric, left_ns < poll_ns ? left_ns : poll_ns);
		fabric_progress(fabric);
	}
	return 0;
}

int coll_fabric_join(struct coll_transport *transport, const char *const *names, int64_t timeout_ns,
	const atomic_bool *stop, struct pawl_err *err)
{
	struct fabric *fabric = fabric_of(transport);
	int64_t end_ns = clock_add_ns(clock_mono_ns(), timeout_ns);
	uint32_t peers_n = 0;
	int rv = 0;

	for (uint32_t r = 0; r < fabric->ranks && rv == 0; r++) {
		if (r != fabric->rank && names[r]) {
			rv = add_peer(fabric, r, names[r], err);
			fabric->peers[r].has_streams = true;
			fabric->peers[r].want = WANT_HELLO;
			peers_n++;
		}
	}
	if (rv == 0) {
		rv = allocate_buffers(fabric, peers_n, err);
	}
	return rv == 0 ? connect_all(fabric, names, end_ns, stop, err) : rv;
}
