/* What Slurm's commands print, read strictly: a line that is not as asked for, or has no end, is
 * none. Pure. */
#ifndef SCHED_SLURM_TEXT_H
#define SCHED_SLURM_TEXT_H

#include "sched/core.h"

struct pawl_err;

/* What to ask squeue and sinfo for, as --Format takes it: what the readers below know. Slurm 20.11
 * does not know StateComplete, and prints nothing for it. */
#define SLURM_QUEUE_FORMAT "JobID:|,State:|,RestartCnt:|,Name:|,NodeList:|,Reason:|"
#define SLURM_NODES_FORMAT "NodeList:|,StateComplete:|,StateLong:|"
#define SLURM_SIZES_FORMAT "NodeList:|,Partition:|,CPUs:|,Memory:|,Disk:|"

enum slurm_standing {
	SLURM_PENDING,   /* it has no node (yet, or any more) */
	SLURM_ACTIVE,    /* it has one */
	SLURM_ENDING,    /* likewise, and what runs there is being ended */
	SLURM_SUSPENDED, /* likewise, and nothing of it runs */
	SLURM_OVER,      /* its node has said that nothing of it is left */
	SLURM_CUT_OFF,   /* it is over; whether anything is left, Slurm may not know */
};

/* A pilot's job, as squeue shows it. */
struct slurm_row {
	uint64_t slurm_job;
	uint32_t restart; /* times that it was requeued */
	enum slurm_standing standing;
	char name[128];
	char node[CORE_NAME_MAX]; /* "": none */
	char reason[128];         /* cut */
};

/* The next line of squeue's output; *at goes past it. 1, or 0: no more; PAWL_ECORRUPT: it is not as
 * it was asked for. */
int slurm_queue_next(const char **at, struct slurm_row *row, struct pawl_err *err);
/* The same of sinfo's: a node, and whether it is drained, or being drained. */
int slurm_nodes_next(const char **at, char node[CORE_NAME_MAX], bool *drained,
	struct pawl_err *err);
/* A node in a partition, and what it has: a line of sinfo's. */
struct slurm_node_row {
	char node[CORE_NAME_MAX];
	char partition[CORE_NAME_MAX];
	bool main; /* the partition is that of who names none */
	uint32_t cpus;
	uint64_t memory_mib;
	uint64_t disk_mib;
};

/* The same of sinfo's, asked for sizes. */
int slurm_sizes_next(const char **at, struct slurm_node_row *row, struct pawl_err *err);
/* The job's number that sbatch --parsable prints. */
int slurm_submitted(const char *text, uint64_t *slurm_job, struct pawl_err *err);
/* "KillWait = 30 sec" of `scontrol show config`. PAWL_ENOENT. */
int slurm_kill_wait(const char *text, int64_t *ns, struct pawl_err *err);

#endif
