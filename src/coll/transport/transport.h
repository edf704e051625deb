/*
 * Streams of bytes between the ranks of a group, by which collectives are carried. Every kind of
 * port keeps this contract, and passes tests/unit/coll/test_coll_transport.c.
 *
 * Between any two ranks there are COLL_STREAMS streams each way. Bytes come in order, once, or not
 * at all; nothing waits for a reader beyond what a stream holds. One thread at a time, but for
 * wake.
 */
#ifndef COLL_TRANSPORT_TRANSPORT_H
#define COLL_TRANSPORT_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pawl_err;

#define COLL_CHANNELS 4u /* collectives under way at a time */
#define COLL_CONTROL  4u /* number of the stream for all else */
#define COLL_STREAMS  5u /* number of streams */

struct coll_transport {
	/* Takes some of the bytes for a peer, and returns how many; 0: there is no room now. */
	size_t (*send)(struct coll_transport *transport, uint32_t peer, uint32_t stream,
		const void *bytes, size_t len_bytes);
	/* Gives some of what came from a peer, and returns how many bytes; 0: nothing came. */
	size_t (*receive)(struct coll_transport *transport, uint32_t peer, uint32_t stream,
		void *bytes, size_t len_bytes);
	/* Returns a count that changes when something comes, or room is made, or wake is called. */
	uint32_t (*poll)(struct coll_transport *transport);
	/* Returns when the count is not seen any more, or after timeout_ns, or earlier. */
	void (*wait)(struct coll_transport *transport, uint32_t seen, int64_t timeout_ns);
	void (*wake)(struct coll_transport *transport); /* from any thread */
	/* Returns why a peer will send nothing more than what has come: static text; NULL: it
	 * may. */
	const char *(*lost)(struct coll_transport *transport, uint32_t peer);
	void (*close)(struct coll_transport *transport);
	/* Returns the time by which the port waits, if that is not CLOCK_MONOTONIC; else the
	 * pointer is NULL. A group with such a port has no thread of its own, and moves only while
	 * its caller waits. */
	int64_t (*now_ns)(struct coll_transport *transport);
	/* Returns whether bytes that the port took go on only while somebody looks or waits. NULL:
	 * never. */
	bool (*needs_progress)(struct coll_transport *transport);
};

#endif
