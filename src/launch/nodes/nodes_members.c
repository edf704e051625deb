/* The coordinator's list of members: names, counts, node ranks. See nodes.h. */
#include "launch/nodes/nodes_impl.h"

#include "base/assert.h"

#include <stdio.h>

uint32_t nodes_count_joined(const struct nodes *n)
{
	uint32_t count = 0;

	for (uint32_t m = 0; m < NODES_MAX; m++) {
		count += n->members[m].joined;
	}
	return count;
}

void nodes_name_member(const struct nodes_member *m, char *name, size_t cap_bytes)
{
	if (m->node != NODE_NONE) {
		snprintf(name, cap_bytes, "node %u (%s)", m->node, m->address);
	} else {
		snprintf(name, cap_bytes, "node %s", m->address);
	}
}

void nodes_list_members(const struct nodes *n, char *text, size_t cap_bytes)
{
	size_t len = 0;

	text[0] = '\0';
	for (uint32_t m = 0; m < NODES_MAX && len < cap_bytes; m++) {
		const struct nodes_member *member = &n->members[m];

		if (member->joined) {
			len += (size_t)snprintf(text + len, cap_bytes - len, "%s%s (%u worker%s)",
				len > 0 ? ", " : "", member->address, member->workers,
				member->workers == 1 ? "" : "s");
		}
	}
}

void nodes_list_missing(const struct nodes *n, char *text, size_t cap_bytes)
{
	size_t len = 0;

	text[0] = '\0';
	for (uint32_t m = 0; m < NODES_MAX && len < cap_bytes; m++) {
		const struct nodes_member *member = &n->members[m];

		if (!member->joined && member->instance_id != 0 && member->node != NODE_NONE) {
			len += (size_t)snprintf(text + len, cap_bytes - len,
				"%snode %u, which was %s", len > 0 ? ", " : " (", member->node,
				member->address);
		}
	}
	if (len > 0 && len + 1 < cap_bytes) {
		snprintf(text + len, cap_bytes - len, ")");
	}
}

bool nodes_has_staying(const struct nodes *n)
{
	for (uint32_t m = 0; m < NODES_MAX; m++) {
		if (n->members[m].joined && !n->members[m].departs) {
			return true;
		}
	}
	return false;
}

struct nodes_member *nodes_find_member(struct nodes *n, uint32_t node)
{
	for (uint32_t m = 0; m < NODES_MAX; m++) {
		if (n->members[m].joined && n->members[m].node == node) {
			return &n->members[m];
		}
	}
	return NULL;
}

static bool is_taken(const struct nodes *n, uint32_t node, const bool *settled)
{
	for (uint32_t m = 0; m < NODES_MAX; m++) {
		if (settled[m] && n->members[m].node == node) {
			return true;
		}
	}
	return false;
}

/* Finds the first to arrive of the members without a rank. */
static struct nodes_member *next_unsettled(struct nodes *n, const bool *settled)
{
	struct nodes_member *next = NULL;

	for (uint32_t m = 0; m < NODES_MAX; m++) {
		struct nodes_member *member = &n->members[m];

		if (member->joined && !settled[m] &&
			(next == NULL || member->order < next->order)) {
			next = member;
		}
	}
	return next;
}

void nodes_settle_ranks(struct nodes *n)
{
	bool settled[NODES_MAX] = {false};
	struct nodes_member *m;
	uint32_t node = 0;

	for (uint32_t i = 0; i < NODES_MAX; i++) {
		if (n->members[i].joined && n->members[i].wanted != NODE_NONE) {
			n->members[i].node = n->members[i].wanted;
			settled[i] = true;
		}
	}
	for (uint32_t i = 0; i < NODES_MAX; i++) {
		m = &n->members[i];
		if (m->joined && !settled[i] && m->node < n->options.nodes &&
			!is_taken(n, m->node, settled)) {
			settled[i] = true;
		}
	}
	while ((m = next_unsettled(n, settled)) != NULL) {
		while (is_taken(n, node, settled)) {
			node++;
		}
		ASSERT(node < n->options.nodes); /* as many ranks as members */
		m->node = node;
		settled[m - n->members] = true;
	}
}
