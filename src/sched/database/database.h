/*
 * The scheduler's state on disk: one SQLite file, in WAL mode. Each transaction is synced before
 * anything that it records is carried out. All changes of a step of the core are one transaction.
 * So after SIGKILL, or a loss of power, the database is in the state after some step.
 *
 * One scheduler has the database open at a time, and nobody else meanwhile. For one thread.
 */
#ifndef SCHED_DATABASE_DATABASE_H
#define SCHED_DATABASE_DATABASE_H

#include "base/proc.h"
#include "base/units.h"
#include "sched/core/core.h"

/* Jobs that are over are kept if they are among the newest jobs, this many. */
#define DATABASE_ENDED_MAX 100000u
/* Bytes of specs of jobs that are over; the newest are kept. */
#define DATABASE_SPECS_BYTES     (128u << 20)
#define DATABASE_DOWNTIME_MAX_NS (365 * 86400 * NS_PER_S)

struct sched_database;

/* Types of nodes by their numbers, as in the records of nodes and jobs. */
struct database_types {
	char names[SCHED_TYPES_MAX][CORE_NAME_MAX];
	uint32_t known; /* bit t: type t exists; its name may be "" */
};

/* A job's spec, as its user submitted it. */
struct database_spec {
	uint64_t job;
	const void *bytes; /* the caller's */
	size_t len_bytes;
};

/* The core's clock when the newest rows were written, and the machine's clocks then. */
struct database_clock {
	int64_t core_ns; /* 0: nothing was written yet */
	int64_t wall_ns;
	int64_t boot_ns;         /* clock_boot_ns */
	char boot[PROC_BOOT_ID]; /* the boot of boot_ns; "": not known. Not in the history */
};

/*
 * Opens the database, and migrates it to this version if an older one wrote it. make: if there is
 * no file, or an empty one, makes a database; else that is PAWL_ENOENT, and the file stays
 * unchanged. PAWL_EBUSY: another process has locked it, for 5 s; PAWL_ENOTSUP: a newer Pawl wrote
 * it; PAWL_EINVAL: it is not a scheduler's; PAWL_EIO: it is read-only, or cannot be read;
 * PAWL_ECORRUPT; PAWL_ENOSPC; PAWL_ENOMEM.
 */
int sched_database_open(struct sched_database **out, const char *path, bool make,
	struct pawl_err *err);
void sched_database_close(struct sched_database *db);

/*
 * Writes all changes of the last step, and the spec that was submitted (NULL: none), as one
 * transaction. Errors as of open: nothing is written, and the core can only be closed.
 */
int sched_database_save(struct sched_database *db, struct sched_core *core,
	const struct database_clock *clock, const struct database_spec *spec, struct pawl_err *err);
/* Restores the core from the database. Errors as of open, and of core_restore. */
int sched_database_restore(struct sched_database *db, const struct core_options *options,
	struct sched_core **core, struct database_clock *clock, struct pawl_err *err);
/* Reads the types; none if an older version wrote the database. Errors as of open. */
int sched_database_get_types(struct sched_database *db, struct database_types *types,
	struct pawl_err *err);
/* Replaces the types by these. Errors as of open: the types are unchanged. */
int sched_database_put_types(struct sched_database *db, const struct database_types *types,
	struct pawl_err *err);
/* Returns the number of a name, whatever its case; a new name gets the first free number.
 * SCHED_TYPES_MAX: none is free. Pure. */
uint32_t database_types_number(struct database_types *types, const char *name);
/* Returns for how long no scheduler ran. If the machine has not been booted since, the clock of the
 * boot counts, so that changes of the wall clock do not matter; else the wall clock. From 0 to
 * DATABASE_DOWNTIME_MAX_NS. Pure. */
int64_t database_downtime_ns(const struct database_clock *then, const struct database_clock *now);
/* Reads a job's spec, to be freed. PAWL_ENOENT: there is none; also if the job is over and many or
 * large newer specs came since. */
int sched_database_spec(struct sched_database *db, uint64_t job, uint8_t **bytes, size_t *len_bytes,
	struct pawl_err *err);
/* A job that is over. */
struct database_job {
	uint64_t id;
	const char *name; /* strings are valid until the call returns */
	uint32_t owner;
	const char *queue;
	const char *state;
	const char *reason;
	int exit_code;
	int64_t submitted_ns; /* submission, wall clock; 0: stored by an older version */
	int64_t since_ns;     /* end, wall clock; 0: stored by an older version */
	int64_t ran_ns;
	uint32_t restarts, failures; /* as in core.h */
	int32_t priority;            /* as in core.h */
	uint32_t least, most;        /* as in core.h; 0: its record cannot be read */
};

/* Selects jobs that are over. */
struct database_query {
	uint64_t id;      /* number of the only job; 0: any */
	const char *name; /* name of the jobs; NULL, "": any */
	uint32_t most;    /* number of jobs, at most: the newest */
};

/* Counts all jobs that are over and kept. Errors as of open: *n is unchanged. */
int sched_database_count_ended(struct sched_database *db, uint64_t *n, struct pawl_err *err);
/* Calls on_job with each job that the query selects, the newest first. Errors as of open: on_job
 * may have been called for some of them. */
int sched_database_each_ended(struct sched_database *db, const struct database_query *query,
	void (*on_job)(void *user, const struct database_job *job), void *user,
	struct pawl_err *err);
/* Totals over all jobs that ever ended in a state, including those no longer kept. */
struct database_total {
	const char *state; /* valid until the call returns */
	uint64_t jobs;
	int64_t took_ns; /* sum of the times from submission to end */
	uint64_t restarts, failures;
};
int sched_database_totals(struct sched_database *db,
	void (*on_total)(void *user, const struct database_total *total), void *user,
	struct pawl_err *err);

#endif
