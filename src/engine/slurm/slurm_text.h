/* Parsers of the output of Slurm's commands. They are strict: a line of another form than
 * requested, or without its newline, is an error. Pure. */
#ifndef ENGINE_SLURM_SLURM_TEXT_H
#define ENGINE_SLURM_SLURM_TEXT_H

#include "sched/core/core.h"

struct pawl_err;

/* Values of --Format for squeue and sinfo, which the functions below parse. Slurm 20.11 does not
 * support StateComplete, and prints an empty field. */
#define SLURM_QUEUE_FORMAT "JobID:|,State:|,RestartCnt:|,Name:|,NodeList:|,Reason:|"
#define SLURM_NODES_FORMAT "NodeList:|,StateComplete:|,StateLong:|"
#define SLURM_SIZES_FORMAT "NodeList:|,Partition:|,CPUs:|,Memory:|,Disk:|"

enum slurm_squeue_state {
	SLURM_PENDING,   /* has no node */
	SLURM_ACTIVE,    /* has a node */
	SLURM_ENDING,    /* has a node, where its processes are being ended */
	SLURM_SUSPENDED, /* has a node, where the job is suspended */
	SLURM_OVER,      /* over; the node has reported that nothing of the job is left */
	SLURM_CUT_OFF,   /* over; something of the job may be left on the node */
};

/* A pilot's job, as squeue shows it. */
struct slurm_row {
	uint64_t slurm_job;
	uint32_t restart; /* number of times that it was requeued */
	enum slurm_squeue_state state;
	char name[128];
	char node[CORE_NAME_MAX]; /* "": no node */
	char reason[128];         /* reason for the wait, cut to fit */
};

/* Parses the next line of squeue's output in SLURM_QUEUE_FORMAT, and moves *at past it. Returns 1,
 * or 0 at the end. PAWL_ECORRUPT: the line has another form. */
int slurm_queue_next(const char **at, struct slurm_row *row, struct pawl_err *err);
/* Parses the next line of sinfo's output in SLURM_NODES_FORMAT: a node, and whether it is drained
 * or draining. Returns as slurm_queue_next does. */
int slurm_nodes_next(const char **at, char node[CORE_NAME_MAX], bool *drained,
	struct pawl_err *err);
/* A node in a partition, and its resources: a line of sinfo's output. */
struct slurm_node_row {
	char node[CORE_NAME_MAX];
	char partition[CORE_NAME_MAX];
	bool is_default; /* the partition is the cluster's default */
	uint32_t cpus;
	uint64_t memory_mib;
	uint64_t disk_mib;
};

/* Parses the next line of sinfo's output in SLURM_SIZES_FORMAT. Returns as slurm_queue_next
 * does. */
int slurm_sizes_next(const char **at, struct slurm_node_row *row, struct pawl_err *err);
/* Parses the job number in the output of sbatch --parsable. PAWL_ECORRUPT. */
int slurm_submitted(const char *text, uint64_t *slurm_job, struct pawl_err *err);
/* Parses KillWait ("KillWait = 30 sec") in the output of `scontrol show config`. PAWL_ENOENT. */
int slurm_kill_wait(const char *text, int64_t *ns, struct pawl_err *err);

#endif
