/* One random bit of a tag's files is flipped, many times: either it is found, with file and offset,
 * or all bytes that are loaded are right. Nothing in between. */
#include "base/err.h"
#include "base/rng.h"
#include "ckpt/root.h"
#include "ckpt/tags.h"
#include "sample.h"
#include "seed.h"
#include "store/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define FLIPS      1000u /* flips in a run; PAWL_LONG=1: ten times as many */
#define FLIPS_LONG 10000u

static uint64_t first_seed;

/* What has the bytes of the tag global_step3. */
struct file {
	char path[STORE_PATH_MAX]; /* path in the store */
	const char *named;         /* as messages name it */
	bool is_data;              /* a partition's file */
	uint64_t size_bytes;
};

/* A root of either kind, with two tags. */
struct fixture {
	struct tags_root *root;
	struct store *store; /* the root's */
	struct file files[4];
	uint32_t files_n;
};

static void add_file(struct fixture *f, const char *path, const char *named, bool is_data)
{
	struct file *file = &f->files[f->files_n++];

	snprintf(file->path, sizeof(file->path), "%s", path);
	file->named = named;
	file->is_data = is_data;
	assert_int_equal(store_stat(f->store, path, NULL, &file->size_bytes, NULL), 0);
}

static void setup(struct fixture *f, bool flat)
{
	struct manifest manifest;
	char path[STORE_PATH_MAX];

	*f = (struct fixture){.files_n = 0};
	assert_int_equal(
		flat ? store_mem_open_flat(&f->store, NULL) : store_mem_open(&f->store, NULL), 0);
	assert_int_equal(tags_root_over(f->store, &f->root, NULL), 0);
	assert_int_equal(sample_save(sample_get(1, 0), f->root, NULL), 0);
	assert_int_equal(sample_save(sample_get(3, 0), f->root, NULL), 0);
	assert_int_equal(tag_open(f->root, "global_step3", &manifest, NULL), 0);
	manifest_path(path, sizeof(path), &manifest, &manifest.parts[0], 0);
	add_file(f, path, "global_step3/model", true);
	manifest_path(path, sizeof(path), &manifest, &manifest.parts[1], 0);
	add_file(f, path, "global_step3/optim/of/all", true);
	manifest_deinit(&manifest);
	if (flat) {
		add_file(f, ".pawl/tags/global_step3", "manifest", false);
	} else {
		add_file(f, "global_step3/.pawl/manifest", "manifest", false);
		add_file(f, "global_step3/complete.txt", "complete.txt", false);
	}
}

/* Returns the state of the newest tag in a listing. */
static enum tag_state state_of_newest(struct fixture *f)
{
	struct tag_info *tags;
	enum tag_state state;
	size_t n;

	assert_int_equal(tags_list(f->root, NULL, &tags, &n, NULL), 0);
	assert_int_equal(n, 2);
	assert_int_equal(tags[0].state, TAG_COMPLETE);
	state = tags[1].state;
	free(tags);
	return state;
}

/* Flips one bit of a file, loads, and flips it back. Any byte of a partition file counts: padding
 * and headers too. */
static void flip(struct fixture *f, const struct file *file, uint64_t bit)
{
	struct pawl_err err = {0};
	uint64_t at;
	int rv;

	assert_int_equal(store_mem_flip(f->store, file->path, bit, NULL), 0);
	rv = sample_load(f->root, "global_step3", NULL, &err);
	assert_int_not_equal(rv, PAWL_EMISMATCH); /* loaded wrong bytes */
	assert_int_not_equal(rv, 0);
	if (file->is_data) {
		const char *range = strstr(err.msg, file->named);
		char text[64];

		assert_int_equal(rv, PAWL_ECORRUPT);
		assert_non_null(range);
		at = bit / 8 / (1u << 20) * (1u << 20);
		snprintf(text, sizeof(text), ": bytes %" PRIu64 "..", at);
		assert_non_null(strstr(range, text));
		/* A listing does not read the payload. */
		assert_int_equal(state_of_newest(f), TAG_COMPLETE);
	} else {
		assert_int_equal(state_of_newest(f), TAG_BROKEN);
		assert_non_null(strstr(err.msg, file->named));
	}
	assert_int_equal(sample_load(f->root, "global_step1", NULL, NULL), 0);
	assert_int_equal(store_mem_flip(f->store, file->path, bit, NULL), 0);
}

static void flip_bits(bool flat)
{
	unsigned flips = getenv("PAWL_LONG") != NULL ? FLIPS_LONG : FLIPS;
	struct rng rng = {.state = first_seed};
	struct fixture f;

	setup(&f, flat);
	for (unsigned n = 0; n < flips; n++) {
		const struct file *file = &f.files[rng_below(&rng, f.files_n)];

		flip(&f, file, rng_below(&rng, file->size_bytes * 8));
	}
	assert_int_equal(sample_load(f.root, "global_step3", NULL, NULL), 0);
	tags_root_close(f.root);
}

static void any_bit_is_found_out(void **state)
{
	flip_bits(false);
}

static void any_bit_of_objects_is_found_out(void **state)
{
	flip_bits(true);
}

static void every_bit_of_complete_hides_the_tag(void **state)
{
	struct fixture f;

	setup(&f, false);
	for (uint64_t bit = 0; bit < f.files[3].size_bytes * 8; bit++) {
		flip(&f, &f.files[3], bit);
	}
	tags_root_close(f.root);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(any_bit_is_found_out),
		cmocka_unit_test(any_bit_of_objects_is_found_out),
		cmocka_unit_test(every_bit_of_complete_hides_the_tag),
	};
	first_seed = test_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
