/* Merges the manifests of several hosts into one: see merge.h. Pure. */
#include "ckpt/format/merge.h"

#include "base/assert.h"
#include "base/err.h"

#include <stdlib.h>
#include <string.h>

static bool owns(const struct merge_host *host, uint32_t rank)
{
	if (rank == MANIFEST_ALL_RANKS) {
		return host->first == 0;
	}
	return rank >= host->first && rank - host->first < host->ranks;
}

static bool have_equal_folders(const struct manifest *a, const struct manifest *b)
{
	bool equal = a->folders_n == b->folders_n;

	for (uint32_t i = 0; equal && i < a->folders_n; i++) {
		equal = strcmp(a->folders[i].dir, b->folders[i].dir) == 0;
	}
	return equal;
}

/* Checks that a host's manifest is of the same save as the first one, and of the host's own
 * ranks. */
static int check_host(const struct merge_host *host, const struct manifest *like,
	struct pawl_err *err)
{
	const struct manifest *own = host->manifest;

	if (strcmp(own->tag, like->tag) != 0 || own->step != like->step) {
		return pawl_err_set(err, PAWL_EMISMATCH,
			"rank %u saves %s, step %llu, where rank 0 saves %s, step %llu",
			host->first, own->tag, (unsigned long long)own->step, like->tag,
			(unsigned long long)like->step);
	}
	if (own->world != like->world) {
		return pawl_err_set(err, PAWL_EMISMATCH,
			"%s: rank %u saves as one of %u ranks, but rank 0 as one of %u", own->tag,
			host->first, own->world, like->world);
	}
	if (!have_equal_folders(own, like)) {
		return pawl_err_set(err, PAWL_EMISMATCH,
			"%s: rank %u and rank 0 save on top of different checkpoints", own->tag,
			host->first);
	}
	for (uint32_t p = 0; p < own->parts_n; p++) {
		if (!owns(host, own->parts[p].rank)) {
			return pawl_err_set(err, PAWL_EMISMATCH,
				"%s: %s does not belong to the host of ranks %u to %u, which wrote "
				"it",
				own->tag, own->parts[p].file, host->first,
				host->first + host->ranks - 1);
		}
	}
	return 0;
}

/* Gives a manifest its own copy of like's folders. The caller frees it. */
static int copy_folders(struct manifest *manifest, const struct manifest *like,
	struct pawl_err *err)
{
	manifest->block = NULL;
	manifest->folders = NULL;
	manifest->folders_n = 0;
	return manifest_add_folders(manifest, like, err);
}

int manifest_merge(const struct merge_host *hosts, uint32_t n, struct manifest *into,
	struct pawl_err *err)
{
	struct manifest merged = *hosts[0].manifest;
	uint64_t parts_n = 0;
	int rv = 0;

	for (uint32_t h = 0; h < n && rv == 0; h++) {
		rv = check_host(&hosts[h], hosts[0].manifest, err);
		parts_n += hosts[h].manifest->parts_n;
	}
	if (rv != 0) {
		return rv;
	}
	if (parts_n > MANIFEST_PARTS_MAX) {
		return pawl_err_set(err, PAWL_ELIMIT, "%s: more than %u files", merged.tag,
			MANIFEST_PARTS_MAX);
	}
	rv = copy_folders(&merged, hosts[0].manifest, err);
	if (rv != 0) {
		return rv;
	}
	merged.parts_n = 0;
	merged.parts = calloc(parts_n ? parts_n : 1, sizeof(*merged.parts));
	if (!merged.parts) {
		free(merged.folders);
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for a manifest of %llu files",
			(unsigned long long)parts_n);
	}
	for (uint32_t h = 0; h < n; h++) {
		const struct manifest *own = hosts[h].manifest;

		for (uint32_t p = 0; p < own->parts_n; p++) {
			merged.parts[merged.parts_n++] = own->parts[p];
		}
	}
	ASSERT(merged.parts_n == parts_n);
	manifest_sort(&merged);
	for (uint32_t p = 1; p < merged.parts_n; p++) {
		if (strcmp(merged.parts[p - 1].file, merged.parts[p].file) == 0) {
			rv = pawl_err_set(err, PAWL_EMISMATCH,
				"%s: ranks %u and %u both saved a partition of this name",
				merged.parts[p].file, merged.parts[p - 1].rank,
				merged.parts[p].rank);
			free(merged.parts);
			free(merged.folders);
			return rv;
		}
	}
	*into = merged;
	return 0;
}
