/* Readers of what Slurm's commands print. They are strict: a line of another form than asked for,
 * or without an end, is an error. Pure. */
#ifndef ENGINE_SLURM_SLURM_TEXT_H
#define ENGINE_SLURM_SLURM_TEXT_H

#include "sched/core/core.h"

struct pawl_err;

/* Values of --Format for squeue and sinfo, which the readers below know. Slurm 20.11 does not know
 * StateComplete, and prints nothing for it. */
#define SLURM_QUEUE_FORMAT "JobID:|,State:|,RestartCnt:|,Name:|,NodeList:|,Reason:|"
#define SLURM_NODES_FORMAT "NodeList:|,StateComplete:|,StateLong:|"
#define SLURM_SIZES_FORMAT "NodeList:|,Partition:|,CPUs:|,Memory:|,Disk:|"

enum slurm_squeue_state {
	SLURM_PENDING,   /* no node, yet or any more */
	SLURM_ACTIVE,    /* has a node */
	SLURM_ENDING,    /* has a node, and what runs there is being ended */
	SLURM_SUSPENDED, /* has a node, and nothing of the job runs there */
	SLURM_OVER,      /* the node has said that nothing of the job is left */
	SLURM_CUT_OFF,   /* over; whether anything is left, Slurm may not know */
};

/* A pilot's job, as squeue shows it. */
struct slurm_row {
	uint64_t slurm_job;
	uint32_t restart; /* times that it was requeued */
	enum slurm_squeue_state state;
	char name[128];
	char node[CORE_NAME_MAX]; /* "": no node */
	char reason[128];         /* reason for the wait, cut to fit */
};

/* Reads the next line of squeue's output and moves *at past it. Returns 1, or 0 if there is no
 * more. PAWL_ECORRUPT: the line is not as asked for. */
int slurm_queue_next(const char **at, struct slurm_row *row, struct pawl_err *err);
/* Reads the next line of sinfo's output: a node, and whether it is drained or being drained.
 * Returns as slurm_queue_next. */
int slurm_nodes_next(const char **at, char node[CORE_NAME_MAX], bool *drained,
	struct pawl_err *err);
/* A node in a partition, and what it has: a line of sinfo's output. */
struct slurm_node_row {
	char node[CORE_NAME_MAX];
	char partition[CORE_NAME_MAX];
	bool is_default; /* the partition is the cluster's default */
	uint32_t cpus;
	uint64_t memory_mib;
	uint64_t disk_mib;
};

/* Reads the next line of sinfo's output in SLURM_SIZES_FORMAT. Returns as slurm_queue_next. */
int slurm_sizes_next(const char **at, struct slurm_node_row *row, struct pawl_err *err);
/* Reads the job's number from what sbatch --parsable prints. PAWL_ECORRUPT. */
int slurm_submitted(const char *text, uint64_t *slurm_job, struct pawl_err *err);
/* Reads "KillWait = 30 sec" from `scontrol show config`. PAWL_ENOENT. */
int slurm_kill_wait(const char *text, int64_t *ns, struct pawl_err *err);

#endif
