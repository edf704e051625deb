/*
 * The history of a live cluster in a directory of files, 00000001.jsonl and so on: docs/format.md
 * has their content. The latest row of each node, and of each job that is not over, is kept in
 * memory. So a row without a change is not written, and each file begins with all nodes and jobs.
 * The history of saves is another one: agent/persist/history.h.
 *
 * The changes of a step are put between history_begin and history_end. They are written by one
 * write, and not synced: a killed process loses none of them, a power loss those of the last
 * seconds. history_open cuts off a step that is not whole, and reads back the latest rows.
 *
 * Nothing fails because of the history. If it cannot be written, rows are lost, and the log reports
 * that once. From TIME_HISTORY_AGAIN later on, each step tries to begin a new file, whose header
 * has the time since when rows are missing. One thread, and one process a directory; others may
 * read at any time.
 */
#ifndef DAEMON_HISTORY_HISTORY_H
#define DAEMON_HISTORY_HISTORY_H

#include "daemon/history/history_row.h"

#include <limits.h>
#include <sys/types.h>

#define HISTORY_DIR        "history"    /* name in the scheduler's directory */
#define HISTORY_FILE_BYTES (8u << 20)   /* size at which the next file is begun */
#define HISTORY_ALL_BYTES  (256u << 20) /* bytes of all files; the oldest make room */
#define HISTORY_GOODPUT_S  300.0 /* seconds between two rows of a job for its goodput alone */
#define HISTORY_GOODPUT    0.1   /* change of goodput, in proportion, that such a row needs */

struct history;

struct history_options {
	const char *dir;  /* directory, made if there is none */
	const char *host; /* name in the header of a file, as policy */
	const char *policy;
	gid_t group; /* group that may read; (gid_t)-1: nobody else may */
	uint64_t file_bytes, all_bytes;
};

/* Opens a history. PAWL_ENOMEM. What cannot be read or created is logged. */
int history_open(struct history **out, const struct history_options *options, struct pawl_err *err);
void history_close(struct history *history); /* NULL is fine */

/* Begins a step, whose changes follow. t_s: wall clock; if it is not later than the last step, a
 * moment after that. */
void history_begin(struct history *history, double t_s);
/* Puts a node; node->slots 0: it is gone. */
void history_put_node(struct history *history, const struct history_node *node);
/* Puts a job. Takes ownership of job->entries. */
void history_put_job(struct history *history, struct history_job *job);
/* Puts an event of the scheduler itself: "started" or "stopped". */
void history_put_event(struct history *history, const char *event);
/* Ends the step, and writes its changes. */
void history_end(struct history *history);

/* Returns the latest row of a job; NULL: there is none, or the job is over. Valid until the next
 * put. */
const struct history_job *history_job_find(const struct history *history, uint64_t id);
/* Returns the jobs that are not over, by ascending id. */
uint32_t history_jobs(const struct history *history, const struct history_job *const **jobs);
/* Returns the nodes, by name. */
uint32_t history_nodes(const struct history *history, const struct history_node *const **nodes);

/* ---- reading ---- */

#define HISTORY_FILES_READ 4u /* newest files, in which changes of a job are looked for */

/* Reads the newest changes of a job, at most `most` of them, and calls on_row with each, the oldest
 * first. PAWL_ENOENT: there are none; PAWL_EIO: the history may not be read; PAWL_ENOMEM. */
int history_read_job(const char *dir, uint64_t id, uint32_t most,
	void (*on_row)(void *user, const struct history_row *row), void *user,
	struct pawl_err *err);

/* Lists the numbers of the files of a directory, ascending; the caller frees them. */
int history_files(const char *dir, uint64_t **numbers, uint32_t *n, struct pawl_err *err);
void history_file_name(const char *dir, uint64_t number, char path[PATH_MAX]);
/* Finds the highest number of a job in all files, and sets *highest to it if that is higher. What
 * cannot be read is left out. */
void history_highest_job(const char *dir, uint64_t *highest);
/* Reads a file; the caller frees the bytes. PAWL_EIO, PAWL_ENOMEM. */
int history_file_read(const char *dir, uint64_t number, char **bytes, size_t *len_bytes,
	struct pawl_err *err);

#endif
