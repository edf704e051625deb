/*
 * A simulated transport: coll_ports (coll/port.h) whose ranks all live on one thread, in virtual
 * time. A seed replays everything.
 *
 * Each rank is a function that is written as if it had a process of its own: it calls its group,
 * and pauses where the group waits. Time goes on when no rank has anything to do.
 *
 * Between hosts a stream is what a TCP connection shows of a network: bytes in order, so many of
 * them on their way and unread at most; what is lost comes later, and so does all behind it. All
 * streams of a host share what its network takes and brings, in the order in which bytes were sent.
 * Within a host
 * streams are only bounded. Nothing is modelled of switches and of congestion control, and of
 * computing only that a rank takes its turns some time apart.
 */
#ifndef TEST_SIM_H
#define TEST_SIM_H

#include "coll/port.h"

#include <stdbool.h>

#define SIM_NEVER INT64_MAX

struct sim_net {
	double bytes_per_s;    /* of a host, each way */
	int64_t latency_ns;    /* from one host to another */
	int64_t jitter_ns;     /* at most so much more */
	int64_t loss_ns;       /* by so much what was lost comes later */
	uint32_t loss_ppm;     /* of what is sent at a time, how much is lost */
	uint64_t window_bytes; /* that a stream holds, on their way or unread */
	int64_t turn_ns;       /* from one turn of a rank to its next: what computing takes */
};

/* How a rank dies, as others see it. */
enum sim_death {
	SIM_CLOSED, /* what it sent still comes, then each connection ends */
	SIM_RESET,  /* what has not come is lost; each connection breaks */
	SIM_SILENT, /* its host is gone, and says nothing more; what it sent still comes */
};

struct sim;

/* host_of: of each rank, below ranks. */
struct sim *sim_open(const struct sim_net *net, const uint32_t *host_of, uint32_t ranks,
	uint64_t seed);
/* All ports are closed. */
void sim_close(struct sim *sim);
/* The sim's memory; closed by who has it. */
struct coll_port *sim_port(struct sim *sim, uint32_t rank);
int64_t sim_now_ns(const struct sim *sim); /* from 0 on */

/* What a rank does, once sim_run is called. */
void sim_spawn(struct sim *sim, uint32_t rank, void (*run)(void *user), void *user);
/* Until all have returned that have not died and are not frozen for ever, or time is over: false.
 * Then the others come to an end, too: their ports tell them that everybody is lost. */
bool sim_run(struct sim *sim, int64_t end_ns);
/* Of the rank that calls: it stops for so long, and does not even listen. */
void sim_sleep(struct sim *sim, uint32_t rank, int64_t for_ns);

/* Calls back at a time, outside of any rank. */
void sim_at(struct sim *sim, int64_t at_ns, void (*call)(void *user), void *user);
/* From now on. */
void sim_kill(struct sim *sim, uint32_t rank, enum sim_death death);
bool sim_died(const struct sim *sim, uint32_t rank);
/* Until then it does nothing; what comes, comes. */
void sim_freeze(struct sim *sim, uint32_t rank, int64_t until_ns);
/* Until then nothing gets from one host to another, one way; afterwards all that was sent. */
void sim_cut(struct sim *sim, uint32_t from_host, uint32_t to_host, int64_t until_ns);
/* A host's network, both ways: so many bytes a second, and so much further away from all others. */
void sim_slow(struct sim *sim, uint32_t host, double bytes_per_s, int64_t more_ns);

#endif
