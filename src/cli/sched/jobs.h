/* Shared by the commands that are clients of the scheduler. */
#ifndef CLI_SCHED_JOBS_H
#define CLI_SCHED_JOBS_H

#include "cli/cli.h"
#include "daemon/sched_client.h"
#include "pawl/err.h"

#include <stdio.h>

#define JOBS_ROOT_OPTION                                                                           \
	{                                                                                          \
		"--root", 0, "DIR", "the scheduler's directory (see pawl sched --help)"            \
	}

/* Connects to the scheduler of root (NULL: not given). Errors as of sched_client_open. */
int jobs_open(struct sched_client **client, const char *root, struct pawl_err *err);
/* Fills a request that names a job by number or name. PAWL_EINVAL: job is too long for either. */
int jobs_select(struct sched_msg_selector *selector, const char *job, struct pawl_err *err);
/* Gets one job. job: a number or a name. */
int jobs_show(struct sched_client *client, const char *job, struct sched_msg_shown *shown,
	struct pawl_err *err);

/* Finds the user that the job ran as, who owns its directory and files: the owner that the
 * scheduler reports if root runs it, else the scheduler's own user. PAWL_EIO. */
int jobs_runner(const struct sched_client *client, const struct sched_msg_shown *shown,
	uint32_t *uid, struct pawl_err *err);

/* A list of jobs. */
struct jobs_list {
	struct sched_msg_job *jobs; /* owned */
	uint32_t n;
	uint32_t left_out;                 /* jobs that are over and not listed */
	char remark[SCHED_MSG_REMARK_MAX]; /* the engine's remark, in lines */
};

/* Lists the jobs; the caller frees list->jobs. ended: also lists the jobs that are over. */
int jobs_list(struct sched_client *client, bool ended, struct jobs_list *list,
	struct pawl_err *err);
int jobs_nodes(struct sched_client *client, struct sched_msg_node **nodes, uint32_t *n,
	struct pawl_err *err);

/* ---- jobs_print.c ---- */

void jobs_print(FILE *to, const struct sched_msg_job *jobs, uint32_t n);
void jobs_print_nodes(FILE *to, const struct sched_msg_node *nodes, uint32_t n);
/* Formats a duration: "1:02:03", "2d 3h". Returns buf, of CLI_TEXT_MAX bytes. */
const char *jobs_span(char *buf, double seconds);

/* Finds the directory of the scheduler's history. PAWL_EINVAL: too long, or no home. */
int jobs_history_dir(const char *root, char dir[PATH_MAX], struct pawl_err *err);
/* Prints the newest changes of a job, or returns them as an array. root: the scheduler's directory
 * (NULL: as sched_find_root). Nothing is printed, or the array is empty, if there are none or they
 * may not be read. */
void jobs_history_print(const char *root, uint64_t job);
struct json_t *jobs_history_json(const char *root, uint64_t job);

#endif
