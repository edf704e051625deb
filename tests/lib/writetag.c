/*
 * Writes a tag of one partition into a directory: writetag ROOT STEP PARTITION PICKLE [STORAGE...]
 * The last arguments are files whose bytes become data.pkl and data/0, data/1, ... They are mapped,
 * not read, so that a test may give sparse files of many gigabytes. The program is not installed:
 * Python's tests of the format start from its tags.
 */
#include "base/err.h"
#include "ckpt/format/pieces.h"
#include "ckpt/root.h"
#include "ckpt/tags.h"
#include "sample.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define STORAGES_MAX 1024

static int map_file(const char *path, uint8_t **bytes, uint64_t *size_bytes, struct pawl_err *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) != 0) {
		return pawl_err_sys(err, "open %s", path);
	}
	*size_bytes = (uint64_t)st.st_size;
	*bytes = NULL;
	if (st.st_size > 0) {
		*bytes = mmap(NULL, *size_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
	}
	close(fd);
	return *bytes != MAP_FAILED ? 0 : pawl_err_sys(err, "map %s", path);
}

static int write_tag(struct tags_root *root, uint64_t step, struct sample_part *part,
	struct pawl_err *err)
{
	const struct write_source source = {.chunk = sample_chunk, .user = part};
	struct manifest_part file = {.size_bytes = part->plan.size_bytes,
		.rank = MANIFEST_ALL_RANKS,
		.chunks_n = ckpt_chunks(part->plan.size_bytes)};
	struct manifest manifest = {.step = step, .job = "writetag", .world = 1};
	struct writer *writer = NULL;
	struct tag_draft draft;
	int rv;

	snprintf(file.name, sizeof(file.name), "%s", part->name);
	snprintf(file.file, sizeof(file.file), "%s", part->name);
	tag_of_step(manifest.tag, sizeof(manifest.tag), step);
	file.chunks = calloc(file.chunks_n, sizeof(*file.chunks));
	if (file.chunks == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "write %s", part->name);
	}
	rv = tag_begin(root, manifest.tag, &draft, err);
	if (rv == 0) {
		rv = tag_draft_manifest(root, &draft, &manifest, err);
	}
	if (rv == 0) {
		rv = writer_open(&writer, tags_root_store(root), true, err);
	}
	if (rv == 0) {
		rv = writer_write(writer, draft.dir, &file, &part->plan, &source, err);
	}
	if (rv == 0) {
		manifest.parts_n = 1;
		manifest.parts = &file;
		rv = tag_publish(root, &draft, &manifest, err);
	}
	writer_close(writer);
	free(manifest.folders);
	free(file.chunks);
	return rv;
}

static int run(char **argv, uint32_t storages, struct pawl_err *err)
{
	uint64_t sizes[STORAGES_MAX + 1];
	uint8_t *payloads[STORAGES_MAX + 1];
	struct sample_part part = {.name = argv[3],
		.storages = storages,
		.sizes = sizes,
		.payloads = payloads};
	struct tags_root *root;
	int rv = map_file(argv[4], &payloads[storages], &sizes[storages], err);

	for (uint32_t i = 0; i < storages && rv == 0; i++) {
		rv = map_file(argv[5 + i], &payloads[i], &sizes[i], err);
	}
	if (rv == 0) {
		rv = zip_plan_init(&part.plan, sizes, storages, sizes[storages], err);
	}
	if (rv != 0) {
		return rv;
	}
	rv = tags_root_open(argv[1], NULL, true, &root, err);
	if (rv == 0) {
		rv = write_tag(root, strtoull(argv[2], NULL, 10), &part, err);
		tags_root_close(root);
	}
	zip_plan_deinit(&part.plan);
	return rv;
}

int main(int argc, char **argv)
{
	struct pawl_err err;

	if (argc < 5 || argc - 5 > STORAGES_MAX) {
		fprintf(stderr, "usage: writetag ROOT STEP PARTITION PICKLE [STORAGE...]\n");
		return 2;
	}
	if (run(argv, (uint32_t)(argc - 5), &err) != 0) {
		fprintf(stderr, "writetag: %s\n", err.msg);
		return 1;
	}
	return 0;
}
