/*
 * A transport: streams of bytes between the ranks of a group. Every transport keeps this contract,
 * and passes tests/unit/coll/test_coll_transport.c.
 *
 * Between any two ranks there are COLL_STREAMS streams in each direction. Bytes arrive in order and
 * once, or not at all. A stream holds a limited number of bytes until its reader takes them. One
 * thread at a time may call, except for wake.
 */
#ifndef COLL_TRANSPORT_TRANSPORT_H
#define COLL_TRANSPORT_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pawl_err;

#define COLL_CHANNELS 4u /* most collectives under way at a time; each uses one stream */
#define COLL_CONTROL  4u /* number of the stream of the control channel */
#define COLL_STREAMS  5u /* number of streams */

_Static_assert(COLL_CONTROL == COLL_CHANNELS && COLL_STREAMS == COLL_CHANNELS + 1,
	"a stream per collective under way, and one for control");

struct coll_transport {
	/* Accepts some of the bytes for a peer, and returns how many; 0: there is no room now. */
	size_t (*send)(struct coll_transport *transport, uint32_t peer, uint32_t stream,
		const void *bytes, size_t len_bytes);
	/* Copies received bytes of a peer to the caller, and returns how many; 0: none are
	 * there. */
	size_t (*receive)(struct coll_transport *transport, uint32_t peer, uint32_t stream,
		void *bytes, size_t len_bytes);
	/* Makes progress without waiting. Returns the event count, which changes when bytes arrive,
	 * room becomes free, or wake is called. */
	uint32_t (*poll)(struct coll_transport *transport);
	/* Waits until the event count differs from seen, or for timeout_ns. May return earlier. */
	void (*wait)(struct coll_transport *transport, uint32_t seen, int64_t timeout_ns);
	void (*wake)(struct coll_transport *transport); /* ends a wait; from any thread */
	/* Returns why nothing more will arrive from a peer: static text. NULL: the peer is not
	 * lost. Bytes that were received before may still be read. */
	const char *(*lost)(struct coll_transport *transport, uint32_t peer);
	void (*close)(struct coll_transport *transport);
	/* Returns the time of the transport's clock; NULL: the clock is CLOCK_MONOTONIC. A group
	 * whose transport has a clock of its own has no thread, and makes progress only while its
	 * caller waits. */
	int64_t (*now_ns)(struct coll_transport *transport);
	/* Returns whether accepted bytes are sent only while somebody polls or waits. NULL:
	 * never. */
	bool (*needs_progress)(struct coll_transport *transport);
};

#endif
