/* Connections between nodes: see node_net.h. */
#include "launch/nodes/node_net.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/times.h"
#include "io/greeting.h"
#include "io/listener.h"
#include "io/tls.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define LABEL    "pawl run 1: key between nodes" /* ties the TLS key to this use */
#define BACKLOG  128
#define IN_BYTES (2 * (NODE_FRAME_HEADER + NODE_FRAME_MAX))
#define PEER_MAX 80u /* bytes of "10.79.0.2:40112", terminator included */

enum conn_state {
	CONN_CONNECTING, /* until the socket can be written to */
	CONN_HELLO,      /* until the other end has sent its 8 bytes */
	CONN_HANDSHAKE,  /* until the TLS handshake is done */
	CONN_OPEN,       /* frames are exchanged */
	CONN_BROKEN,     /* the timer is about to report it to the owner */
	CONN_CLOSING,    /* the owner has dropped it; unsent bytes still go out */
};

struct conn {
	struct conn *next;           /* next in the net's list */
	struct node_net *net;        /* the net that owns the connection */
	uint32_t id;                 /* number by which the owner knows the connection */
	enum conn_state state;       /* how far the connection is */
	bool outgoing;               /* this node connected */
	bool frame_received;         /* a frame has come */
	bool write_closed;           /* CLOSING: this end is closed for writing */
	struct loop_source source;   /* socket; fd -1: none */
	uint32_t events;             /* epoll events waited for */
	struct addrinfo *addresses;  /* addresses to connect to, if outgoing; owned */
	struct addrinfo *address;    /* entry of addresses being tried */
	struct tls_session *session; /* owned; NULL before HANDSHAKE */
	int64_t due_ns;              /* time of the next step, monotonic ns; 0: none */
	struct wire_out out;         /* bytes to send, from out_off on */
	size_t out_off;              /* bytes of out already sent */
	size_t in_bytes;             /* bytes used in in */
	uint8_t in[IN_BYTES];        /* received, not yet a whole frame */
	char peer[PEER_MAX];         /* address and port of the other end */
	char why[256];               /* why the state is BROKEN */
};

struct node_net {
	struct node_net_options options; /* as given */
	struct tls *tls;                 /* owned */
	struct listener listener;        /* at the place that this node coordinates */
	struct loop_timer timer;         /* fires at the soonest due_ns */
	struct conn *conns;              /* owned */
	uint32_t last_id;                /* id of the newest connection */
	int64_t stranger_logged_ns;      /* when a stranger was last logged, monotonic ns */
};

/* ---- life ---- */

static void set_timer(struct node_net *net)
{
	int64_t due_ns = 0;

	for (const struct conn *c = net->conns; c != NULL; c = c->next) {
		if (c->due_ns != 0 && (due_ns == 0 || c->due_ns < due_ns)) {
			due_ns = c->due_ns;
		}
	}
	if (due_ns != 0) {
		loop_timer_start(net->options.loop, &net->timer, due_ns);
	} else {
		loop_timer_cancel(net->options.loop, &net->timer);
	}
}

static void set_due(struct conn *c, int64_t due_ns)
{
	c->due_ns = due_ns;
	set_timer(c->net);
}

static void close_socket(struct conn *c)
{
	tls_session_close(c->session);
	c->session = NULL;
	if (c->source.fd >= 0) {
		loop_remove(c->net->options.loop, &c->source);
		close(c->source.fd);
		c->source.fd = -1;
	}
}

static void free_conn(struct conn *c)
{
	struct conn **at = &c->net->conns;

	while (*at != c) {
		ASSERT(*at != NULL); /* make_conn put it into the list */
		at = &(*at)->next;
	}
	*at = c->next;
	close_socket(c);
	if (c->addresses != NULL) {
		freeaddrinfo(c->addresses);
	}
	wire_out_deinit(&c->out);
	set_timer(c->net);
	free(c);
}

/* Marks a connection as broken; the timer then reports it to the owner. A connection that is
 * closing is freed by the timer. */
static void break_conn(struct conn *c, const char *why)
{
	if (c->state == CONN_CLOSING) {
		c->due_ns = clock_mono_ns();
		set_timer(c->net);
		return;
	}
	snprintf(c->why, sizeof(c->why), "%s", why);
	close_socket(c);
	c->state = CONN_BROKEN;
	set_due(c, clock_mono_ns());
}

static void on_socket(struct loop_source *source, uint32_t events);

static struct conn *make_conn(struct node_net *net, bool outgoing)
{
	struct conn *c = FAULT_MEM("node.conn", calloc(1, sizeof(*c)));

	if (c == NULL) {
		return NULL;
	}
	c->net = net;
	c->outgoing = outgoing;
	c->source = (struct loop_source){-1, on_socket, c};
	net->last_id++;
	/* Ids skip NODE_NONE and start again at 0 after 2^32. */
	net->last_id += net->last_id == NODE_NONE;
	c->id = net->last_id;
	c->next = net->conns;
	net->conns = c;
	return c;
}

static struct conn *find_conn(struct node_net *net, uint32_t id)
{
	for (struct conn *c = net->conns; c != NULL; c = c->next) {
		if (c->id == id && c->state != CONN_CLOSING) {
			return c;
		}
	}
	return NULL;
}

static void set_events(struct conn *c, uint32_t events)
{
	if (c->events != events &&
		loop_change(c->net->options.loop, &c->source, events, NULL) == 0) {
		c->events = events;
	}
}

/* ---- addresses ---- */

static struct addrinfo *resolve(const struct node_place *place, int flags, struct pawl_err *err)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
		.ai_flags = AI_NUMERICSERV | flags};
	struct addrinfo *found = NULL;
	int rv = getaddrinfo(place->host, place->port, &hints, &found);

	if (rv != 0) {
		pawl_err_set(err, PAWL_EIO, "%s: %s", place->host, gai_strerror(rv));
		return NULL;
	}
	return found;
}

static void name_peer(struct conn *c, const struct sockaddr *at, socklen_t len)
{
	char host[64];
	char port[8];

	if (getnameinfo(at, len, host, sizeof(host), port, sizeof(port),
		    NI_NUMERICHOST | NI_NUMERICSERV) == 0) {
		snprintf(c->peer, sizeof(c->peer), "%s:%s", host, port);
	}
}

/* ---- reading and writing ---- */

static struct greeting make_greeting(const struct node_net *net)
{
	return (struct greeting){.magic = "pawl-r",
		.version = NODE_NET_VERSION,
		.token = net->options.token != NULL,
		.program = "a `pawl run`",
		.here = "this node"};
}

static void start_hello(struct conn *c)
{
	const struct greeting own = make_greeting(c->net);
	uint8_t hello[GREETING_BYTES];
	const int one = 1;

	greeting_put(&own, hello);
	setsockopt(c->source.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	c->state = CONN_HELLO;
	set_events(c, EPOLLIN);
	/* The buffer of a new socket has room for eight bytes. */
	if (send(c->source.fd, hello, sizeof(hello), MSG_NOSIGNAL) != (ssize_t)sizeof(hello)) {
		break_conn(c, "its connection ended");
	}
}

static void flush(struct conn *c)
{
	struct pawl_err err;
	bool write = false;

	ASSERT(c->state == CONN_OPEN || c->state == CONN_CLOSING);
	ASSERT(c->out_off <= c->out.len_bytes);
	while (c->out_off < c->out.len_bytes) {
		ssize_t n = tls_session_write(c->session, c->out.bytes + c->out_off,
			c->out.len_bytes - c->out_off, &write, &err);

		if (n < 0) {
			break_conn(c, err.msg);
			return;
		}
		if (n == 0) {
			set_events(c, EPOLLIN | (write ? EPOLLOUT : 0));
			return;
		}
		c->out_off += (size_t)n;
	}
	wire_out_reset(&c->out);
	c->out_off = 0;
	set_events(c, EPOLLIN);
	if (c->state == CONN_CLOSING && !c->write_closed) {
		tls_session_end(c->session);
		shutdown(c->source.fd, SHUT_WR);
		c->write_closed = true;
	}
}

/* Delivers whole frames. Returns false if the connection may have been freed, or is broken. */
static bool deliver_frames(struct conn *c)
{
	struct node_net *net = c->net;
	struct node_frame frame;
	struct pawl_err err;
	uint32_t id = c->id;
	size_t off = 0;
	int n;

	while ((n = node_frame_get(c->in + off, c->in_bytes - off, &frame, &err)) > 0) {
		off += (size_t)n;
		if (!c->frame_received) {
			c->frame_received = true;
			set_due(c, 0);
		}
		net->options.frame(net->options.user, id, &frame);
		if (find_conn(net, id) != c || c->state != CONN_OPEN) {
			return false;
		}
	}
	if (n < 0) {
		break_conn(c, err.msg);
		return false;
	}
	memmove(c->in, c->in + off, c->in_bytes - off);
	c->in_bytes -= off;
	ASSERT(c->in_bytes < NODE_FRAME_HEADER + NODE_FRAME_MAX); /* less than a frame is left */
	return true;
}

static void read_frames(struct conn *c)
{
	struct pawl_err err;
	bool write = false;
	ssize_t n;

	do {
		ASSERT(c->in_bytes < IN_BYTES);
		n = tls_session_read(c->session, c->in + c->in_bytes, IN_BYTES - c->in_bytes,
			&write, &err);
		if (n < 0) {
			break_conn(c, err.msg);
			return;
		}
		c->in_bytes += (size_t)n;
	} while (n > 0 && deliver_frames(c));
}

/* Discards what still comes after the owner has dropped the connection. */
static void discard_input(struct conn *c)
{
	uint8_t nothing[512];
	ssize_t n;

	if (c->out.len_bytes > 0) {
		flush(c);
	}
	n = recv(c->source.fd, nothing, sizeof(nothing), MSG_DONTWAIT);
	if (c->write_closed && (n == 0 || (n < 0 && errno != EAGAIN))) {
		set_due(c, clock_mono_ns());
	}
}

static void handshake(struct conn *c)
{
	struct node_net *net = c->net;
	struct pawl_err err;
	bool write = false;
	int rv = tls_session_handshake(c->session, &write, &err);

	if (rv < 0) {
		break_conn(c, err.msg);
		return;
	}
	set_events(c, EPOLLIN | (write ? EPOLLOUT : 0));
	if (rv == 1) {
		c->state = CONN_OPEN;
		if (c->outgoing) {
			set_due(c, 0);
			net->options.connected(net->options.user, c->id);
		} else {
			read_frames(c); /* TLS may hold frames that came with its last message */
		}
	}
}

static void take_hello(struct conn *c)
{
	const struct greeting own = make_greeting(c->net);
	struct pawl_err err;
	ssize_t n;
	int rv;

	ASSERT(c->in_bytes < GREETING_BYTES);
	n = recv(c->source.fd, c->in + c->in_bytes, GREETING_BYTES - c->in_bytes, MSG_DONTWAIT);
	if (n <= 0) {
		if (n == 0 || errno != EAGAIN) {
			break_conn(c, "its connection ended before it sent its greeting");
		}
		return;
	}
	c->in_bytes += (size_t)n;
	rv = greeting_check(&own, c->in, c->in_bytes, &err);
	if (rv < 0) {
		break_conn(c, err.msg);
	}
	if (rv <= 0) {
		return;
	}
	c->in_bytes = 0;
	c->session = tls_session_open(c->net->tls, c->source.fd, !c->outgoing);
	if (c->session == NULL) {
		break_conn(c, "out of memory");
		return;
	}
	c->state = CONN_HANDSHAKE;
	handshake(c);
}

/* ---- connecting ---- */

static void try_address(struct conn *c);

static void next_address(struct conn *c, const char *why)
{
	close_socket(c);
	c->address = c->address != NULL ? c->address->ai_next : NULL;
	if (c->address != NULL) {
		try_address(c);
	} else {
		break_conn(c, why);
	}
}

static void try_address(struct conn *c)
{
	const struct addrinfo *at = c->address;
	struct pawl_err err;
	int fd = FAULT_SYS("node.connect",
		socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));

	name_peer(c, at->ai_addr, at->ai_addrlen);
	c->source.fd = fd;
	c->events = EPOLLOUT;
	if (fd < 0 || loop_add(c->net->options.loop, &c->source, c->events, &err) != 0) {
		next_address(c, "no socket for a connection");
		return;
	}
	if (connect(fd, at->ai_addr, at->ai_addrlen) != 0 && errno != EINPROGRESS) {
		next_address(c, strerrordesc_np(errno));
		return;
	}
	set_due(c, clock_mono_ns() + times_ns(TIME_NET_HELLO));
}

uint32_t node_net_connect(struct node_net *net, uint32_t place)
{
	struct conn *c = make_conn(net, true);
	struct pawl_err err;

	if (c == NULL) {
		return NODE_NONE;
	}
	c->state = CONN_CONNECTING;
	c->addresses = resolve(&net->options.places[place], 0, &err);
	c->address = c->addresses;
	if (c->address == NULL) {
		break_conn(c, err.msg);
	} else {
		try_address(c);
	}
	return c->id;
}

static void finish_connect(struct conn *c)
{
	int sys = 0;
	socklen_t len = sizeof(sys);

	if (getsockopt(c->source.fd, SOL_SOCKET, SO_ERROR, &sys, &len) != 0 || sys != 0) {
		next_address(c, strerrordesc_np(sys != 0 ? sys : errno));
		return;
	}
	start_hello(c);
}

static void on_socket(struct loop_source *source, uint32_t events)
{
	struct conn *c = source->user;

	switch (c->state) {
	case CONN_CONNECTING:
		finish_connect(c);
		break;
	case CONN_HELLO:
		take_hello(c);
		break;
	case CONN_HANDSHAKE:
		handshake(c);
		break;
	case CONN_OPEN:
		if (events & EPOLLOUT) {
			flush(c);
		}
		if (c->state == CONN_OPEN) {
			read_frames(c);
		}
		break;
	case CONN_CLOSING:
		discard_input(c);
		break;
	case CONN_BROKEN:
		break;
	}
}

/* ---- time ---- */

/* Logs a stranger that was closed, at most once per TIME_NET_COMPLAIN. */
static void log_stranger(struct node_net *net, const struct conn *c)
{
	int64_t now_ns = clock_mono_ns();

	if (now_ns - net->stranger_logged_ns >= times_ns(TIME_NET_COMPLAIN)) {
		net->stranger_logged_ns = now_ns;
		log_line(LOG_WARNING, "nodes: connection from %s closed: %s", c->peer, c->why);
	}
}

static void report(struct node_net *net, struct conn *c)
{
	uint32_t id = c->id;
	bool known = c->outgoing || c->frame_received;
	char why[sizeof(c->why)];

	memcpy(why, c->why, sizeof(why));
	if (!known) {
		log_stranger(net, c);
	}
	free_conn(c);
	if (known) {
		net->options.closed(net->options.user, id, why);
	}
}

static void expire(struct node_net *net, struct conn *c)
{
	c->due_ns = 0;
	switch (c->state) {
	case CONN_BROKEN:
		report(net, c);
		return;
	case CONN_CLOSING:
		free_conn(c);
		return;
	case CONN_CONNECTING:
		next_address(c, "Connection timed out: a firewall, or no such host");
		return;
	default:
		break_conn(c, "it has sent no greeting or no frame in time");
	}
}

static void on_timer(struct loop_timer *timer)
{
	struct node_net *net = timer->user;
	int64_t now_ns = clock_mono_ns();
	struct conn *c = net->conns;

	while (c != NULL && (c->due_ns == 0 || c->due_ns > now_ns)) {
		c = c->next;
	}
	if (c != NULL) {
		expire(net,
			c); /* may change the list; the timer then fires at once for the others */
	}
	set_timer(net);
}

/* ---- listening ---- */

static void drop_stranger(struct node_net *net)
{
	struct conn *oldest = NULL;
	uint32_t strangers = 0;

	for (struct conn *c = net->conns; c != NULL; c = c->next) {
		if (!c->outgoing && !c->frame_received && c->state <= CONN_OPEN) {
			strangers++;
			oldest = c; /* new ones are put in front */
		}
	}
	if (strangers > NET_STRANGERS_MAX) {
		break_conn(oldest, "too many connections have sent no frame");
	}
}

static void on_connect(struct listener *listener, int fd, const struct sockaddr *from,
	socklen_t len)
{
	struct node_net *net = listener->user;
	struct conn *c;

	c = make_conn(net, false);
	if (c == NULL) {
		close(fd);
		return;
	}
	c->source.fd = fd;
	c->events = EPOLLIN;
	name_peer(c, from, len);
	if (loop_add(net->options.loop, &c->source, c->events, NULL) != 0) {
		close(fd);
		c->source.fd = -1;
		free_conn(c);
		return;
	}
	set_due(c, clock_mono_ns() + times_ns(TIME_NET_HELLO));
	start_hello(c);
	drop_stranger(net);
}

/* Returns 0, PAWL_ENOENT or PAWL_EBUSY, as listen in nodes_ops does; *fd is set if 0. */
static int listen_at(const struct addrinfo *at, int *fd, struct pawl_err *err)
{
	const int yes = 1;
	int s = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int rv = 0;

	if (s < 0) {
		return pawl_err_sys(err, "make a socket");
	}
	setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	if (FAULT_SYS("node.listen", bind(s, at->ai_addr, at->ai_addrlen)) != 0 ||
		listen(s, BACKLOG) != 0) {
		rv = pawl_err_sys(err, "listen");
		rv = err->sys == EADDRNOTAVAIL   ? PAWL_ENOENT
			: err->sys == EADDRINUSE ? PAWL_EBUSY
						 : rv;
		close(s);
		return rv;
	}
	*fd = s;
	return 0;
}

int node_net_listen(struct node_net *net, uint32_t place, struct pawl_err *err)
{
	struct addrinfo *found = resolve(&net->options.places[place], 0, err);
	int rv = PAWL_ENOENT;
	int fd = -1;

	for (const struct addrinfo *at = found; at != NULL && rv == PAWL_ENOENT; at = at->ai_next) {
		rv = listen_at(at, &fd, err);
	}
	if (found != NULL) {
		freeaddrinfo(found);
	}
	if (rv == 0) {
		rv = listener_start(&net->listener, net->options.loop, fd, err);
	}
	if (rv != 0 && fd >= 0) {
		close(fd);
	}
	return rv == 0 ? 0 : pawl_err_prefix(err, rv, "%s", net->options.places[place].text);
}

void node_net_unlisten(struct node_net *net)
{
	listener_stop(&net->listener);
}

/* ---- calls of the owner ---- */

void node_net_send(struct node_net *net, uint32_t conn, const struct node_frame *frame)
{
	struct conn *c = find_conn(net, conn);

	if (c == NULL || c->state != CONN_OPEN) {
		return;
	}
	node_frame_put(&c->out, frame);
	if (c->out.failed || c->out.len_bytes - c->out_off > NET_OUT_MAX) {
		break_conn(c, c->out.failed ? "out of memory" : "it does not read what it is sent");
		return;
	}
	flush(c);
}

void node_net_drop(struct node_net *net, uint32_t conn)
{
	struct conn *c = find_conn(net, conn);

	if (c == NULL) {
		return;
	}
	if (c->state != CONN_OPEN) {
		c->state = CONN_CLOSING;
		set_due(c, clock_mono_ns());
		return;
	}
	c->state = CONN_CLOSING;
	set_due(c, clock_mono_ns() + times_ns(TIME_NET_GOODBYE));
	flush(c);
}

int node_net_open(struct node_net **out, const struct node_net_options *options,
	struct pawl_err *err)
{
	struct node_net *net = FAULT_MEM("node.net", calloc(1, sizeof(*net)));
	int rv;

	if (net == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "nodes: out of memory");
	}
	net->options = *options;
	net->listener = (struct listener){.what = "a node", .accepted = on_connect, .user = net};
	net->timer = (struct loop_timer){.fired = on_timer, .user = net};
	rv = tls_open(&net->tls, options->token, LABEL, err);
	if (rv != 0) {
		free(net);
		return rv;
	}
	*out = net;
	return 0;
}

void node_net_close(struct node_net *net)
{
	if (net == NULL) {
		return;
	}
	node_net_unlisten(net);
	for (struct conn *c = net->conns, *next; c != NULL; c = next) {
		next = c->next;
		free_conn(c);
	}
	loop_timer_cancel(net->options.loop, &net->timer);
	tls_close(net->tls);
	free(net);
}
