/* The environment variables of a job on one of its nodes: see vars.h. */
#include "sched/jobfile/vars.h"

#include "base/assert.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void put_text(struct wire_out *set, const char *text)
{
	wire_put_raw(set, text, strlen(text));
}

static void put_var(struct wire_out *set, const char *name, const char *value)
{
	put_text(set, name);
	put_text(set, "=");
	wire_put_raw(set, value, strlen(value) + 1);
}

static void put_number(struct wire_out *set, const char *name, uint64_t value)
{
	char text[24];

	snprintf(text, sizeof(text), "%" PRIu64, value);
	put_var(set, name, text);
}

static void put_addresses(struct wire_out *set, const char *name, const struct vars_place *place)
{
	put_text(set, name);
	for (uint32_t i = 0; i < place->nodes; i++) {
		put_text(set, i > 0 ? "\n" : "=");
		put_text(set, place->addresses[i]);
	}
	wire_put_u8(set, '\0');
}

/* Adds a text as a string of JSON. */
static void put_json(struct wire_out *set, const char *text)
{
	char escape[8];

	wire_put_u8(set, '"');
	for (; *text != '\0'; text++) {
		if (*text == '"' || *text == '\\' || (unsigned char)*text < 0x20) {
			snprintf(escape, sizeof(escape), "\\u%04x", (unsigned char)*text);
			put_text(set, escape);
		} else {
			wire_put_u8(set, (uint8_t)*text);
		}
	}
	wire_put_u8(set, '"');
}

static void put_cluster(struct wire_out *set, const struct vars_place *place)
{
	put_text(set, "SKYPILOT_CLUSTER_INFO={\"cluster_name\": ");
	put_json(set, place->cluster);
	put_text(set, ", \"cloud\": ");
	put_json(set, place->engine);
	put_text(set, ", \"region\": null, \"zone\": null}");
	wire_put_u8(set, '\0');
}

/* W&B resumes a run by its id, not by its name: all starts of a job that resumes are one run. */
static void put_wandb(struct wire_out *set, const struct sched_spec *spec, const char *task)
{
	bool resumes = false;

	for (uint32_t i = 0; i < spec->vars_n; i++) {
		resumes = resumes || strcmp(spec->vars[i].name, "WANDB_RESUME") == 0;
		if (strcmp(spec->vars[i].name, "WANDB_RUN_ID") == 0) {
			return;
		}
	}
	if (resumes) {
		put_var(set, "WANDB_RUN_ID", task);
	}
}

void vars_put(struct wire_out *set, const struct sched_spec *spec, const struct vars_place *place,
	enum vars_phase phase)
{
	bool run = phase == VARS_RUN;

	ASSERT(place->node < place->nodes);
	for (uint32_t i = 0; i < spec->vars_n; i++) {
		put_var(set, spec->vars[i].name, spec->vars[i].value);
	}
	put_number(set, run ? "SKYPILOT_NODE_RANK" : "SKYPILOT_SETUP_NODE_RANK", place->node);
	put_addresses(set, run ? "SKYPILOT_NODE_IPS" : "SKYPILOT_SETUP_NODE_IPS", place);
	put_number(set, run ? "SKYPILOT_NUM_GPUS_PER_NODE" : "SKYPILOT_SETUP_NUM_GPUS_PER_NODE",
		place->gpus);
	put_number(set, "SKYPILOT_NUM_NODES", place->nodes);
	put_var(set, "SKYPILOT_TASK_ID", place->task);
	put_wandb(set, spec, place->task);
	put_number(set, "SKYPILOT_INTERNAL_JOB_ID", place->job);
	put_cluster(set, place);
}
