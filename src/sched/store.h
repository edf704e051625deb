/*
 * What the scheduler knows, on disk: one SQLite file, in WAL mode, each transaction synced before
 * anything is done that it speaks of. What a step of the core has changed is written as one; so
 * after SIGKILL, or a loss of power, the file is as it was after one step.
 *
 * One scheduler has it at a time, and nobody else while it has. One thread.
 */
#ifndef SCHED_STORE_H
#define SCHED_STORE_H

#include "base/proc.h"
#include "sched/core.h"

#define STORE_ENDED_MAX   100000u      /* newest jobs of which those that are over are kept */
#define STORE_SPECS_BYTES (128u << 20) /* newest specs of those that are over that are kept */
#define STORE_AWAY_MAX_NS (365 * 86400 * 1000000000LL)

struct sched_store;

/* Types of nodes by their numbers, as records of nodes and jobs have them. */
struct store_types {
	char names[SCHED_TYPES_MAX][CORE_NAME_MAX];
	uint32_t known; /* bit t: there is a type t; its name may be "" */
};

/* What a user submitted, with its job. */
struct store_spec {
	uint64_t job;
	const void *bytes; /* the caller's */
	size_t len_bytes;
};

/* The clock of the core when the newest rows were written, and those of the machine then. */
struct store_clock {
	int64_t core_ns; /* 0: nothing was written yet */
	int64_t wall_ns;
	int64_t boot_ns;         /* clock_boot_ns */
	char boot[PROC_BOOT_ID]; /* of which boot; "": it cannot be told. Not of history */
};

/*
 * Opens it, brought to this version if it is an older one's. make: it is made if there is none, or
 * an empty one; else that is PAWL_ENOENT, and it is left as it is. PAWL_EBUSY: another process has
 * locked it, for 5 s; PAWL_ENOTSUP: it is a newer Pawl's; PAWL_EINVAL: it is no
 * scheduler's; PAWL_EIO: it is read-only, or cannot be read; PAWL_ECORRUPT; PAWL_ENOSPC;
 * PAWL_ENOMEM.
 */
int sched_store_open(struct sched_store **out, const char *path, bool make, struct pawl_err *err);
void sched_store_close(struct sched_store *store);

/*
 * All that the last step has changed, and the spec of what was submitted (NULL: nothing), as one.
 * Errors as of open: nothing is written, and the core is of no use any more but to be closed.
 */
int sched_store_save(struct sched_store *store, struct sched_core *core,
	const struct store_clock *clock, const struct store_spec *spec, struct pawl_err *err);
/* The core of what is written. Errors as of open, and of core_restore. */
int sched_store_restore(struct sched_store *store, const struct core_options *options,
	struct sched_core **core, struct store_clock *clock, struct pawl_err *err);
/* Those that are written; none, if an older version wrote the file. Errors as of open. */
int sched_store_get_types(struct sched_store *store, struct store_types *types,
	struct pawl_err *err);
/* From now on these, and no others. Errors as of open: they are as before. */
int sched_store_put_types(struct sched_store *store, const struct store_types *types,
	struct pawl_err *err);
/* The number of a name, in capitals or not; of a new one the first that is free, from now on.
 * SCHED_TYPES_MAX: none is. Pure. */
uint32_t store_types_number(struct store_types *types, const char *name);
/* How long nobody was here: by the clock of the boot if it is the same one, so that it does not
 * matter how the wall's was set meanwhile; else by the wall's, from 0 to STORE_AWAY_MAX_NS.
 * Pure. */
int64_t store_away_ns(const struct store_clock *then, const struct store_clock *now);
/* A job's spec, to be freed. PAWL_ENOENT: also if it is over, and there are many or large newer
 * ones. */
int sched_store_spec(struct sched_store *store, uint64_t job, uint8_t **bytes, size_t *len_bytes,
	struct pawl_err *err);
/* A job that is over. */
struct store_job {
	uint64_t id;
	const char *name; /* these until the call returns */
	uint32_t owner;
	const char *queue;
	const char *state;
	const char *reason;
	int exit_code;
	int64_t submitted_ns; /* wall clock, and of its end; 0: an older version has stored it */
	int64_t since_ns;
	int64_t ran_ns;
	uint32_t restarts, failures; /* as in core.h */
	int32_t priority;            /* as in core.h */
	uint32_t least, most;        /* as in core.h; 0: its record cannot be read */
};

/* Tells those that are over, the newest first: id (0: any), name ("": any), at most so many.
 * *all: how many there are; NULL: nobody asks, which spares counting them. */
int sched_store_ended(struct sched_store *store, uint64_t id, const char *name, uint32_t most,
	void (*told)(void *user, const struct store_job *job), void *user, uint64_t *all,
	struct pawl_err *err);
/* Of all jobs that ever came to that end, those that are not kept any more included. */
struct store_total {
	const char *state; /* until the call returns */
	uint64_t jobs;
	int64_t took_ns; /* from submission to end, of all together */
	uint64_t restarts, failures;
};
int sched_store_totals(struct sched_store *store,
	void (*told)(void *user, const struct store_total *total), void *user,
	struct pawl_err *err);

#endif
