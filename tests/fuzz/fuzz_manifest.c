/* Fuzzes manifest_decode, with the bytes as they are and with correct length and checksum, so that
 * the fields behind them are reached. An accepted manifest passes the check and encodes to the same
 * bytes. */
#include "fuzz.h"

#include "base/assert.h"
#include "base/crc.h"
#include "base/wire.h"
#include "ckpt/format/manifest.h"
#include "ckpt/format/pieces.h"

#include <stdlib.h>
#include <string.h>

#define HEADER_BYTES 24u /* magic, version, length, checksum: see docs/format.md */

/* Goes through the places of all files, and drops the folders that are not used. */
static void use(struct manifest *manifest)
{
	char path[1024];

	for (uint32_t p = 0; p < manifest->parts_n; p++) {
		const struct manifest_part *part = &manifest->parts[p];

		for (uint32_t i = 0; i < manifest_files_n(part); i++) {
			manifest_path(path, sizeof(path), manifest, part, i);
			ASSERT(strlen(path) < sizeof(path) - 1);
		}
	}
	manifest_prune_folders(manifest);
	ASSERT(manifest_check(manifest, NULL) == 0);
}

static void decode(const uint8_t *bytes, size_t len_bytes)
{
	struct manifest manifest;
	struct wire_out out = {0};

	if (manifest_decode(&manifest, bytes, len_bytes, NULL) != 0) {
		return;
	}
	ASSERT(manifest_check(&manifest, NULL) == 0);
	manifest_encode(&manifest, &out);
	ASSERT(!out.failed);
	if (bytes[8] == out.bytes[8]) { /* otherwise the input has an older version */
		ASSERT(out.len_bytes == len_bytes);
		ASSERT(memcmp(out.bytes, bytes, len_bytes) == 0);
	}
	use(&manifest);
	wire_out_deinit(&out);
	manifest_deinit(&manifest);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len_bytes)
{
	struct wire_out copy = {0};

	decode(bytes, len_bytes);
	if (len_bytes < HEADER_BYTES) {
		return 0;
	}
	wire_put_raw(&copy, bytes, len_bytes);
	wire_patch_u32(&copy, 12, (uint32_t)(len_bytes - HEADER_BYTES));
	wire_patch_u32(&copy, 16, 0);
	wire_patch_u32(&copy, 20,
		crc32c(bytes[8] > 2 ? crc32c(0, bytes + 8, 1) : 0, bytes + HEADER_BYTES,
			len_bytes - HEADER_BYTES));
	if (!copy.failed) {
		decode(copy.bytes, copy.len_bytes);
	}
	wire_out_deinit(&copy);
	return 0;
}

size_t fuzz_seed(unsigned i, uint8_t *buf)
{
	uint32_t chunks[] = {1, 2};
	struct manifest_place places[] = {{1, 0}, {0, 0}};
	struct manifest_folder folders[] = {{"global_step500/save-1f"}, {"a/save-2"}};
	uint8_t table[] = "table";
	struct manifest_part parts[] = {
		{.name = "model",
			.file = "model",
			.rank = MANIFEST_ALL_RANKS,
			.raw = i == 1,
			.size_bytes = CKPT_CHUNK + 4096,
			.chunks_n = 2,
			.chunks = chunks,
			.sums = i >= 2 ? chunks : NULL,
			.sources_n = i >= 2 ? 2 : 0,
			.sources = {4096, CKPT_CHUNK},
			.places = places,
			.at = {{0, false}, {1, true}},
			.tensors = table,
			.tensors_bytes = sizeof(table)},
		{.name = "rng",
			.file = "rng-rank0",
			.size_bytes = 4096,
			.chunks_n = 1,
			.chunks = chunks,
			.at = {{1, true}}},
	};
	const struct manifest manifest = {.step = 500,
		.tag = "global_step500",
		.job = "job 7",
		.world = 2,
		.parts_n = i == 1 ? 1 : 2,
		.parts = parts,
		.folders_n = i == 3 ? 2 : 0,
		.folders = folders};
	struct wire_out out = {0};
	size_t len_bytes;

	if (i > 3) {
		return 0;
	}
	manifest_encode(&manifest, &out);
	len_bytes = out.len_bytes;
	ASSERT(!out.failed && len_bytes <= FUZZ_BYTES_MAX);
	memcpy(buf, out.bytes, len_bytes);
	wire_out_deinit(&out);
	return len_bytes;
}
