/* Which checkpoints may be deleted. Pure: reads a list, marks a list; the caller deletes. */
#ifndef CKPT_RETAIN_H
#define CKPT_RETAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One checkpoint, as retention sees it. */
struct retain_tag {
	uint64_t step; /* of training; a list is sorted by it and then by age, ascending */
	bool complete; /* complete in the store */
	bool pinned;   /* the user forbade deletion */
};

/* What to keep. The newest complete checkpoint always stays, whatever the rule says. */
struct retain_rule {
	uint32_t keep_last;  /* complete checkpoints, newest first; 0 = all */
	uint64_t keep_every; /* and every complete one whose step divides by this; 0 = none */
};

/*
 * Whether it makes a difference if a tag is complete, of which newer complete ones are newer.
 * Otherwise it stays either way and counts for nothing, so it may be said to be incomplete.
 */
bool retain_asks(const struct retain_rule *rule, const struct retain_tag *tag, uint32_t newer);

/*
 * Marks keep[i] = true for each tags[i] that must stay.
 *
 * Invariant: whatever fails half-way through deleting the rest, the newest complete checkpoint
 * still loads. Hence nothing incomplete is marked for deletion (it is evidence, or somebody is
 * writing it). tags and keep are the caller's, n entries each. Cannot fail. Any thread.
 */
void retain_plan(const struct retain_rule *rule, const struct retain_tag *tags, size_t n,
	bool *keep);

#endif
