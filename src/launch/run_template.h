/*
 * The template: a Python process (python/pawl/_template.py) that has already imported all modules
 * that the last run imported, and that forks into workers. So a restart costs no imports.
 *
 * The template forks twice: the process in between dies at once, and the worker becomes a child of
 * ours (PR_SET_CHILD_SUBREAPER, which the caller has set). So a worker from the template and an
 * executed one are reaped alike, and neither needs the template to live.
 *
 * Both ends exchange messages over a SOCK_SEQPACKET pair, in a protocol that docs/protocol.md does
 * not describe:
 *
 *   to it:   rank and its varying variables, NUL-terminated strings; two descriptors
 *   from it: "ready" · "refused WHY" · "started RANK PID" · "failed RANK WHY"
 *
 * All functions are for the loop's thread.
 */
#ifndef LAUNCH_RUN_TEMPLATE_H
#define LAUNCH_RUN_TEMPLATE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct loop;
struct pawl_err;
struct run_template;
struct wire_out;

struct run_template_options {
	const char *python;  /* path of the interpreter */
	char *const *worker; /* arguments of a worker behind the interpreter's: script and its, or
				"-m", module and its; NULL-terminated, outlives the template */
	char *const *env;    /* environment, without the variables that vary */
	const char *imports; /* newline-separated module names */
	int null_fd;         /* stdin and stdout of the template */
	int stderr_fd;       /* stderr of the template */
	void (*started)(void *user, uint32_t rank, pid_t pid); /* a worker was started */
	/* The template cannot start this rank, or any rank (UINT32_MAX). The callee must not close
	 * the template. */
	void (*failed)(void *user, uint32_t rank);
	void *user; /* passed to started and failed */
};

/* Starts the template, at low priority if its priority can be raised again. */
int run_template_open(struct run_template **tmpl, struct loop *loop,
	const struct run_template_options *options, struct pawl_err *err);
/* Kills the template, not its workers. Calls started for those that it has reported; no worker is
 * started later. NULL is fine. */
void run_template_close(struct run_template *tmpl);
/* Whether the template has reported that it is ready, and has not failed since. */
bool run_template_is_ready(const struct run_template *tmpl); /* NULL: no */
/* Whether the template has neither failed nor reported that it is ready: it answers requests once
 * it is. */
bool run_template_is_starting(const struct run_template *tmpl); /* NULL: no */
pid_t run_template_pid(const struct run_template *tmpl);        /* NULL: 0 */
/* Requests a worker, and raises the priority of a template that is still starting; started or
 * failed follows. The descriptors become the worker's stdout and stderr and stay the caller's. On
 * an error nothing was requested. */
int run_template_start(struct run_template *tmpl, uint32_t rank, int out_fd, int err_fd,
	const struct wire_out *varying, struct pawl_err *err);
/* Handles the messages received so far: after this, every worker that was started is reported. */
void run_template_poll(struct run_template *tmpl); /* NULL is fine */

#endif
