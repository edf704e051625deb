/* A root at one moment, while a job may be writing to it: for `pawl ckpt watch`. */
#ifndef CLI_CKPT_WATCH_LOOK_H
#define CLI_CKPT_WATCH_LOOK_H

#include "cli/ckpt/ckpt.h"
#include "cli/ckpt/watch_agent.h"

enum look_state { LOOK_WRITING, LOOK_COMPLETE, LOOK_BROKEN };

/* A checkpoint that is complete, broken or being written. */
struct look_tag {
	struct tag_info info; /* the tag; while it is being written only name, step, bytes so far */
	enum look_state state; /* state, as far as the files show it */
	bool has_row;          /* the history has a row of the tag, with the three values below */
	double stall_ms;       /* save() of the slowest rank; below 0: not known */
	double persist_ms;     /* time from save() until durable; below 0: not known */
	double mib_per_s;      /* rate to storage; below 0: not known */
	bool reported;         /* set by ckpt_watch.c: an event was printed for the tag */
	int64_t since_ns;      /* set by ckpt_watch.c: clock_mono_ns when state changed last */
};

/* A root. Zero-initialise. */
struct look {
	bool exists;                  /* the directory exists */
	char holder[ROOT_HOLDER_MAX]; /* job that uses or last used the root; "": none ever */
	bool running;                 /* the job uses the root now, as far as this machine knows */
	bool locked; /* the job's agent has the root's lock, whether ranks run or not */
	struct watch_agent agent; /* answer of the job's agent */
	struct look_tag *tags;    /* owned: ascending by step */
	size_t tags_n;            /* number of entries in tags */
	uint64_t bytes;           /* bytes of all complete tags */
};

/* Reads the state of a root. A missing root is no error. */
int look_take(struct look *look, const char *root, struct pawl_err *err);
void look_deinit(struct look *look);
/* Asks the agent again, and updates whether ranks run. */
void look_ask(struct look *look, const char *root);
/* Returns a number that usually changes when the root does. It reads no tags, and is cheap. */
uint64_t look_stamp(const char *root);

/* Fills the values of a tag from its last row in a history. The first line names the columns.
 * Pure. */
void look_read_row(struct look_tag *tag, const char *history);

#endif
