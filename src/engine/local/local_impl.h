/* Shared by the files of local*.c. */
#ifndef ENGINE_LOCAL_LOCAL_IMPL_H
#define ENGINE_LOCAL_LOCAL_IMPL_H

#include "engine/local/devices.h"
#include "engine/local/local.h"
#include "engine/local/order.h"
#include "engine/local/strays.h"
#include "engine/pending_events.h"

#define LOCAL_STOPS_MAX 4096u /* jobs whose stops are remembered */

enum local_phase {
	LOCAL_ALIVE, /* the shepherd lives, or is not known to be dead */
	LOCAL_DYING, /* the shepherd is dead; other processes may be left */
	LOCAL_OVER,  /* no process is left; the core has not stored the end yet */
};

struct local_run {
	struct local *local;
	struct local_run *next;
	enum local_phase phase;
	uint64_t job;
	uint64_t start_generation; /* generation of the start */
	char dir[PATH_MAX];
	struct strays_mark mark; /* identifies the run's processes if the shepherd is killed */
	int state_fd;            /* the run's state file, open for reading; -1: there is none */
	int devices_fd;          /* the run's devices file; -1: an older version started the run */
	struct devices devices;  /* devices of the run */
	struct loop_source peer; /* connection to the shepherd; fd -1: none */
	struct loop_timer timer; /* alive: next reconnect; dying: next look for processes */
	int64_t wait_ns;         /* time until the next retry */
	bool has_request;        /* request is valid */
	struct run_request request; /* newest request; sent again after a reconnect */
	struct run_state state;     /* state as last seen */
	uint64_t posted_started;    /* newest generation posted as running */
	uint64_t posted_refused;    /* newest generation posted as refused */
	bool kill_sent;             /* a stop without grace was sent */
};

struct local_stop {
	uint64_t job;
	uint64_t stopped; /* newest generation that may not start any more */
};

struct local {
	struct local_options options;
	struct pending_events pending; /* events for options.post */
	struct local_run *runs;        /* owned */
	struct local_stop stops[LOCAL_STOPS_MAX];
	uint32_t stops_next;   /* index of the entry to overwrite next */
	uint64_t nofile_limit; /* RLIMIT_NOFILE of this process before it raised it */
};

/* ---- local.c ---- */

/* Assigns devices of these nodes to the run, for a generation, and records them in its file.
 * PAWL_EBUSY: no device is free, or a rank would have to change its device; PAWL_EIO and other
 * errors of writing. On errors the run keeps its devices. */
int local_give_devices(struct local *local, struct local_run *run, const struct order_node *nodes,
	uint32_t nodes_n, uint64_t generation, struct pawl_err *err);

/* ---- local_start.c ---- */

/* Fills nodes (ORDER_NODES_MAX of them) from a placement. PAWL_EINVAL: it has none; PAWL_ELIMIT: it
 * has too many; PAWL_ENOENT: the core does not know one. */
int local_name_nodes(const struct sched_core *core, const struct core_placement *place,
	struct order_node *nodes, struct pawl_err *err);
/* Starts the shepherd of a run, and connects to it. On failure no shepherd and no directory are
 * left. */
int local_start(struct local *local, const struct core_job *job, uint64_t generation,
	const struct order_node *nodes, uint32_t nodes_n, struct local_run *run,
	struct pawl_err *err);
/* Connects to the shepherd of run->dir, and adds the connection to the loop. PAWL_ENOENT: the
 * shepherd is certainly dead; PAWL_EBUSY: it lives, but accepts no connection now; other errors:
 * unknown whether it lives. */
int local_connect(struct local_run *run, struct pawl_err *err);
void local_remove(const char *dir); /* removes a run's directory */

#endif
