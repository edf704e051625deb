/* Selects the checkpoints that may be deleted: see retain.h for the contract. */
#include "ckpt/format/retain.h"

#include "base/assert.h"

static bool is_protected(const struct retain_rule *rule, const struct retain_tag *tag)
{
	if (!tag->complete || tag->pinned || rule->keep_last == 0) {
		return true;
	}
	return rule->keep_every != 0 && tag->step % rule->keep_every == 0;
}

bool retain_needs_complete(const struct retain_rule *rule, const struct retain_tag *tag,
	uint32_t newer)
{
	const struct retain_tag whole = {.step = tag->step,
		.complete = true,
		.pinned = tag->pinned};

	return newer < rule->keep_last || !is_protected(rule, &whole);
}

void retain_plan(const struct retain_rule *rule, const struct retain_tag *tags, size_t n,
	bool *keep)
{
	uint32_t complete_seen = 0;

	for (size_t i = n; i-- > 0;) {
		ASSERT(i == 0 || tags[i - 1].step <= tags[i].step);
		complete_seen += tags[i].complete;
		keep[i] = is_protected(rule, &tags[i]) || complete_seen <= rule->keep_last;
		ASSERT(keep[i] || complete_seen > 1); /* the newest complete one stays */
	}
}
