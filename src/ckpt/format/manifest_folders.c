/* The folders of a manifest's files: see manifest.h. Pure. */
#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"
#include "ckpt/format/manifest.h"

#include <stdlib.h>
#include <string.h>

uint32_t manifest_find_folder(const struct manifest *manifest, const char *dir)
{
	for (uint32_t i = 0; i < manifest->folders_n; i++) {
		if (strcmp(manifest->folders[i].dir, dir) == 0) {
			return i;
		}
	}
	return UINT32_MAX;
}

int manifest_add_folders(struct manifest *manifest, const struct manifest *from,
	struct pawl_err *err)
{
	uint32_t n = manifest->folders_n;
	struct manifest_folder *folders;

	ASSERT(manifest->block == NULL);
	for (uint32_t i = 0; i < from->folders_n; i++) {
		n += manifest_find_folder(manifest, from->folders[i].dir) == UINT32_MAX;
	}
	if (n == manifest->folders_n) {
		return 0;
	}
	if (n > MANIFEST_FOLDERS_MAX) {
		return pawl_err_set(err, PAWL_ELIMIT,
			"%s: its files would be in %u folders, at most %u; save it whole",
			manifest->tag, n, MANIFEST_FOLDERS_MAX);
	}
	folders = FAULT_MEM("manifest.folders", realloc(manifest->folders, n * sizeof(*folders)));
	if (folders == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "%s: no memory for %u folders", manifest->tag,
			n);
	}
	manifest->folders = folders;
	for (uint32_t i = 0; i < from->folders_n; i++) {
		if (manifest_find_folder(manifest, from->folders[i].dir) == UINT32_MAX) {
			folders[manifest->folders_n++] = from->folders[i];
		}
	}
	ASSERT(manifest->folders_n == n);
	return 0;
}

void manifest_prune_folders(struct manifest *manifest)
{
	bool used[MANIFEST_FOLDERS_MAX] = {true};
	uint32_t fresh[MANIFEST_FOLDERS_MAX]; /* new number of each used folder */
	uint32_t n = 0;

	ASSERT(manifest->folders_n <= MANIFEST_FOLDERS_MAX);
	for (uint32_t p = 0; manifest->folders_n > 0 && p < manifest->parts_n; p++) {
		const struct manifest_part *part = &manifest->parts[p];

		for (uint32_t i = 0; i < manifest_files_n(part); i++) {
			ASSERT(part->at[i].folder < manifest->folders_n);
			used[part->at[i].folder] = true;
		}
	}
	for (uint32_t i = 0; i < manifest->folders_n; i++) {
		if (used[i]) {
			fresh[i] = n;
			manifest->folders[n++] = manifest->folders[i];
		}
	}
	for (uint32_t p = 0; manifest->folders_n > 0 && p < manifest->parts_n; p++) {
		struct manifest_part *part = &manifest->parts[p];

		for (uint32_t i = 0; i < manifest_files_n(part); i++) {
			part->at[i].folder = fresh[part->at[i].folder];
		}
	}
	manifest->folders_n = n;
}
