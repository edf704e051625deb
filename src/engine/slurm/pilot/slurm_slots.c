/* Slots have numbers, devices have names: see slurm_slots.h. */
#include "engine/slurm/pilot/slurm_slots.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEVICES     "CUDA_VISIBLE_DEVICES"
#define RUN_DEVICES "PAWL_RUN_DEVICES" /* read by `pawl run`: launch/run_devices.h */

#define PATH_BYTES 128u

static bool is_free(const struct slurm_parts *parts, uint32_t slot)
{
	for (uint32_t i = 0; i < parts->n; i++) {
		const struct slurm_part *part = parts->all[i];

		for (uint32_t s = 0; s < part->slots_n && !part->over; s++) {
			if (part->slots[s] == slot) {
				return false;
			}
		}
	}
	return true;
}

void slurm_slots_take(const struct slurm_parts *parts, struct slurm_part *part, uint32_t n)
{
	n = n < CORE_SLOTS_MAX ? n : CORE_SLOTS_MAX;
	for (uint32_t slot = 0; slot < parts->slots && part->slots_n < n; slot++) {
		if (is_free(parts, slot)) {
			part->slots[part->slots_n++] = slot;
		}
	}
}

/* Returns the comma-separated list from its n-th item on; "": there is none. */
static const char *item_of(const char *list, uint32_t n)
{
	for (; n > 0 && *list != '\0'; n--) {
		list += strcspn(list, ",");
		list += *list == ',';
	}
	return list;
}

/* Returns the pilot's devices; NULL: there are fewer than slots. */
static const char *all_devices(const struct slurm_parts *parts)
{
	const char *all = getenv(DEVICES);

	return !all || parts->slots == 0 || *item_of(all, parts->slots - 1) == '\0' ? NULL : all;
}

static void put_list(const char *all, const struct slurm_part *part, uint32_t n,
	struct wire_out *out)
{
	for (uint32_t s = 0; s < n && s < part->slots_n; s++) {
		const char *item = item_of(all, part->slots[s]);

		if (s > 0) {
			wire_put_u8(out, ',');
		}
		wire_put_raw(out, item, strcspn(item, ","));
	}
}

static void name_file(const struct slurm_parts *parts, const struct slurm_part *part,
	char path[PATH_BYTES])
{
	snprintf(path, PATH_BYTES, "%s/devices.%" PRIu64 ".%" PRIu64, parts->runtime,
		part->have.job, part->have.generation);
}

int slurm_slots_write(const struct slurm_parts *parts, const struct slurm_part *part, uint32_t n,
	struct pawl_err *err)
{
	const char *all = all_devices(parts);
	struct wire_out list = {0};
	char path[PATH_BYTES];
	int rv;

	if (!all) {
		return 0;
	}
	name_file(parts, part, path);
	put_list(all, part, n, &list);
	rv = list.failed ? pawl_err_set(err, PAWL_ENOMEM, "out of memory")
			 : file_put(path, list.bytes, list.len_bytes, 0600, false, err);
	wire_out_deinit(&list);
	return rv;
}

void slurm_slots_put(const struct slurm_parts *parts, const struct slurm_part *part,
	struct wire_out *set)
{
	const char *all = all_devices(parts);
	char path[PATH_BYTES];

	if (!all) {
		return;
	}
	name_file(parts, part, path);
	wire_put_raw(set, DEVICES "=", sizeof(DEVICES));
	put_list(all, part, part->slots_n, set);
	wire_put_u8(set, '\0');
	wire_put_raw(set, RUN_DEVICES "=", sizeof(RUN_DEVICES));
	wire_put_raw(set, path, strlen(path) + 1);
}

static bool is_set(const struct wire_out *set, const char *var)
{
	for (size_t at = 0; at < set->len_bytes;) {
		const char *one = (const char *)set->bytes + at;

		if (strncmp(one, var, strcspn(one, "=") + 1) == 0) {
			return true;
		}
		at += strlen(one) + 1;
	}
	return false;
}

char **slurm_slots_env(const struct wire_out *set, char **base)
{
	size_t n = 0;
	size_t room;
	char **env;

	while (base[n]) {
		n++;
	}
	for (size_t i = 0; i < set->len_bytes; i++) {
		n += set->bytes[i] == '\0';
	}
	room = n;
	env = set->failed ? NULL : calloc(room + 1, sizeof(*env));
	n = 0;
	for (size_t i = 0; env && base[i]; i++) {
		if (!is_set(set, base[i])) {
			env[n++] = base[i];
		}
	}
	for (size_t at = 0; env && at < set->len_bytes;) {
		env[n] = (char *)set->bytes + at;
		at += strlen(env[n++]) + 1;
	}
	ASSERT(n <= room);
	return env;
}

void slurm_slots_forget(const struct slurm_parts *parts, const struct slurm_part *part)
{
	char path[PATH_BYTES];

	name_file(parts, part, path);
	unlink(path);
}
