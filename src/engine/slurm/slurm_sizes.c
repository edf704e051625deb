/* Resources of Slurm's nodes, which are queried regularly, because nodes are added and changed. A
 * pool is assumed to get any node of its partitions. Only Slurm knows how the pool's other options
 * restrict the choice. */
#include "engine/slurm/slurm_impl.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/times.h"

#include <stdlib.h>
#include <string.h>

#define MIB (1ull << 20)

static const char format[] = "--Format=" SLURM_SIZES_FORMAT;

bool slurm_size_at_least(const struct slurm_size *size, const struct slurm_size *least)
{
	return size->cpus >= least->cpus && size->memory_bytes >= least->memory_bytes &&
		size->disk_bytes >= least->disk_bytes;
}

/* Returns whether a comma-separated list has a name. */
static bool in_list(const char *list, const char *name)
{
	size_t len = strlen(name);

	for (; *list != '\0'; list += strcspn(list, ","), list += *list == ',') {
		if (strcspn(list, ",") == len && strncmp(list, name, len) == 0) {
			return true;
		}
	}
	return false;
}

/* Returns the partitions of a pool's options; NULL: none, so pilots get the default partition. */
static const char *partitions_of(const struct slurm_pool *pool)
{
	static const char option[] = "--partition=";
	const char *found = NULL;

	for (uint32_t i = 0; pool->args && pool->args[i]; i++) {
		if (strncmp(pool->args[i], option, sizeof(option) - 1) == 0) {
			found = pool->args[i] + sizeof(option) - 1;
		} else if (strncmp(pool->args[i], "-p", 2) == 0) {
			found = pool->args[i] + 2;
		}
	}
	return found;
}

static struct slurm_size size_of(const struct slurm_node_row *row)
{
	return (struct slurm_size){.cpus = row->cpus,
		.memory_bytes = row->memory_mib * MIB,
		.disk_bytes = row->disk_mib * MIB};
}

bool slurm_sizes_fit(const struct sched_slurm *s, uint32_t pool, const struct slurm_size *least)
{
	const char *partitions = partitions_of(&s->options.pools[pool]);

	for (uint32_t i = 0; i < s->machines_n; i++) {
		const struct slurm_node_row *row = &s->machines[i];
		const struct slurm_size size = size_of(row);
		bool ours = partitions ? in_list(partitions, row->partition) : row->is_default;

		if (ours && slurm_size_at_least(&size, least)) {
			return true;
		}
	}
	return s->machines_n == 0;
}

bool slurm_size_find(const struct sched_slurm *s, const char *node, struct slurm_size *size)
{
	for (uint32_t i = 0; i < s->machines_n; i++) {
		if (strcmp(s->machines[i].node, node) == 0) {
			*size = size_of(&s->machines[i]);
			return true;
		}
	}
	return false;
}

static int read_sizes(struct sched_slurm *s, const char *text, struct pawl_err *err)
{
	struct slurm_node_row row;
	const char *at = text;
	int rv;

	while ((rv = slurm_sizes_next(&at, &row, err)) == 1) {
	}
	if (rv != 0) {
		return rv; /* use nothing unless all lines are valid */
	}
	s->machines_n = 0;
	at = text;
	while (slurm_sizes_next(&at, &row, err) == 1) {
		if (!slurm_grow(&s->machines, s->machines_n, &s->machines_cap,
			    sizeof(*s->machines))) {
			break;
		}
		s->machines[s->machines_n++] = row;
	}
	return 0;
}

static void on_sizes(void *user, const struct slurm_done *done)
{
	struct sched_slurm *s = user;
	struct pawl_err err = {0};

	if (!done->ok) {
		log_line(LOG_WARNING, "slurm: resources of the nodes: sinfo: %s", done->error_text);
	} else if (read_sizes(s, done->out, &err) != 0) {
		log_line(LOG_WARNING, "slurm: resources of the nodes: %s", err.msg);
	}
}

void slurm_sizes_poll(struct sched_slurm *s)
{
	static const char *const args[] = {"sinfo", "--noheader", "--Node", format, NULL};

	if (s->sizes_polled_ns > 0 &&
		clock_mono_ns() - s->sizes_polled_ns < times_ns(TIME_SLURM_SIZES)) {
		return;
	}
	if (slurm_commands_add(s->commands, args, on_sizes, s, 0, NULL) == 0) {
		s->sizes_polled_ns = clock_mono_ns();
	}
}
