/* One random bit of a tag's files is flipped, many times: either it is found, with file and offset,
 * or all bytes that are loaded are right. Nothing in between. */
#include "base/err.h"
#include "base/rng.h"
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

static const char *const files[] = {"global_step3/model", "global_step3/optim/of/all",
	"global_step3/.pawl/manifest", "global_step3/complete.txt"};

static struct store *open_store(uint64_t sizes[4])
{
	struct store *store;

	assert_int_equal(store_mem_open(&store, NULL), 0);
	assert_int_equal(sample_save(sample_get(1, 0), store, NULL), 0);
	assert_int_equal(sample_save(sample_get(3, 0), store, NULL), 0);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(store_stat(store, files[i], NULL, &sizes[i], NULL), 0);
	}
	return store;
}

/* Returns the state of the newest tag in a listing. */
static enum tag_state state_of_newest(struct store *store)
{
	struct tag_info *tags;
	enum tag_state state;
	size_t n;

	assert_int_equal(tags_list(store, NULL, &tags, &n, NULL), 0);
	assert_int_equal(n, 2);
	assert_int_equal(tags[0].state, TAG_COMPLETE);
	state = tags[1].state;
	free(tags);
	return state;
}

/* Flips bit of files[i], loads, and flips it back. Any byte of a partition file counts: padding and
 * headers too. */
static void flip(struct store *store, int i, uint64_t bit)
{
	struct pawl_err err = {0};
	uint64_t at;
	int rv;

	assert_int_equal(store_mem_flip(store, files[i], bit, NULL), 0);
	rv = sample_load(store, "global_step3", NULL, &err);
	assert_int_not_equal(rv, PAWL_EMISMATCH); /* loaded wrong bytes */
	assert_int_not_equal(rv, 0);
	if (i < 2) {
		const char *range = strstr(err.msg, files[i]);
		char text[64];

		assert_int_equal(rv, PAWL_ECORRUPT);
		assert_non_null(range);
		at = bit / 8 / (1u << 20) * (1u << 20);
		snprintf(text, sizeof(text), ": bytes %" PRIu64 "..", at);
		assert_non_null(strstr(range, text));
		/* A listing does not read the payload. */
		assert_int_equal(state_of_newest(store), TAG_COMPLETE);
	} else {
		assert_int_equal(state_of_newest(store), TAG_BROKEN);
		assert_non_null(strstr(err.msg, i == 2 ? "manifest" : "complete.txt"));
	}
	assert_int_equal(sample_load(store, "global_step1", NULL, NULL), 0);
	assert_int_equal(store_mem_flip(store, files[i], bit, NULL), 0);
}

static void any_bit_is_found_out(void **state)
{
	unsigned flips = getenv("PAWL_LONG") != NULL ? FLIPS_LONG : FLIPS;
	struct rng rng = {.state = first_seed};
	uint64_t sizes[4];
	struct store *store = open_store(sizes);

	for (unsigned n = 0; n < flips; n++) {
		int i = (int)rng_below(&rng, 4);

		flip(store, i, rng_below(&rng, sizes[i] * 8));
	}
	assert_int_equal(sample_load(store, "global_step3", NULL, NULL), 0);
	store_close(store);
}

static void every_bit_of_complete_hides_the_tag(void **state)
{
	uint64_t sizes[4];
	struct store *store = open_store(sizes);

	for (uint64_t bit = 0; bit < sizes[3] * 8; bit++) {
		flip(store, 3, bit);
	}
	store_close(store);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(any_bit_is_found_out),
		cmocka_unit_test(every_bit_of_complete_hides_the_tag),
	};
	first_seed = test_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
