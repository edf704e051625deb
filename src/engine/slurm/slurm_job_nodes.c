/* A job's nodes: the pilot and the program of each. */
#include "engine/slurm/slurm_impl.h"

#include "base/assert.h"
#include "base/err.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

int slurm_job_node_fill(struct sched_slurm *s, const struct sched_core *core,
	const struct core_placement_entry *from, struct slurm_job_node *job_node,
	struct pawl_err *err)
{
	const struct core_node *node = core_node_find(core, from->node);
	const struct pilot *pilot = node ? slurm_pilot_named(s, node->offer.name) : NULL;

	if (node && (!pilot || pilot->life >= PILOT_LOST)) {
		/* Without a pilot, the scheduler may now use another spool. */
		slurm_post_node(s, node->offer.name, CORE_NODE_GONE);
	}
	if (!pilot || pilot->life >= PILOT_LOST || pilot->leave) {
		return pawl_err_set(err, PAWL_ENOENT, "%s%s is gone",
			node ? "node " : "a node of the job", node ? node->offer.name : "");
	}
	memcpy(job_node->node, pilot->name, sizeof(pilot->name));
	job_node->replicas = from->replicas;
	return 0;
}

static int make_token(char token[SLURM_TOKEN_CHARS + 1], struct pawl_err *err)
{
	uint8_t random[SLURM_TOKEN_CHARS / 2];

	if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random)) {
		return pawl_err_sys(err, "random bytes");
	}
	for (size_t i = 0; i < sizeof(random); i++) {
		snprintf(token + 2 * i, 3, "%02x", random[i]);
	}
	return 0;
}

static int describe_node(struct sched_slurm *s, const struct slurm_start *start,
	struct slurm_job_node *job_node, struct pawl_err *err)
{
	struct slurm_program program = {0};
	struct wire_out out = {0};
	int rv = s->options.describe(s->options.user, start, &program, err);

	if (rv == 0) {
		slurm_program_encode(&program, &out);
		rv = out.failed ? pawl_err_set(err, PAWL_ENOMEM, "out of memory") : 0;
		if (s->options.release) {
			s->options.release(s->options.user, &program);
		}
	}
	job_node->program = out.bytes; /* owned by the job node from here on */
	job_node->len_bytes = (uint32_t)out.len_bytes;
	wire_out_deinit(&program.mounts);
	wire_out_deinit(&program.setup);
	wire_out_deinit(&program.run);
	wire_out_deinit(&program.scale);
	wire_out_deinit(&program.setup_env);
	wire_out_deinit(&program.env);
	return rv;
}

/* Returns the address of a job node's pilot, even if the pilot is lost. "": not known. */
static const char *address_of(struct sched_slurm *s, const struct slurm_job_node *job_node)
{
	const struct pilot *pilot = slurm_pilot_named(s, job_node->node);

	return pilot ? pilot->have.address : "";
}

/* Sets whether nodes can join the job, by the program of its first node. */
static int set_dynamic_nodes(struct slurm_record *record, const struct slurm_job_node *job_node,
	struct pawl_err *err)
{
	struct slurm_program_view view;
	int rv = slurm_program_decode(job_node->program, job_node->len_bytes, &view, err);

	if (rv == 0) {
		record->dynamic_nodes = view.membership_path[0] != '\0' && view.scale[0] != NULL;
		slurm_program_view_deinit(&view);
	}
	return rv;
}

static int describe_one(struct sched_slurm *s, struct slurm_start *start,
	struct slurm_record *record, uint32_t i, struct pawl_err *err)
{
	struct slurm_job_node *job_node = &record->nodes[i];
	const struct pilot *pilot = slurm_pilot_named(s, job_node->node);
	struct slurm_size size;
	int rv;

	ASSERT(pilot != NULL); /* slurm_job_node_fill has just found it */
	start->joins = record->dynamic_nodes && job_node->number > 0;
	start->number = job_node->number;
	start->node = pilot->have.host;
	start->scratch_bytes = pilot->have.scratch_bytes;
	start->size = slurm_size_find(s, start->node, &size) ? &size : NULL;
	rv = describe_node(s, start, job_node, err);
	return rv == 0 && job_node->number == 0 ? set_dynamic_nodes(record, job_node, err) : rv;
}

int slurm_job_nodes_describe(struct sched_slurm *s, struct slurm_record *record, uint32_t n,
	struct pawl_err *err)
{
	const char **addresses = calloc(n, sizeof(*addresses));
	struct slurm_start start = {.generation = record->generation, .elastic = record->elastic};
	int rv = addresses ? make_token(start.token, err)
			   : pawl_err_set(err, PAWL_ENOMEM, "out of memory");

	ASSERT(n <= record->nodes_n);
	for (uint32_t i = 0; rv == 0 && i < n; i++) {
		addresses[i] = address_of(s, &record->nodes[i]);
	}
	for (uint32_t i = 0; rv == 0 && i < n; i++) {
		struct vars_place place = {.node = i,
			.nodes = n,
			.addresses = addresses,
			.gpus = record->nodes[i].replicas,
			.job = record->job};

		start.place = &place;
		if (!record->nodes[i].program) {
			rv = describe_one(s, &start, record, i, err);
		}
	}
	free(addresses);
	return rv;
}

/* Returns whether the whole job runs as that generation requires, and no change is pending. */
static bool is_settled(const struct slurm_job *job, uint64_t generation)
{
	const struct slurm_record *record = &job->record;
	uint64_t now = record->rescaled > 0 ? record->rescaled : record->generation;

	return slurm_job_is_alive(job) && record->runs && !job->failing &&
		!record->stop_requested && now == generation && record->rescale == record->rescaled;
}

uint32_t slurm_job_nodes_hosts(struct sched_slurm *s, uint64_t id, uint64_t generation,
	struct sched_engine_host *hosts, uint32_t cap)
{
	const struct slurm_job *job = slurm_job_find(s, id);

	if (!job || !is_settled(job, generation)) {
		return 0;
	}
	for (uint32_t i = 0; i < job->record.nodes_n; i++) {
		const struct slurm_job_node *job_node = &job->record.nodes[i];
		const struct pilot *pilot = slurm_pilot_named(s, job_node->node);

		if (!pilot || pilot->life >= PILOT_LOST) {
			return 0;
		}
		if (i < cap) {
			hosts[i] =
				(struct sched_engine_host){pilot->have.address, job_node->replicas};
		}
	}
	return job->record.nodes_n;
}
