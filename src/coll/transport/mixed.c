/*
 * A transport made of two: see mixed.h and transport.h for the contracts.
 *
 * A wait is a wait for the doorbell of the shared memory. A thread waits for the network, and rings
 * that doorbell. It gets each event once (edge-triggered), and touches nothing else. If the network
 * has no descriptor to wait for, there is no thread, and waits are short.
 */
#include "coll/transport/mixed.h"

#include "base/err.h"
#include "base/fault.h"
#include "base/times.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct mixed {
	struct coll_transport transport; /* functions for callers; must come first */
	struct coll_transport *shm;      /* owned; transport over shared memory */
	struct coll_transport *net;      /* owned; transport over the network */
	bool *local;                     /* owned; per rank: reached by shm */
	int epoll, stop;                 /* the thread's: epoll set; eventfd that ends it */
	pthread_t thread;                /* waits for the network and rings the doorbell */
	bool started;                    /* the thread was started */
	atomic_bool closing;             /* the thread must end */
};

_Static_assert(offsetof(struct mixed, transport) == 0, "mixed_of converts pointers");

static struct mixed *mixed_of(struct coll_transport *transport)
{
	return (struct mixed *)(void *)transport;
}

static struct coll_transport *transport_to(struct coll_transport *transport, uint32_t peer)
{
	struct mixed *mixed = mixed_of(transport);

	return mixed->local[peer] ? mixed->shm : mixed->net;
}

static size_t send_mixed(struct coll_transport *transport, uint32_t peer, uint32_t stream,
	const void *bytes, size_t len_bytes)
{
	struct coll_transport *to = transport_to(transport, peer);

	return to->send(to, peer, stream, bytes, len_bytes);
}

static size_t receive_mixed(struct coll_transport *transport, uint32_t peer, uint32_t stream,
	void *bytes, size_t len_bytes)
{
	struct coll_transport *from = transport_to(transport, peer);

	return from->receive(from, peer, stream, bytes, len_bytes);
}

static uint32_t poll_mixed(struct coll_transport *transport)
{
	struct mixed *mixed = mixed_of(transport);

	return mixed->net->poll(mixed->net) + mixed->shm->poll(mixed->shm);
}

/* Waits for the doorbell. If an event of the network follows poll, the thread rings the doorbell,
 * so that the wait ends. */
static void wait_mixed(struct coll_transport *transport, uint32_t seen, int64_t timeout_ns)
{
	struct mixed *mixed = mixed_of(transport);
	uint32_t net = mixed->net->poll(mixed->net);
	uint32_t shm = mixed->shm->poll(mixed->shm);
	int64_t nap_ns = times_ns(TIME_MIXED_NAP);

	if (net + shm == seen) {
		mixed->shm->wait(mixed->shm, shm,
			mixed->started || timeout_ns < nap_ns ? timeout_ns : nap_ns);
	}
}

static void wake_mixed(struct coll_transport *transport)
{
	struct mixed *mixed = mixed_of(transport);

	mixed->shm->wake(mixed->shm);
}

static const char *lost_mixed(struct coll_transport *transport, uint32_t peer)
{
	struct coll_transport *of = transport_to(transport, peer);

	return of->lost(of, peer);
}

static bool needs_progress_mixed(struct coll_transport *transport)
{
	struct mixed *mixed = mixed_of(transport);

	return mixed->net->needs_progress && mixed->net->needs_progress(mixed->net);
}

static void close_mixed(struct coll_transport *transport)
{
	struct mixed *mixed = mixed_of(transport);

	if (mixed->started) {
		atomic_store(&mixed->closing, true);
		eventfd_write(mixed->stop, 1);
		pthread_join(mixed->thread, NULL);
	}
	if (mixed->epoll >= 0) {
		close(mixed->epoll);
	}
	if (mixed->stop >= 0) {
		close(mixed->stop);
	}
	mixed->net->close(mixed->net);
	mixed->shm->close(mixed->shm);
	free(mixed->local);
	free(mixed);
}

static void *forward_events(void *user)
{
	struct mixed *mixed = user;
	struct epoll_event event;

	while (!atomic_load(&mixed->closing)) {
		if (epoll_wait(mixed->epoll, &event, 1, -1) > 0) {
			mixed->shm->wake(mixed->shm);
		}
	}
	return NULL;
}

static int start_forwarding(struct mixed *mixed, int events, struct pawl_err *err)
{
	struct epoll_event event = {.events = EPOLLIN | EPOLLET};
	int sys;

	mixed->epoll = FAULT_SYS("coll.mixed", epoll_create1(EPOLL_CLOEXEC));
	mixed->stop = FAULT_SYS("coll.mixed", eventfd(0, EFD_CLOEXEC));
	if (mixed->epoll < 0 || mixed->stop < 0 ||
		epoll_ctl(mixed->epoll, EPOLL_CTL_ADD, events, &event) != 0 ||
		epoll_ctl(mixed->epoll, EPOLL_CTL_ADD, mixed->stop, &event) != 0) {
		return pawl_err_sys(err, "collectives: open a transport");
	}
	sys = FAULT_SYS("coll.mixed", pthread_create(&mixed->thread, NULL, forward_events, mixed));
	if (sys != 0) {
		return pawl_err_set(err, PAWL_EIO, "collectives: start a thread: %s",
			strerror(sys == -1 ? errno : sys));
	}
	mixed->started = true;
	return 0;
}

int coll_mixed_open(struct coll_transport **out, struct coll_transport *shm,
	struct coll_transport *net, int events, const bool *local, uint32_t ranks,
	struct pawl_err *err)
{
	struct mixed *mixed = FAULT_MEM("coll.mixed", calloc(1, sizeof(*mixed)));
	int rv;

	if (!mixed) {
		shm->close(shm);
		net->close(net);
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for collectives");
	}
	mixed->transport = (struct coll_transport){send_mixed, receive_mixed, poll_mixed,
		wait_mixed, wake_mixed, lost_mixed, close_mixed, NULL, needs_progress_mixed};
	mixed->shm = shm;
	mixed->net = net;
	mixed->epoll = mixed->stop = -1;
	mixed->local = FAULT_MEM("coll.mixed", malloc(ranks));
	if (!mixed->local) {
		close_mixed(&mixed->transport);
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for collectives");
	}
	memcpy(mixed->local, local, ranks);
	rv = events >= 0 ? start_forwarding(mixed, events, err) : 0;
	if (rv != 0) {
		close_mixed(&mixed->transport);
		return rv;
	}
	*out = &mixed->transport;
	return 0;
}
