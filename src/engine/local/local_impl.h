/* Shared by the files of local*.c. */
#ifndef ENGINE_LOCAL_LOCAL_IMPL_H
#define ENGINE_LOCAL_LOCAL_IMPL_H

#include "engine/local/devices.h"
#include "engine/local/local.h"
#include "engine/local/order.h"
#include "engine/local/strays.h"
#include "io/loop.h"

#define LOCAL_STOPS_MAX 4096u /* stopped generations kept; engine commands come in order anyway */

enum local_phase {
	LOCAL_ALIVE, /* the shepherd is there */
	LOCAL_DYING, /* the shepherd is gone, and another process may be there */
	LOCAL_OVER,  /* nothing is left of the run; its end is not stored yet */
};

struct local_run {
	struct local *local;
	struct local_run *next;
	enum local_phase phase;
	uint64_t job;
	uint64_t start_generation; /* generation of the start */
	char dir[PATH_MAX];
	struct strays_mark mark; /* mark of the run's processes, should the shepherd be killed */
	int state_fd;            /* file of the run's state, for reading */
	int devices_fd;         /* file of the run's devices; -1: an older version has started it */
	struct devices devices; /* devices that the run has */
	struct loop_source peer; /* connection to the shepherd; fd -1: gone, or not reached yet */
	struct loop_timer timer; /* dying: looks whether all are gone; else tries to connect */
	int64_t wait_ns;         /* time until the next try */
	bool has_request;        /* told is valid */
	struct run_request
		request;        /* newest command; said again to a shepherd that is reached again */
	struct run_state state; /* state as last seen */
	uint64_t posted_started; /* generation that was reported as running */
	uint64_t posted_refused; /* generation that was reported as refused */
	bool kill_sent;          /* a command to end at once was sent before */
};

struct local_stop {
	uint64_t job;
	uint64_t stopped; /* generation up to which nothing starts any more */
};

struct local {
	struct local_options options;
	struct local_run *runs; /* owned */
	struct local_stop stops[LOCAL_STOPS_MAX];
	uint32_t stops_next; /* index of the next one to be written */
	uint64_t
		nofile_limit; /* descriptors that this process might open before it raised the limit */
};

/* ---- local.c ---- */

/* Changes the devices of a run to be for these nodes, and writes that down. PAWL_EBUSY: its ranks
 * would have to change theirs, or none are free. */
int local_give_devices(struct local *local, struct local_run *run, const struct order_node *nodes,
	uint32_t nodes_n, uint64_t generation, struct pawl_err *err);

/* ---- local_start.c ---- */

/* Starts a shepherd, and connects to it. On failure nothing is left of the shepherd. */
int local_start(struct local *local, const struct core_job *job, uint64_t generation,
	const struct order_node *nodes, uint32_t nodes_n, struct local_run *run,
	struct pawl_err *err);
/* Connects to the shepherd of run->dir, and has the loop listen to it. PAWL_ENOENT: there is none
 * any more, for sure; PAWL_EBUSY: there is one that takes no more for now; others of sockets: it is
 * not known whether there is one. */
int local_connect(struct local_run *run, struct pawl_err *err);
void local_remove(const char *dir); /* removes a run's directory */

#endif
