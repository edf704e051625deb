/*
 * A transport over libfabric: see fabric.h and transport.h for the contracts, and fabric_impl.h for
 * how streams are made of messages.
 *
 * libfabric makes progress only when it is called, so bytes move only while a thread polls.
 */
#include "coll/transport/fabric.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/times.h"
#include "coll/transport/fabric_impl.h"

#include <errno.h>
#include <poll.h>
#include <rdma/fi_errno.h>
#include <sched.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define ENTRIES_N  32 /* completions read at a time */
#define ROUNDS_MAX 16 /* most batches of completions before control returns to the caller */

_Static_assert(offsetof(struct fabric_op, context) == 0, "a completion's context is its op");
_Static_assert(offsetof(struct fabric, transport) == 0, "fabric_of converts pointers");
_Static_assert((FABRIC_AHEAD & (FABRIC_AHEAD - 1)) == 0 && (FABRIC_SENDS & (FABRIC_SENDS - 1)) == 0,
	"numbers of messages wrap around, and their remainders must not jump");
_Static_assert(FABRIC_HEADER < FABRIC_CONTROL && FABRIC_CONTROL <= FABRIC_MESSAGE,
	"all messages fit the buffers that receive");

/* ---- posting to libfabric ---- */

static void break_peer(struct fabric *fabric, struct fabric_peer *peer, const char *why)
{
	if (!peer->broken) {
		peer->broken = why;
		fabric->event_count++;
	}
}

/* Posts a buffer to libfabric. Returns whether libfabric has accepted it. */
static bool post(struct fabric *fabric, struct fabric_op *op)
{
	void *desc = fabric->mr ? fi_mr_desc(fabric->mr) : NULL;
	bool receives = op->peer == UINT32_MAX;
	ssize_t rv;

	ASSERT(!op->in_flight);
	if (receives) {
		rv = FAULT_SYS("coll.fabric.move",
			fi_recv(fabric->ep, op->bytes, FABRIC_MESSAGE, desc, FI_ADDR_UNSPEC,
				&op->context));
	} else {
		rv = FAULT_SYS("coll.fabric.move",
			fi_send(fabric->ep, op->bytes, op->len_bytes, desc,
				fabric->peers[op->peer].at, &op->context));
	}
	op->in_flight = rv == 0;
	fabric->in_flight += rv == 0 && !receives;
	fabric->posted |= rv == 0;
	fabric->post_pending |= rv == -FI_EAGAIN;
	if (rv != 0 && rv != -FI_EAGAIN && receives) {
		fabric->broken = "libfabric takes no more buffers";
		fabric->event_count++;
	} else if (rv != 0 && rv != -FI_EAGAIN) {
		break_peer(fabric, &fabric->peers[op->peer], "its connection broke");
	}
	return rv == 0;
}

static void push_stream(struct fabric *fabric, struct fabric_out *out)
{
	ASSERT(out->begun - out->posted <= FABRIC_SENDS);
	while (out->posted != out->begun && post(fabric, &out->ops[out->posted % FABRIC_SENDS])) {
		out->posted++;
	}
}

static void push_control(struct fabric *fabric, struct fabric_peer *peer)
{
	if (peer->control.in_flight) {
		return;
	}
	if (peer->sending == 0) {
		if (peer->want == 0) {
			return;
		}
		fabric_write_control(fabric, peer);
	}
	post(fabric, &peer->control);
}

static void push_peer(struct fabric *fabric, struct fabric_peer *peer)
{
	for (uint32_t s = 0; s < COLL_STREAMS && !peer->broken; s++) {
		push_stream(fabric, &peer->out[s]);
	}
	if (!peer->broken) {
		push_control(fabric, peer);
	}
}

/* Posts everything that is pending. */
static void push(struct fabric *fabric)
{
	fabric->post_pending = fabric->posted = false;
	for (uint32_t i = 0; i < fabric->recvs_n; i++) {
		if (!fabric->recvs[i].in_flight) {
			post(fabric, &fabric->recvs[i]);
		}
	}
	for (uint32_t p = 0; p < fabric->ranks; p++) {
		if (fabric->peers[p].has_streams) {
			push_peer(fabric, &fabric->peers[p]);
		}
	}
	if (!fabric->post_pending || fabric->posted) {
		fabric->stalled_ns = 0;
	} else if (fabric->stalled_ns == 0) {
		fabric->stalled_ns = clock_mono_ns();
	}
}

/* ---- completions ---- */

/* Completes a send. sent: the message was sent; otherwise it failed. */
static void complete_send(struct fabric *fabric, struct fabric_op *op, bool sent)
{
	struct fabric_peer *peer = &fabric->peers[op->peer];

	fabric->in_flight--;
	if (!sent) {
		break_peer(fabric, peer, "its connection broke");
	}
	if (op == &peer->control) {
		peer->hello_sent |= peer->sending == WANT_HELLO && sent;
		peer->sending = 0;
		fabric->post_pending |= peer->want != 0;
		return;
	}
	for (uint32_t s = 0; s < COLL_STREAMS; s++) {
		struct fabric_out *out = &peer->out[s];
		uint32_t freed = out->freed;

		while (out->freed != out->posted &&
			!out->ops[out->freed % FABRIC_SENDS].in_flight) {
			out->freed++;
		}
		fabric->event_count += out->blocked && out->freed != freed;
		out->blocked &= out->freed == freed;
	}
}

/* Completes an operation that succeeded (code 0) or failed. len_bytes: bytes received. */
static void complete_op(struct fabric *fabric, struct fabric_op *op, size_t len_bytes, int code)
{
	op->in_flight = false;
	if (op->peer != UINT32_MAX) {
		complete_send(fabric, op, code == 0);
		return;
	}
	if (code == 0) {
		fabric_take_message(fabric, op->bytes, len_bytes);
	}
	if (code != FI_ECANCELED) {
		post(fabric, op);
	}
}

static void take_error(struct fabric *fabric)
{
	struct fi_cq_err_entry error = {0};

	if (fi_cq_readerr(fabric->cq, &error, 0) > 0 && error.op_context) {
		complete_op(fabric, error.op_context, 0, error.err != 0 ? error.err : FI_EOTHER);
	}
}

void fabric_progress(struct fabric *fabric)
{
	struct fi_cq_msg_entry entries[ENTRIES_N];
	ssize_t n = ENTRIES_N;

	for (uint32_t i = 0; i < ROUNDS_MAX && n == ENTRIES_N && !fabric->broken; i++) {
		n = FAULT_SYS("coll.fabric.move", fi_cq_read(fabric->cq, entries, ENTRIES_N));
		for (ssize_t e = 0; e < n; e++) {
			complete_op(fabric, entries[e].op_context, entries[e].len, 0);
		}
		if (n == -FI_EAVAIL) {
			take_error(fabric);
			n = ENTRIES_N; /* there may be more */
		} else if (n < 0 && n != -FI_EAGAIN) {
			fabric->broken = "libfabric has failed";
			fabric->event_count++;
		}
	}
	if (fabric->post_pending && !fabric->broken) {
		push(fabric);
	}
}

/* ---- waiting ---- */

static uint32_t fabric_poll(struct coll_transport *transport)
{
	struct fabric *fabric = fabric_of(transport);
	struct fid *fids[] = {&fabric->cq->fid};

	fabric_progress(fabric);
	for (uint32_t i = 0; i < ROUNDS_MAX && fabric->watched; i++) {
		if (fi_trywait(fabric->fabric, fids, 1) == 0) {
			break;
		}
		fabric_progress(fabric); /* the descriptor does not report what was there before */
	}
	return fabric->event_count +
		atomic_load_explicit(&fabric->wake_count, memory_order_acquire);
}

/* Returns for how long nothing pending could be posted; 0: posting works. Some providers retry
 * forever: then a peer that is gone looks like one that does not read. */
static int64_t stalled_ns(const struct fabric *fabric)
{
	return fabric->stalled_ns > 0 ? clock_mono_ns() - fabric->stalled_ns : 0;
}

/* Sleeps if the provider has no descriptor: polls for a while, then naps. */
static void nap(struct fabric *fabric, int64_t timeout_ns)
{
	int64_t spin_ns = times_ns(TIME_FABRIC_SPIN);
	const struct timespec pause = {.tv_sec = times_ns(TIME_FABRIC_NAP) / NS_PER_S,
		.tv_nsec = times_ns(TIME_FABRIC_NAP) % NS_PER_S};
	struct pollfd woken = {.fd = fabric->event, .events = POLLIN};
	int64_t end_ns = clock_mono_ns() + (timeout_ns < spin_ns ? timeout_ns : spin_ns);
	uint32_t seen = fabric->event_count;

	while (fabric->event_count == seen && clock_mono_ns() < end_ns) {
		sched_yield();
		fabric_progress(fabric);
	}
	if (fabric->event_count == seen && timeout_ns > spin_ns) {
		ppoll(&woken, 1, &pause, NULL);
	}
}

void fabric_sleep(struct fabric *fabric, int64_t timeout_ns)
{
	struct fid *fids[] = {&fabric->cq->fid};
	struct epoll_event event;
	uint64_t count;
	int64_t long_ns = times_ns(TIME_FABRIC_STALLED);
	int64_t retry_ns = stalled_ns(fabric) > long_ns ? long_ns : times_ns(TIME_FABRIC_RETRY);
	int64_t most_ns = fabric->post_pending && timeout_ns > retry_ns ? retry_ns : timeout_ns;
	int64_t timeout_ms = (most_ns + NS_PER_MS - 1) / NS_PER_MS;

	if (fabric->fd < 0) {
		nap(fabric, most_ns);
	} else if (fi_trywait(fabric->fabric, fids, 1) == 0) {
		epoll_wait(fabric->epoll, &event, 1,
			timeout_ms < INT32_MAX ? (int)timeout_ms : INT32_MAX);
	}
	(void)!read(fabric->event, &count, sizeof(count));
}

static void wait(struct coll_transport *transport, uint32_t seen, int64_t timeout_ns)
{
	int64_t end_ns = clock_mono_ns();
	int64_t now_ns = end_ns;

	end_ns = timeout_ns < INT64_MAX - end_ns ? end_ns + timeout_ns : INT64_MAX;
	while (fabric_poll(transport) == seen && now_ns < end_ns) {
		fabric_sleep(fabric_of(transport), end_ns - now_ns);
		now_ns = clock_mono_ns();
	}
}

static void wake(struct coll_transport *transport)
{
	struct fabric *fabric = fabric_of(transport);

	atomic_fetch_add_explicit(&fabric->wake_count, 1, memory_order_release);
	eventfd_write(fabric->event, 1);
}

int coll_fabric_events(struct coll_transport *transport)
{
	struct fabric *fabric = fabric_of(transport);

	fabric->watched = fabric->fd >= 0;
	return fabric->fd;
}

/* ---- bytes ---- */

/* Sends some of the bytes as one message. Returns how many; 0: no message may be sent now. */
static size_t send_message(struct fabric *fabric, uint32_t peer, uint32_t stream,
	const uint8_t *bytes, size_t len_bytes)
{
	struct fabric_peer *to = &fabric->peers[peer];
	struct fabric_out *out = &to->out[stream];
	struct fabric_op *op = &out->ops[out->begun % FABRIC_SENDS];
	uint64_t room = out->limit - out->sent;
	size_t n = len_bytes < FABRIC_MESSAGE - FABRIC_HEADER ? len_bytes
							      : FABRIC_MESSAGE - FABRIC_HEADER;
	struct fabric_header header = {.key = to->key,
		.from = fabric->rank,
		.kind = FABRIC_DATA,
		.stream = (uint8_t)stream,
		.number = out->begun,
		.off_bytes = out->sent};

	ASSERT(out->sent <= out->limit);
	ASSERT(out->begun - out->freed <= FABRIC_SENDS && out->begun - out->acked <= FABRIC_AHEAD);
	n = n < room ? n : room;
	if (n == 0 || out->begun - out->freed == FABRIC_SENDS ||
		out->begun - out->acked == FABRIC_AHEAD) {
		return 0;
	}
	header.len_bytes = (uint32_t)n;
	fabric_encode_header(op->bytes, &header);
	memcpy(op->bytes + FABRIC_HEADER, bytes, n);
	op->len_bytes = FABRIC_HEADER + (uint32_t)n;
	out->sent += n;
	out->begun++;
	push_stream(fabric, out);
	return n;
}

static size_t fabric_send(struct coll_transport *transport, uint32_t peer, uint32_t stream,
	const void *bytes, size_t len_bytes)
{
	struct fabric *fabric = fabric_of(transport);
	struct fabric_peer *to = &fabric->peers[peer];
	size_t sent = 0;
	size_t n = 1;

	while (sent < len_bytes && n > 0 && !to->broken && !fabric->broken) {
		n = send_message(fabric, peer, stream, (const uint8_t *)bytes + sent,
			len_bytes - sent);
		sent += n;
	}
	to->out[stream].blocked |= sent < len_bytes;
	return sent;
}

static size_t fabric_receive(struct coll_transport *transport, uint32_t peer, uint32_t stream,
	void *bytes, size_t len_bytes)
{
	struct fabric *fabric = fabric_of(transport);
	struct fabric_peer *from = &fabric->peers[peer];
	struct fabric_in *in = &from->in[stream];
	uint64_t available = in->received - in->read;
	size_t n = len_bytes < available ? len_bytes : available;
	size_t at = in->read % fabric->window;
	size_t first;

	n = n < fabric->window ? n : fabric->window;
	if (n == 0) {
		return 0;
	}
	first = n < fabric->window - at ? n : fabric->window - at;
	memcpy(bytes, in->ring + at, first);
	memcpy((uint8_t *)bytes + first, in->ring, n - first);
	in->read += n;
	if (in->read - in->credited >= fabric->window / 4 && !from->bye_received) {
		from->want |= WANT_CREDIT;
	}
	if (from->want != 0 && !from->broken && !fabric->broken) {
		push_control(fabric, from);
	}
	return n;
}

/* Returns why a peer is lost. Messages overtake each other, so a peer has left once BYE and all
 * bytes that it sent have arrived. */
static const char *lost(struct coll_transport *transport, uint32_t peer)
{
	struct fabric *fabric = fabric_of(transport);
	const struct fabric_peer *of = &fabric->peers[peer];
	bool all = of->bye_received;

	for (uint32_t s = 0; s < COLL_STREAMS; s++) {
		all &= of->in[s].next == of->last[s];
	}
	if (all) {
		return "its connection was closed";
	}
	return of->broken ? of->broken : fabric->broken;
}

static bool needs_progress(struct coll_transport *transport)
{
	struct fabric *fabric = fabric_of(transport);

	if (fabric->in_flight > 0) {
		fabric_progress(fabric); /* most messages are sent at once */
	}
	return (fabric->in_flight > 0 || fabric->post_pending) && !fabric->broken &&
		stalled_ns(fabric) < times_ns(TIME_FABRIC_GIVEN_UP);
}

/* ---- closing ---- */

/* Returns whether nothing more has to be exchanged with a peer: both byes were exchanged, or the
 * peer is lost or never joined. */
static bool is_bye_done(const struct fabric_peer *peer)
{
	return !peer->has_streams || !peer->hello_sent || peer->broken ||
		(peer->bye_received && peer->want == 0 && peer->sending == 0);
}

static void exchange_byes(struct fabric *fabric)
{
	int64_t end_ns = clock_mono_ns() + times_ns(TIME_FABRIC_GOODBYE);
	bool all = true;

	for (uint32_t p = 0; p < fabric->ranks; p++) {
		if (fabric->peers[p].hello_sent) {
			fabric->peers[p].want |= WANT_BYE;
			all = false;
		}
	}
	fabric->post_pending = true;
	while (!all && !fabric->broken) {
		fabric_progress(fabric);
		all = fabric->in_flight == 0;
		for (uint32_t p = 0; p < fabric->ranks; p++) {
			all &= is_bye_done(&fabric->peers[p]);
		}
		if (clock_mono_ns() >= end_ns) {
			break; /* checked only here, so that byes are posted at least once */
		}
		if (!all) {
			fabric_sleep(fabric, times_ns(TIME_FABRIC_RETRY));
		}
	}
}

static void fabric_close(struct coll_transport *transport)
{
	struct fabric *fabric = fabric_of(transport);

	if (fabric->peers) {
		exchange_byes(fabric);
	}
	fabric_release(fabric);
	if (fabric->epoll >= 0) {
		close(fabric->epoll);
	}
	if (fabric->event >= 0) {
		close(fabric->event);
	}
	free(fabric->memory);
	free(fabric->rings);
	free(fabric->recvs);
	free(fabric->peers);
	free(fabric);
}

const struct coll_transport fabric_transport = {fabric_send, fabric_receive, fabric_poll, wait,
	wake, lost, fabric_close, NULL, needs_progress};
