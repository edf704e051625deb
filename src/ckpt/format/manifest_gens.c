/* The folders of a manifest's files: see manifest.h. Pure. */
#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"
#include "ckpt/format/manifest.h"

#include <stdlib.h>
#include <string.h>

uint32_t manifest_find_gen(const struct manifest *manifest, const char *dir)
{
	for (uint32_t i = 0; i < manifest->gens_n; i++) {
		if (strcmp(manifest->gens[i].dir, dir) == 0) {
			return i;
		}
	}
	return UINT32_MAX;
}

int manifest_add_gens(struct manifest *manifest, const struct manifest *from, struct pawl_err *err)
{
	uint32_t n = manifest->gens_n;
	struct manifest_gen *gens;

	ASSERT(manifest->block == NULL);
	for (uint32_t i = 0; i < from->gens_n; i++) {
		n += manifest_find_gen(manifest, from->gens[i].dir) == UINT32_MAX;
	}
	if (n == manifest->gens_n) {
		return 0;
	}
	if (n > MANIFEST_GENS_MAX) {
		return pawl_err_set(err, PAWL_ELIMIT,
			"%s: its files would be in %u folders, at most %u; save it whole",
			manifest->tag, n, MANIFEST_GENS_MAX);
	}
	gens = FAULT_MEM("manifest.gens", realloc(manifest->gens, n * sizeof(*gens)));
	if (gens == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "%s: no memory for %u folders", manifest->tag,
			n);
	}
	manifest->gens = gens;
	for (uint32_t i = 0; i < from->gens_n; i++) {
		if (manifest_find_gen(manifest, from->gens[i].dir) == UINT32_MAX) {
			gens[manifest->gens_n++] = from->gens[i];
		}
	}
	ASSERT(manifest->gens_n == n);
	return 0;
}

void manifest_prune_gens(struct manifest *manifest)
{
	bool used[MANIFEST_GENS_MAX] = {true};
	uint32_t fresh[MANIFEST_GENS_MAX]; /* new number of each used folder */
	uint32_t n = 0;

	ASSERT(manifest->gens_n <= MANIFEST_GENS_MAX);
	for (uint32_t p = 0; manifest->gens_n > 0 && p < manifest->parts_n; p++) {
		const struct manifest_part *part = &manifest->parts[p];

		for (uint32_t i = 0; i < manifest_files_n(part); i++) {
			ASSERT(part->at[i].gen < manifest->gens_n);
			used[part->at[i].gen] = true;
		}
	}
	for (uint32_t i = 0; i < manifest->gens_n; i++) {
		if (used[i]) {
			fresh[i] = n;
			manifest->gens[n++] = manifest->gens[i];
		}
	}
	for (uint32_t p = 0; manifest->gens_n > 0 && p < manifest->parts_n; p++) {
		struct manifest_part *part = &manifest->parts[p];

		for (uint32_t i = 0; i < manifest_files_n(part); i++) {
			part->at[i].gen = fresh[part->at[i].gen];
		}
	}
	manifest->gens_n = n;
}
