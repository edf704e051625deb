/*
 * Decides which of several schedulers may act: a Lease of coordination.k8s.io, as client-go's
 * leader election uses it. Pure: says what is to be asked of the API server next, and is told the
 * answers.
 *
 * The clocks of machines differ, so nobody compares the times in a Lease with its own: a holder is
 * gone once the Lease has not changed for its duration, by the clock of who looks. The holder stops
 * to act earlier, after two thirds of that, counted from when its last renewal was sent.
 */
#ifndef ENGINE_K8S_LEASE_H
#define ENGINE_K8S_LEASE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define LEASE_ID_MAX      256u
#define LEASE_VERSION_MAX 64u

enum lease_state {
	LEASE_WAITS, /* somebody else has it, or nobody knows */
	LEASE_HELD,  /* by us: until lease_good_until */
	LEASE_LOST,  /* ours no more: end at once, and write nothing */
};

/* What is to be sent. */
enum lease_step {
	LEASE_NOTHING, /* before lease.due_ns */
	LEASE_READ,    /* GET */
	LEASE_CREATE,  /* POST of lease_body */
	LEASE_WRITE,   /* PUT of lease_body */
};

/* Fill self and duration_ns, and zero the rest. */
struct lease {
	char self[LEASE_ID_MAX]; /* differs from that of any other process, at any time */
	int64_t duration_ns;
	enum lease_state state;
	bool missing; /* the server has no such Lease */
	bool known;   /* the fields below hold what the server had last */
	char holder[LEASE_ID_MAX];
	char version[LEASE_VERSION_MAX]; /* resourceVersion */
	int64_t holder_ns;               /* the holder's duration */
	int64_t seen_ns;                 /* when version was seen for the first time */
	int64_t transitions;             /* how often the holder has changed */
	int64_t renewed_ns;              /* when our last renewal was sent */
	int64_t due_ns;                  /* when to step again */
};

/* Returns what to send now. A step is repeated only once its answer was reported. */
enum lease_step lease_step(struct lease *lease, int64_t now_ns);
/* Returns until when the holder may act, if no renewal comes. */
int64_t lease_good_until(const struct lease *lease);
/* Makes the body of a POST or PUT. release: the Lease is given back. NULL: no memory. */
json_t *lease_body(const struct lease *lease, const char *name, const char *name_space,
	int64_t wall_ns, bool release);
/*
 * Reports an answer to step, which was sent at sent_ns. rv: as in struct kube_answer; object: the
 * Lease as the server has it, with rv 0. Any failure leads to another look; a holder that nobody
 * answers loses the Lease by lease_step.
 */
void lease_answered(struct lease *lease, enum lease_step step, int rv, const json_t *object,
	int64_t sent_ns, int64_t now_ns);

#endif
