/* What the files of local*.c share. */
#ifndef DAEMON_LOCAL_IMPL_H
#define DAEMON_LOCAL_IMPL_H

#include "base/loop.h"
#include "daemon/devices.h"
#include "daemon/local.h"
#include "daemon/order.h"
#include "daemon/strays.h"

#define LOCAL_PASTS_MAX 4096u /* of stopped generations; engine commands come in order anyway */

enum local_phase {
	LOCAL_ALIVE, /* its shepherd is there */
	LOCAL_DYING, /* it is not, and something else may be */
	LOCAL_OVER,  /* nothing is left of it; its end is not stored yet */
};

struct local_run {
	struct local *local;
	struct local_run *next;
	enum local_phase phase;
	uint64_t job;
	uint64_t born; /* generation of its start */
	char dir[PATH_MAX];
	struct strays_mark mark; /* of its processes, should its shepherd be killed */
	int state_fd;            /* of its state, for reading */
	int devices_fd;          /* of its list of devices; -1: an older version has started it */
	struct devices devices;  /* that it has */
	struct loop_source peer; /* its shepherd; fd -1: it is gone, or not reached yet */
	struct loop_timer timer; /* dying: looks whether all are gone; else tries to connect */
	int64_t wait_ns;         /* between two tries of it */
	bool has_told;           /* told is: */
	struct run_told told;    /* the newest; said again to whom is reached again */
	struct run_state state;  /* as last seen */
	uint64_t told_runs;      /* generation of which it was told */
	uint64_t told_refused;   /* likewise */
	bool killed;             /* it was told to end at once before */
};

struct local_past {
	uint64_t job;
	uint64_t stopped; /* up to this generation nothing starts any more */
};

struct local {
	struct local_options options;
	struct local_run *runs; /* owned */
	struct local_past pasts[LOCAL_PASTS_MAX];
	uint32_t pasts_at; /* the next one to be written */
	uint64_t files;    /* that this process might open before it had more for itself */
};

/* ---- local.c ---- */

/* Changes the devices of a run to be for these nodes, and writes that down. PAWL_EBUSY: that cannot
 * be: its ranks would have to change theirs, or none are free. */
int local_give_devices(struct local *local, struct local_run *run, const struct order_node *nodes,
	uint32_t nodes_n, uint64_t generation, struct pawl_err *err);

/* ---- local_start.c ---- */

/* Starts a shepherd, and connects to it. On failure nothing is left of it. */
int local_start(struct local *local, const struct core_job *job, uint64_t generation,
	const struct order_node *nodes, uint32_t nodes_n, struct local_run *run,
	struct pawl_err *err);
/* Connects to the shepherd of run->dir, and has the loop listen to it. PAWL_ENOENT: there is none
 * any more, for sure; PAWL_EBUSY: there is one that takes no more for now; others of sockets: that
 * is not known. */
int local_connect(struct local_run *run, struct pawl_err *err);
void local_remove(const char *dir); /* a run's directory */

#endif
