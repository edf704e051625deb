/* What a root looks like at one moment, while a job may be writing to it: for `pawl ckpt watch`. */
#ifndef CLI_WATCH_LOOK_H
#define CLI_WATCH_LOOK_H

#include "cli/ckpt.h"
#include "cli/watch_agent.h"

enum look_state { LOOK_WRITING, LOOK_COMPLETE, LOOK_BROKEN };

/* A checkpoint, or one that is being written. */
struct look_tag {
	struct tag_info info;  /* of one that is being written: tag, step, and bytes so far */
	enum look_state state; /* as far as its files say */
	bool has_row;          /* the history has it, with: */
	double stall_ms;       /* save() of the slowest rank; below 0: not said */
	double persist_ms;     /* until it was durable; below 0: not said */
	double mib_per_s;      /* to the store; below 0: not said */
	bool told;             /* the watcher's: an event was given for it */
	int64_t since_ns;      /* the watcher's: seen like this since, by clock_mono_ns */
};

/* A root. Zero-initialise. */
struct look {
	bool there;                   /* there is such a directory */
	char holder[CKPT_HOLDER_MAX]; /* job that uses it, or did last; "": none ever */
	bool running;                 /* it uses it now, as far as this machine knows */
	bool held;                    /* its agent has the root's lock, whether ranks run or not */
	struct watch_agent agent;     /* what its agent says */
	struct look_tag *tags;        /* owned: ascending by step */
	size_t tags_n;                /* of them */
	uint64_t bytes;               /* of those that are complete */
};

/* Looks at it. A root that is not there is no error. */
int look_take(struct look *look, const char *root, struct pawl_err *err);
void look_deinit(struct look *look);
/* Asks the agent anew, and sees whether ranks run. */
void look_ask(struct look *look, const char *root);
/* Something that changes, usually, when the root does: cheap to ask for. */
uint64_t look_stamp(const char *root);

/* Fills what the text of a history says of a tag: the last row of it. Columns are found by the
 * names in the first line. Pure. */
void look_read_row(struct look_tag *tag, const char *history);

#endif
