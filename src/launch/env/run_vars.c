/* Makes the environment of a worker: see run_vars.h. */
#include "launch/env/run_vars.h"

#include "base/assert.h"
#include "launch/env/adaptdl.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VAR_MAX 1280u /* bytes of one variable of ours, terminator included */

const char *const run_vars_varying[] = {"RANK", "LOCAL_RANK", "ROLE_RANK", "WORLD_SIZE",
	"LOCAL_WORLD_SIZE", "ROLE_WORLD_SIZE", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT",
	"PAWL_ATTEMPT", "PAWL_ELASTIC_JOIN", NULL};

__attribute__((format(printf, 2, 3))) static void put(struct wire_out *set, const char *fmt, ...)
{
	char text[VAR_MAX];
	va_list args;
	int len;

	va_start(args, fmt);
	len = vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	if (len < 0 || (size_t)len >= sizeof(text)) {
		set->failed = true;
		return;
	}
	wire_put_raw(set, text, (size_t)len + 1);
}

void run_vars_put_common(struct wire_out *set, const struct run_place *place)
{
	put(set, "ROLE_NAME=default");
	put(set, "GROUP_RANK=%u", place->node);
	put(set, "GROUP_WORLD_SIZE=%u", place->nodes);
	put(set, "MASTER_ADDR=%s", place->master);
	put(set, "TORCHELASTIC_MAX_RESTARTS=%u", place->max_restarts);
	put(set, "TORCHELASTIC_RUN_ID=%s", place->job);
	put(set, "TORCHELASTIC_USE_AGENT_STORE=False"); /* rank 0 listens on MASTER_PORT itself */
	put(set, "PAWL_JOB_ID=%s", place->job);
	put(set, "PAWL_AGENT=%s", place->agent);
	if (place->membership_path != NULL) {
		put(set, "PAWL_ELASTIC_DOOR=%s", place->membership_path);
	}
	if (place->membership_path != NULL && place->min_workers > 0) {
		put(set, "PAWL_ELASTIC_MIN=%u", place->min_workers);
	}
	if (place->one_thread) {
		put(set, "OMP_NUM_THREADS=1");
	}
	if (place->our_backend) {
		put(set, "PAWL_BACKEND=pawl");
	}
	if (place->servers[0] != '\0') {
		put(set, "PAWL_SERVERS=%s", place->servers);
	}
	if (place->nccl_async) {
		put(set, "TORCH_NCCL_ASYNC_ERROR_HANDLING=1");
	}
}

void run_vars_put_varying(struct wire_out *set, const struct run_place *place, uint32_t local)
{
	ASSERT(local < place->workers);
	put(set, "RANK=%u", place->first + local);
	put(set, "LOCAL_RANK=%u", local);
	put(set, "ROLE_RANK=%u", place->first + local);
	put(set, "WORLD_SIZE=%u", place->world);
	put(set, "LOCAL_WORLD_SIZE=%u", place->workers);
	put(set, "ROLE_WORLD_SIZE=%u", place->world);
	put(set, "MASTER_PORT=%u", place->port);
	put(set, "TORCHELASTIC_RESTART_COUNT=%u", place->restarts);
	put(set, "PAWL_ATTEMPT=%u", place->attempt);
	if (place->joins) {
		put(set, "PAWL_ELASTIC_JOIN=%u", place->number);
	}
	if (place->adaptdl_port > 0) {
		const struct adaptdl_replica replica = {.rank = place->first + local,
			.replicas = place->world,
			.nodes = place->nodes,
			.restarts = place->attempt,
			.port = place->adaptdl_port};

		adaptdl_put_replica(set, &replica);
	}
}

static bool is_same_name(const char *var, const char *name)
{
	size_t len = strcspn(name, "=");

	return strncmp(var, name, len) == 0 && var[len] == '=';
}

static bool is_set(const struct wire_out *set, const char *var)
{
	for (size_t off = 0; off < set->len_bytes; off += strlen((char *)set->bytes + off) + 1) {
		if (is_same_name(var, (const char *)set->bytes + off)) {
			return true;
		}
	}
	for (const char *const *name = run_vars_varying; *name != NULL; name++) {
		if (is_same_name(var, *name)) {
			return true;
		}
	}
	return is_same_name(var, "PAWL_RANK") || is_same_name(var, "PAWL_TOKEN");
}

char **run_vars_merge(char *const *base, const struct wire_out *set)
{
	size_t n = 1;
	char **vars;

	if (set->failed) {
		return NULL;
	}
	for (char *const *var = base; *var != NULL; var++) {
		n++;
	}
	for (size_t off = 0; off < set->len_bytes; off += strlen((char *)set->bytes + off) + 1) {
		n++;
	}
	vars = malloc(n * sizeof(*vars));
	if (vars == NULL) {
		return NULL;
	}
	n = 0;
	for (char *const *var = base; *var != NULL; var++) {
		if (!is_set(set, *var)) {
			vars[n++] = *var;
		}
	}
	for (size_t off = 0; off < set->len_bytes; off += strlen((char *)set->bytes + off) + 1) {
		vars[n++] = (char *)set->bytes + off;
	}
	vars[n] = NULL;
	return vars;
}
