/* Checks that files of every release load: files that torch.save wrote, and a tag of each version
 * of the format, all of the same state. PAWL_GOLDEN_DIR is the folder of this file. */
#include "base/crc.h"
#include "base/err.h"
#include "ckpt/format/manifest.h"
#include "ckpt/format/pieces.h"
#include "ckpt/format/zip.h"
#include "ckpt/read.h"
#include "ckpt/root.h"
#include "ckpt/tags.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define FILE_MAX 65536u

/* The state: weight float32 0..1499, empty, bias int64 0..2, and a number. */
#define WEIGHTS 1500u
#define BIASES  3u

static char *golden; /* the golden folder */

struct memory_file {
	uint8_t bytes[FILE_MAX];
	size_t len_bytes;
};

static int read_memory(void *user, uint64_t off, void *buf, size_t len_bytes, struct pawl_err *err)
{
	const struct memory_file *file = user;

	assert_true(off <= file->len_bytes && len_bytes <= file->len_bytes - off);
	memcpy(buf, file->bytes + off, len_bytes);
	return 0;
}

static void assert_payloads(struct memory_file *file)
{
	struct zip_plan plan;
	float weight;
	int64_t bias;

	assert_int_equal(zip_plan_read(&plan, read_memory, file, file->len_bytes, NULL), 0);
	assert_int_equal(plan.storages, 3);
	assert_int_equal(plan.entries[0].size_bytes, WEIGHTS * sizeof(weight));
	assert_int_equal(plan.entries[1].size_bytes, 0);
	assert_int_equal(plan.entries[2].size_bytes, BIASES * sizeof(bias));
	for (uint32_t i = 0; i < WEIGHTS; i++) {
		memcpy(&weight, file->bytes + plan.entries[0].data_off + i * sizeof(weight),
			sizeof(weight));
		assert_true(weight == (float)i);
	}
	for (int64_t i = 0; i < BIASES; i++) {
		memcpy(&bias, file->bytes + plan.entries[2].data_off + (uint64_t)i * sizeof(bias),
			sizeof(bias));
		assert_true(bias == i);
	}
	for (uint32_t i = 0; i < plan.entries_n; i++) {
		const struct zip_entry *entry = &plan.entries[i];

		assert_int_equal(entry->crc,
			crc32_zip(0, file->bytes + entry->data_off, entry->size_bytes));
	}
	zip_plan_deinit(&plan);
}

static void files_of_torch_are_read(void **state)
{
	static const char *const names[] = {"torch_2_6.pt", "torch_2_13.pt"};
	static struct memory_file file;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		char path[1024];
		FILE *from;

		snprintf(path, sizeof(path), "%s/%s", golden, names[i]);
		from = fopen(path, "rb");
		assert_non_null(from);
		file.len_bytes = fread(file.bytes, 1, sizeof(file.bytes), from);
		fclose(from);
		assert_payloads(&file);
	}
}

static void check_tag(const char *version)
{
	static struct memory_file file;
	struct manifest manifest;
	struct reader *reader;
	struct tags_root *root;
	char path[1024];
	uint8_t *image;

	snprintf(path, sizeof(path), "%s/%s", golden, version);
	assert_int_equal(tags_root_open(path, NULL, false, &root, NULL), 0);
	assert_int_equal(tag_open(root, "global_step500", &manifest, NULL), 0);
	assert_int_equal(manifest.step, 500);
	assert_string_equal(manifest.job, "writetag");
	assert_int_equal(manifest.parts_n, 1);
	assert_in_range(manifest.parts[0].size_bytes, 1, FILE_MAX);
	image = image_alloc(manifest.parts[0].size_bytes);
	assert_non_null(image);
	assert_int_equal(reader_open(&reader, tags_root_store(root), NULL), 0);
	assert_int_equal(reader_read(reader, &manifest, &manifest.parts[0], image, NULL), 0);
	file.len_bytes = manifest.parts[0].size_bytes;
	memcpy(file.bytes, image, file.len_bytes);
	assert_payloads(&file);
	reader_close(reader);
	image_free(image, manifest.parts[0].size_bytes);
	manifest_deinit(&manifest);
	tags_root_close(root);
}

static void tags_of_all_versions_are_read(void **state)
{
	check_tag("v1");
	check_tag("v2");
	check_tag("v3"); /* a linked file */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(files_of_torch_are_read),
		cmocka_unit_test(tags_of_all_versions_are_read),
	};

	golden = getenv("PAWL_GOLDEN_DIR");
	if (golden == NULL) {
		printf("skipped: PAWL_GOLDEN_DIR is not set\n");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
