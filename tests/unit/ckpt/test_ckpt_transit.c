/* One random bit of what is sent to a bucket, or read from it, flips on the way, many times: what
 * is stored and what is loaded is right. If bits flip each time, the load fails. */
#include "../lib/s3_fixture.h"
#include "../lib/seed.h"
#include "base/rng.h"
#include "ckpt/root.h"
#include "ckpt/tags.h"
#include "sample.h"

#define FLIPS      200u /* flips in a run of a test; with PAWL_LONG: five times as many */
#define FLIPS_LONG 1000u
#define TAG        "global_step3"

static struct rng rng;
static unsigned flips_n;
static struct tags_root *root;

static int open_root(void **state)
{
	s3_server_setenv(server);
	s3_server_clear(server);
	behave(&(struct s3_settings){.hook = NULL});
	return store_bucket_open(S3_ADDRESS "/p", &store, &err) != 0 ||
		tags_root_over(store, &root, &err) != 0;
}

static int close_root(void **state)
{
	tags_root_close(root);
	s3_server_wait_idle(server);
	return 0;
}

/* Lets a bit flip in one of the next n requests of a kind, or in its answer. */
static void flip_one(enum s3_kind kind, unsigned n, enum s3_fault_kind how)
{
	behave(&(struct s3_settings){.hook = NULL});
	spoil_after(kind, (unsigned)rng_below(&rng, n), 1,
		(struct s3_fault){.kind = how, .n = rng_below(&rng, 2 * MIB)});
}

static unsigned count_spoiled(void)
{
	struct s3_counts counts;

	s3_server_get_counts(server, &counts);
	return counts.spoiled;
}

static void what_is_stored_is_what_was_sent(void **state)
{
	unsigned puts;

	OK(sample_save(sample_get(3, 0), root, &err)); /* the first one tries conditions out */
	behave(&(struct s3_settings){.hook = NULL});
	OK(sample_save(sample_get(3, 0), root, &err));
	puts = count(S3_PUT);
	for (uint32_t i = 0; i < flips_n; i++) {
		uint32_t attempt;

		flip_one(S3_PUT, puts, S3_FLIP_REQUEST);
		OK(sample_save(sample_get(3, i % 2), root, &err));
		assert_int_equal(count_spoiled(), 1);
		assert_int_equal(count(S3_PUT), puts + 1); /* refused, and sent again */
		OK(sample_load(root, TAG, &attempt, &err));
		assert_int_equal(attempt, i % 2);
	}
}

static void what_is_loaded_is_what_was_stored(void **state)
{
	unsigned gets;

	OK(sample_save(sample_get(3, 0), root, &err));
	behave(&(struct s3_settings){.hook = NULL});
	OK(sample_load(root, TAG, NULL, &err));
	gets = count(S3_GET);
	for (unsigned i = 0; i < flips_n; i++) {
		flip_one(S3_GET, gets, S3_FLIP_ANSWER);
		OK(sample_load(root, TAG, NULL, &err));
		assert_int_equal(count_spoiled(), 1);
		assert_int_equal(count(S3_GET), gets + 1); /* found wrong, and read again */
	}
}

static void what_is_always_wrong_is_not_loaded(void **state)
{
	OK(sample_save(sample_get(3, 0), root, &err));
	behave(&(struct s3_settings){.hook = NULL});
	OK(sample_load(root, TAG, NULL, &err));
	for (unsigned i = 0, gets = count(S3_GET); i < gets; i++) {
		behave(&(struct s3_settings){.hook = NULL});
		spoil_after(S3_GET, i, 1000, (struct s3_fault){.kind = S3_FLIP_ANSWER, .n = 8 * i});
		FAILS(PAWL_ECORRUPT, sample_load(root, TAG, NULL, &err));
	}
	behave(&(struct s3_settings){.hook = NULL});
	OK(sample_load(root, TAG, NULL, &err));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_root, close_root)
	const struct CMUnitTest tests[] = {
		TEST(what_is_stored_is_what_was_sent),
		TEST(what_is_loaded_is_what_was_stored),
		TEST(what_is_always_wrong_is_not_loaded),
	};

	rng = (struct rng){test_seed()};
	flips_n = getenv("PAWL_LONG") != NULL ? FLIPS_LONG : FLIPS;
	return cmocka_run_group_tests(tests, start_server, stop_server);
}
