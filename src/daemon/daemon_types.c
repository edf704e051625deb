/* Numbers node types: a type keeps its number while anything in the database has it, whatever the
 * order of the options: see database_types. */
#include "daemon/daemon_impl.h"

#include "base/err.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>

static int refuse_types(const struct database_types *types, const char *name, struct pawl_err *err)
{
	char names[SCHED_TYPES_MAX * CORE_NAME_MAX] = "";
	size_t len = 0;

	for (uint32_t t = 0; t < SCHED_TYPES_MAX; t++) {
		len += (size_t)snprintf(names + len, sizeof(names) - len, "%s%s", t > 0 ? ", " : "",
			types->names[t][0] != '\0' ? types->names[t] : "none");
	}
	return pawl_err_set(err, PAWL_ELIMIT,
		"node type %s: there are %u types, the most possible (%.300s). To free one that no "
		"node has any more: start the scheduler without %s, and stop it again once no job "
		"asks for that type or has run on it",
		name, SCHED_TYPES_MAX, names, name);
}

int daemon_number_types(struct daemon *d, struct pawl_err *err)
{
	struct daemon_options *o = d->options;
	uint32_t numbers[SCHED_TYPES_MAX];
	struct database_types types;
	int rv = sched_database_get_types(d->database, &types, err);
	uint32_t known = types.known;

	for (uint32_t i = 0; i < o->types_n && rv == 0; i++) {
		numbers[i] = database_types_number(&types, o->types[i]);
		if (numbers[i] == SCHED_TYPES_MAX) {
			return refuse_types(&types, o->types[i], err);
		}
		o->types_here |= 1u << numbers[i];
	}
	if (rv == 0 && types.known != known) {
		rv = sched_database_put_types(d->database, &types, err);
	}
	if (rv != 0) {
		return rv;
	}
	for (uint32_t n = 0; n < o->nodes_n; n++) {
		o->nodes[n].type = numbers[o->nodes[n].type];
	}
	for (uint32_t p = 0; p < o->pools_n; p++) {
		o->pools[p].pool.type = numbers[o->pools[p].pool.type];
		d->pools[p] = o->pools[p].pool;
	}
	o->core.pools = d->pools;
	o->core.pools_n = o->pools_n;
	memcpy(o->types, types.names, sizeof(types.names));
	o->types_n = SCHED_TYPES_MAX;
	return 0;
}

/* Returns the types, as bits, of options, nodes that are not lost, and jobs. */
static uint32_t find_used(const struct daemon *d)
{
	const struct core_node *nodes;
	const struct core_job *const *jobs;
	uint32_t nodes_n = core_nodes(d->core, &nodes);
	uint32_t jobs_n = core_jobs(d->core, &jobs);
	uint32_t used = d->options->types_here;

	for (uint32_t n = 0; n < nodes_n; n++) {
		used |= nodes[n].state != CORE_NODE_LOST ? 1u << nodes[n].offer.type : 0;
	}
	for (uint32_t j = 0; j < jobs_n; j++) {
		used |= jobs[j]->request.types;
		for (uint32_t t = 0; t < SCHED_TYPES_MAX; t++) {
			used |= jobs[j]->hints[t] ? 1u << t : 0;
		}
	}
	return used;
}

void daemon_forget_types(struct daemon *d)
{
	struct database_types types;
	struct pawl_err err;
	uint32_t used = find_used(d);
	int rv = sched_database_get_types(d->database, &types, &err);

	if (rv == 0 && (types.known & ~used) != 0) {
		types.known &= used;
		rv = sched_database_put_types(d->database, &types, &err);
	}
	if (rv != 0) { /* the next scheduler may */
		log_line(LOG_WARNING, "unused node types: %s", err.msg);
	}
}
