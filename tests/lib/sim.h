/*
 * A simulated transport: transports (coll/transport/transport.h) whose ranks all run on one thread,
 * in virtual time. A seed reproduces everything.
 *
 * Each rank is a function that is written as if it had a process of its own: it calls its group,
 * and pauses where the group waits. Time goes on when no rank has anything to do.
 *
 * Between hosts a stream behaves like a TCP connection: bytes come in order, with a bounded number
 * in flight and unread; lost bytes come later, and so do all bytes behind them. All streams of a
 * host share its network's rate in each direction, in the order in which bytes were sent. Within a
 * host streams are only bounded. Switches and congestion control are not modelled, and of computing
 * only that a rank takes its turns some time apart.
 */
#ifndef TEST_SIM_H
#define TEST_SIM_H

#include "coll/transport/transport.h"

#include <stdbool.h>

#define SIM_NEVER INT64_MAX

struct sim_net {
	double bytes_per_s; /* rate of a host, each way */
	int64_t latency_ns; /* delay from one host to another */
	int64_t jitter_ns;  /* additional random delay, at most */
	int64_t loss_ns;    /* additional delay of lost bytes */
	uint32_t loss_ppm;  /* probability, per million, that the bytes sent at a time are lost */
	uint64_t window_bytes; /* bytes of a stream that can be in flight or unread */
	int64_t turn_ns;       /* time from one turn of a rank to its next: stands for computing */
};

/* How a rank dies, as other ranks see it. */
enum sim_death {
	SIM_CLOSED, /* bytes it sent still arrive, then each connection ends */
	SIM_RESET,  /* bytes that have not arrived are lost; each connection breaks */
	SIM_SILENT, /* the host is gone, and sends nothing more; bytes it sent still arrive */
};

struct sim;

/* Opens a simulation. host_of has the host of each rank, below ranks. */
struct sim *sim_open(const struct sim_net *net, const uint32_t *host_of, uint32_t ranks,
	uint64_t seed);
/* Frees the simulation, after all transports are closed. */
void sim_close(struct sim *sim);
/* Returns a rank's transport, which lies in the simulation's memory; its user closes it. */
struct coll_transport *sim_transport(struct sim *sim, uint32_t rank);
int64_t sim_now_ns(const struct sim *sim); /* starts at 0 */

/* Sets the function that a rank runs once sim_run is called. */
void sim_spawn(struct sim *sim, uint32_t rank, void (*run)(void *user), void *user);
/* Runs until all ranks that are neither dead nor frozen for ever have returned, or end_ns is
 * reached: then returns false. Afterwards the other ranks end, too: their transports report every
 * peer as lost. */
bool sim_run(struct sim *sim, int64_t end_ns);
/* Called by the rank itself: it stops for this time, and does not even listen. */
void sim_sleep(struct sim *sim, uint32_t rank, int64_t for_ns);

/* Calls a function at a time, outside of any rank. */
void sim_at(struct sim *sim, int64_t at_ns, void (*call)(void *user), void *user);
/* Kills a rank now. */
void sim_kill(struct sim *sim, uint32_t rank, enum sim_death death);
bool sim_died(const struct sim *sim, uint32_t rank);
/* Freezes a rank until a time: it does nothing, though bytes still arrive. */
void sim_freeze(struct sim *sim, uint32_t rank, int64_t until_ns);
/* Cuts the connection from one host to another until a time; afterwards all that was sent
 * arrives. */
void sim_cut(struct sim *sim, uint32_t from_host, uint32_t to_host, int64_t until_ns);
/* Sets the rate of a host's network, both ways, and an additional delay to and from all others. */
void sim_slow(struct sim *sim, uint32_t host, double bytes_per_s, int64_t more_ns);

#endif
