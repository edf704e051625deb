/* What the agent of a root's job reports about the root: for `pawl ckpt watch`. */
#ifndef CLI_CKPT_WATCH_AGENT_H
#define CLI_CKPT_WATCH_AGENT_H

#include "ckpt/format/manifest.h"
#include "pawl/err.h"

#include <stdbool.h>
#include <stdint.h>

/* Zero-initialise. */
struct watch_agent {
	/* The agent answered: the fields below are its answer. False: the agent is on another host,
	 * belongs to another user, or hangs. */
	bool answered;
	uint32_t ranks;                 /* ranks connected to the agent for this root */
	char undurable[CKPT_TAG_MAX];   /* newest tag that is in the agent's memory only, or "" */
	int trouble_key;                /* cause of trouble, numbered as in alerts.h */
	char trouble[PAWL_ERR_MSG_MAX]; /* present trouble; "": none */
};

/* Asks the agent of the job that a lock file names, and waits for at most TIME_WATCH_ASK. holder:
 * "job ID (pid 1 on host)"; root: an absolute path. */
void watch_agent_ask(struct watch_agent *agent, const char *holder, const char *root);
/* Returns whether a and b are the same, except for numbers in texts that change with each try. */
bool watch_agent_same(const struct watch_agent *a, const struct watch_agent *b);

#endif
