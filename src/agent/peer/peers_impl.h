/* What peers.c (life, threads) and peers_serve.c (one connection) share. */
#ifndef AGENT_PEER_PEERS_IMPL_H
#define AGENT_PEER_PEERS_IMPL_H

#include "agent/peer/peer_stream.h"
#include "agent/peer/peers.h"

#include "pawl/err.h"

#include <pthread.h>

#define PEERS_CONNS_MAX (2 * PEER_HOSTS_MAX) /* connections that are served at a time, at most */

struct held_in;

/* A connection that another agent, or a stranger, has made to this one. */
struct peers_conn {
	struct peers_conn *next;     /* next in the list, older ones behind; under the lock */
	struct peers *peers;         /* owner of the connection */
	struct peer_stream stream;   /* the thread's; its fd is closed under the lock */
	pthread_t thread;            /* runs peers_serve */
	bool known;                  /* has sent a PEER_HELLO of this job; under the lock */
	bool dropped;                /* was closed to make room; under the lock */
	bool ended;                  /* the thread does no more than return; under the lock */
	char from[PEER_ADDRESS_MAX]; /* address of the other end, for messages */
	/* What is only the thread's: */
	struct held_in *in;      /* replica being received; NULL: none, or it failed */
	int in_rv;               /* why what is received is dropped; 0: it is not */
	struct pawl_err in_err;  /* filled if in_rv != 0 */
	struct wire_out content; /* blob of an answer */
	uint8_t *block;          /* PEER_BLOCK bytes of an image; NULL until one is asked for */
};

struct peers {
	char job[CKPT_JOB_MAX];         /* job id */
	char address[PEER_ADDRESS_MAX]; /* "host:port" of this end */
	char domain[PEER_DOMAIN_MAX];   /* failure domain of this host, or "" */
	uint32_t port;                  /* port of this end */
	bool has_token;                 /* the job has a token */
	struct tls *tls;                /* owned */
	struct held *held;              /* owned */
	struct rounds *rounds;          /* owned */
	struct notes *notes;            /* owned */
	int listen_fd;                  /* listening socket; -1: none */
	int stop_fd;                    /* eventfd: readable once all ends; never read */
	int ended_fd;                   /* eventfd: readable if a connection's thread has ended */
	pthread_t thread;               /* accepts, and joins threads that have ended */
	pthread_mutex_t lock;           /* guards what follows */
	struct peers_conn *conns;       /* owned; newest first */
	char leader[PEER_ADDRESS_MAX];  /* "host:port" of rank 0's host; "": unknown */
	bool outlives;                  /* peers_outlive was called */
	int64_t complained_ns; /* when a stranger was last logged, monotonic ns; 0: never */
};

/* Serves a connection until it ends. Runs in the connection's own thread. */
void peers_serve(struct peers_conn *conn);
/* The connection has sent its PEER_HELLO: it is no stranger any more. */
void peers_know(struct peers_conn *conn);
/* Logs why a connection ended if nobody else learns of it: that of a stranger, at most once per
 * TIME_NET_COMPLAIN, and one that sent what is no message. */
void peers_complain(struct peers_conn *conn, int rv, const char *why);

#endif
