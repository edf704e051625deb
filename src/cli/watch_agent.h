/* What the agent of the job that has a root says of it: for `pawl ckpt watch`. */
#ifndef CLI_WATCH_AGENT_H
#define CLI_WATCH_AGENT_H

#include "ckpt/manifest.h"
#include "pawl/err.h"

#include <stdbool.h>
#include <stdint.h>

/* Zero-initialise. */
struct watch_agent {
	bool answered;                  /* it did: the rest is what it said. Else it is on another
					   host, another user's, or hangs */
	uint32_t ranks;                 /* connected to it for this root */
	char undurable[CKPT_TAG_MAX];   /* newest that is in its memory only, or "" */
	int trouble_key;                /* cause of trouble, as news.h has it */
	char trouble[PAWL_ERR_MSG_MAX]; /* what goes wrong now; "": nothing */
};

/* Asks the agent of the job that a lock file names (holder: "job ID (pid 1 on host)"), for at most
 * TIME_WATCH_ASK. root: absolute. */
void watch_agent_ask(struct watch_agent *agent, const char *holder, const char *root);
/* Whether there is something new to tell: numbers in texts that change with each try do not
 * count. */
bool watch_agent_same(const struct watch_agent *a, const struct watch_agent *b);

#endif
