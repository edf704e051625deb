/* A job as its user describes it: what it runs, and what it needs. */
#ifndef SCHED_JOBFILE_SPEC_H
#define SCHED_JOBFILE_SPEC_H

#include "sched/jobfile/arena.h"

#include <stdbool.h>
#include <stdint.h>

#define SPEC_NAME_MAX  64u         /* bytes of the name of a job or a queue, terminator included */
#define SPEC_PATH_MAX  4096u       /* bytes of a path, terminator included */
#define SPEC_VALUE_MAX (64u << 10) /* bytes of a variable's value, terminator included */

#define SPEC_NODES_MAX        4096u      /* nodes of a job, or replicas */
#define SPEC_ACCELERATORS_MAX 1024u      /* accelerators of a node */
#define SPEC_CPUS_MAX         4096u      /* CPUs of a node */
#define SPEC_GIB_MAX          (1u << 20) /* GiB of memory, or of disk, on a node: 1 PiB */
#define SPEC_CHOICES_MAX      64u
#define SPEC_PRIORITY_MAX     1000
#define SPEC_RETRIES_MAX      1000u
#define SPEC_TIME_MAX_S       (366u * 86400u) /* time limit of a job */

struct sched_range {
	uint32_t least;
	uint32_t most; /* at least least */
};

/* Resources that each node of a job (each replica of an elastic one) needs. */
struct sched_choice {
	const char *accelerator; /* type, as the user names it; NULL: none is needed */
	uint32_t accelerators;   /* number of accelerators; 0: none */
	uint32_t cpus_milli;     /* thousandths of a CPU, at least; 0: not given */
	uint64_t memory_bytes;   /* at least; 0: not given */
	uint64_t disk_bytes;     /* free, at least; 0: not given */
	bool disk_best;          /* the job's files belong on the fastest measured local path */
	bool spot;               /* the node may be one that can be taken away */
};

/* An environment variable. */
struct sched_var {
	const char *name;  /* letters, digits and _ */
	const char *value; /* without NUL */
	bool secret;       /* not to be shown or logged */
};

enum sched_mount_kind {
	SCHED_MOUNT_LINK,   /* a local path */
	SCHED_MOUNT_NFS,    /* HOST:/PATH, a directory of a file server, mounted on the nodes */
	SCHED_MOUNT_MIRROR, /* address of a bucket that keeps what the job writes */
	SCHED_MOUNT_FETCH,  /* address of a bucket, which is fetched before the job starts */
};

/* A path at which a job finds a file or directory from elsewhere. */
struct sched_mount {
	const char *at; /* begins with / or ~/; no two are the same */
	const char *from;
	enum sched_mount_kind kind; /* kind of the source, from */
	uint64_t local_max_bytes;   /* a mirror keeps at most so many from removal; 0: no limit */
};

struct sched_spec {
	const char *name;    /* letters, digits, '.', '_' and '-'; NULL: the user gave none */
	const char *queue;   /* letters, digits, '.', '_' and '-'; NULL: the user gave none */
	const char *workdir; /* as the user wrote it; NULL: none */
	const char *setup;   /* shell script, run before run, once per node and start; NULL: none */
	const char *run;     /* shell script, on each node */

	bool elastic;            /* replicas come and go between bounds, each on its own slot */
	struct sched_range size; /* replicas if elastic; else nodes, all at once or none */
	struct sched_range spot; /* part of size that is on nodes that can be taken away */

	const struct sched_choice *choices; /* any of them will do */
	uint32_t choices_n;                 /* at least 1 */

	const struct sched_var *vars; /* no two of one name */
	uint32_t vars_n;
	const struct sched_mount *mounts;
	uint32_t mounts_n;

	int32_t priority;      /* within its queue; the higher, the sooner */
	bool preemptible;      /* the job may be stopped, or moved, for others */
	uint32_t retries;      /* more starts after a failure */
	uint32_t time_limit_s; /* longest run; 0: unlimited */

	struct sched_arena arena; /* owned; the memory of all of the above */
};

/* Frees a spec. Does nothing for a spec that is zero, or was freed before. */
void sched_spec_deinit(struct sched_spec *spec);

#endif
