/*
 * The history of a live cluster in a directory of files, 00000001.jsonl and on: docs/format.md says
 * what is in them. What was told last of each node and of each job that is not over is kept in
 * memory; so what says nothing new is not written, and each file begins with all that there is.
 *
 * It is told of a step's changes between history_begin and history_end; they are written by one
 * write, and not synced: a killed process loses none, a loss of power the last seconds. Opening it
 * cuts off what is half written, and knows what was told before.
 *
 * Nothing fails because of it. Where it cannot be written, rows are lost: that is said once in the
 * log, and from TIME_HISTORY_AGAIN later on each step tries to begin a new file, which says since
 * when. One thread, and one process a directory; anybody may read at any time.
 */
#ifndef DAEMON_HISTORY_H
#define DAEMON_HISTORY_H

#include "daemon/history_row.h"

#include <limits.h>
#include <sys/types.h>

#define HISTORY_DIR        "history"    /* in the scheduler's directory */
#define HISTORY_FILE_BYTES (8u << 20)   /* that a file grows; then the next one is begun */
#define HISTORY_ALL_BYTES  (256u << 20) /* of all files; the oldest make room */
#define HISTORY_GOODPUT_S  300.0 /* between two rows of a job that tell of its goodput alone: */
#define HISTORY_GOODPUT    0.1   /* by so much it is to differ, in proportion */

struct history;

struct history_options {
	const char *dir;  /* made if there is none */
	const char *host; /* for the head, as policy */
	const char *policy;
	gid_t group; /* that may read it; (gid_t)-1: nobody else may */
	uint64_t file_bytes, all_bytes;
};

/* PAWL_ENOMEM. What is there and cannot be read, or made, is said in the log. */
int history_open(struct history **out, const struct history_options *options, struct pawl_err *err);
void history_close(struct history *history); /* NULL is fine */

/* A step's changes follow. t_s: wall clock; taken for a moment after the last step, if it is not
 * later. */
void history_begin(struct history *history, double t_s);
/* node->slots 0: it is gone. */
void history_put_node(struct history *history, const struct history_node *node);
/* Takes job->spots. */
void history_put_job(struct history *history, struct history_job *job);
void history_put_word(struct history *history, const char *word);
/* Writes them. */
void history_end(struct history *history);

/* What was told last; NULL: it is not there, or over. Until the next put. */
const struct history_job *history_job_find(const struct history *history, uint64_t id);
/* Those that are not over, by ascending id; and nodes, by name. */
uint32_t history_jobs(const struct history *history, const struct history_job *const **jobs);
uint32_t history_nodes(const struct history *history, const struct history_node *const **nodes);

/* ---- reading ---- */

#define HISTORY_FILES_READ 4u /* the newest, in which changes of a job are looked for */

/* The newest changes of a job, at most so many, told in the order in which they came. Errors:
 * PAWL_ENOENT: there are none there; PAWL_EIO: it may not be read; PAWL_ENOMEM. */
int history_read_job(const char *dir, uint64_t id, uint32_t most,
	void (*told)(void *user, const struct history_row *row), void *user, struct pawl_err *err);

/* Numbers of the files of a directory, ascending, to be freed. */
int history_files(const char *dir, uint64_t **numbers, uint32_t *n, struct pawl_err *err);
void history_file_name(const char *dir, uint64_t number, char path[PATH_MAX]);
/* The highest number of a job in any of them: into *highest, if it is higher. What cannot be read
 * is left out. */
void history_highest_job(const char *dir, uint64_t *highest);
/* A file's bytes, to be freed. PAWL_EIO, PAWL_ENOMEM. */
int history_file_read(const char *dir, uint64_t number, char **bytes, size_t *len_bytes,
	struct pawl_err *err);

#endif
