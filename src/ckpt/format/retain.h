/* Selects the checkpoints that may be deleted. Pure: reads a list, marks a list; the caller
 * deletes. */
#ifndef CKPT_FORMAT_RETAIN_H
#define CKPT_FORMAT_RETAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One checkpoint, as retention sees it. */
struct retain_tag {
	uint64_t step; /* training step; lists are sorted by step and then by age, ascending */
	bool complete; /* complete in the store */
	bool pinned;   /* pinned by the user: never deleted */
};

/* The checkpoints to keep. The newest complete one always stays, whatever the rule says. */
struct retain_rule {
	uint32_t keep_last;  /* how many of the newest complete checkpoints to keep; 0: all */
	uint64_t keep_every; /* keep complete ones whose step is a multiple of it, too; 0: none */
};

/*
 * Returns whether the plan depends on a tag being complete, given the number of newer complete
 * ones. If not, the tag stays either way and does not count, so it may be treated as incomplete.
 */
bool retain_needs_complete(const struct retain_rule *rule, const struct retain_tag *tag,
	uint32_t newer);

/*
 * Marks keep[i] = true for each tags[i] that must stay.
 *
 * Invariant: whatever fails half-way through deleting the rest, the newest complete checkpoint
 * still loads. Hence no incomplete checkpoint is marked for deletion: it may be being written, or
 * show what went wrong. tags and keep are the caller's and have n entries each. Cannot fail. Any
 * thread.
 */
void retain_plan(const struct retain_rule *rule, const struct retain_tag *tags, size_t n,
	bool *keep);

#endif
