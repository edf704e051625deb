/* How much the client of object stores asks of a server that wants less, and of one that is down.
 * Requests are counted: how long something takes says only how busy the machine is. */
#include "../lib/s3_fixture.h"
#include "../lib/within.h"
#include "base/clock.h"

#define OUTAGE_S 6
#define OPS_N    64u

/* An outage, and the requests in each of its seconds; guarded by the server's lock. */
struct outage {
	int64_t began_ns;         /* at the first request; 0: not yet */
	unsigned asked[OUTAGE_S]; /* requests in each second */
	unsigned after;           /* requests when it was over */
};

static struct outage outage;

/* Fits s3_hook_fn. */
static void be_down(void *user, const struct s3_ask *ask, struct s3_fault *fault)
{
	int64_t second;

	outage.began_ns = outage.began_ns != 0 ? outage.began_ns : ask->now_ns;
	second = (ask->now_ns - outage.began_ns) / NS_PER_S;
	if (second >= OUTAGE_S) {
		outage.after++;
		return;
	}
	outage.asked[second]++;
	*fault = (struct s3_fault){.kind = S3_ANSWER, .status = 503, .code = "SlowDown"};
}

static void begin_outage(void)
{
	memset(&outage, 0, sizeof(outage));
	behave(&(struct s3_settings){.hook = be_down});
}

static void end_outage(void)
{
	behave(&(struct s3_settings){.hook = NULL}); /* the hook is not running any more */
}

/* Looks at an object by n operations at the same time. Returns how many fail. */
static unsigned look_often(unsigned n, int rv)
{
	struct object_op ops[OPS_N];
	unsigned failed = 0;

	assert_true(n <= OPS_N);
	for (unsigned i = 0; i < n; i++) {
		ops[i] = (struct object_op){.verb = OBJECT_HEAD, .key = "old"};
		object_submit(client, &ops[i]);
	}
	for (unsigned i = 0; i < n; i++) {
		struct object_op *op = object_reap(client, -1);

		assert_non_null(op);
		assert_true(op->rv == 0 || rv == 0 || op->rv == rv || op->rv == PAWL_ETIMEDOUT);
		failed += op->rv != 0;
		err = op->rv != 0 ? op->err : err;
	}
	assert_null(object_reap(client, 0));
	return failed;
}

static void a_server_that_is_down_is_asked_rarely(void **state)
{
	OK(put_body("old"));
	begin_outage();
	assert_int_equal(look_often(40, 0), 0);
	end_outage();
	assert_true(outage.after >= 40);
	for (unsigned i = 2; i < OUTAGE_S; i++) {
		assert_true(outage.asked[i] <= 3);
	}
	assert_true(outage.asked[2] + outage.asked[3] + outage.asked[4] + outage.asked[5] <= 8);
	assert_true(outage.asked[0] + outage.asked[1] <= 8 + 12); /* all connections, then probes */
}

/* All that waits ends when the patience is over, not one after the other. */
static void a_queue_has_the_patience_of_one(void **state)
{
	OK(put_body("old"));
	behave(&settings);
	reopen_client(2);
	spoil(ANY_KIND, 100000, (struct s3_fault){.kind = S3_ANSWER, .status = 503});
	assert_int_equal(look_often(OPS_N, PAWL_EIO), OPS_N);
	assert_true(count(ANY_KIND) < OPS_N); /* most were never sent */
	assert_true(strstr(err.msg, "HTTP 503") != NULL ||
		strstr(err.msg, "the service takes no requests") != NULL);
	assert_int_equal(memcmp(err.msg, "look at s3://bucket/old: ", 25), 0);
	behave(&settings);
	WITHIN(WITHIN_LONG_S, head("old") == 0); /* the server is asked again */
}

/* Times of the first two requests of a test; guarded by the server's lock. */
static int64_t asked_ns[2];

/* Fits s3_hook_fn. */
static void ask_for_a_pause(void *user, const struct s3_ask *ask, struct s3_fault *fault)
{
	if (ask->nth <= 2) {
		asked_ns[ask->nth - 1] = ask->now_ns;
	}
	if (ask->nth == 1) {
		*fault = (struct s3_fault){.kind = S3_ANSWER,
			.status = 503,
			.code = "SlowDown",
			.headers = "Retry-After: 2\r\n"};
	}
}

static void a_pause_that_is_asked_for_is_kept(void **state)
{
	behave(&(struct s3_settings){.hook = ask_for_a_pause});
	OK(put_body("new"));
	end_outage();
	assert_true(asked_ns[1] - asked_ns[0] >= 2 * NS_PER_S);
}

/* The window finds out what the server can do: few requests are refused in the end. */
static void a_small_server_is_not_overrun(void **state)
{
	struct s3_counts counts;

	OK(put_body("old"));
	behave(&(struct s3_settings){.capacity = 3, .hold_ms = 5});
	for (unsigned i = 0; i < 5; i++) {
		assert_int_equal(look_often(OPS_N, 0), 0);
	}
	s3_server_get_counts(server, &counts);
	printf("%u requests for %u operations\n", counts.all, 5 * OPS_N);
	assert_true(counts.all < 5 * OPS_N * 2);
	assert_true(counts.most <= 8);
}

static void connections_are_kept_and_bounded(void **state)
{
	struct s3_counts counts;

	OK(put_body("old"));
	behave(&(struct s3_settings){.hold_ms = 5});
	assert_int_equal(look_often(OPS_N, 0), 0);
	s3_server_get_counts(server, &counts);
	assert_int_equal(counts.all, OPS_N);
	assert_true(counts.most <= 8);
}

/* A caller that never waits gets on, too. */
static void polling_moves_bytes(void **state)
{
	struct object_op op = make_put("new", NULL);
	struct object_op *ended = NULL;

	object_submit(client, &op);
	WITHIN(WITHIN_LONG_S, (ended = object_reap(client, 0)) != NULL);
	assert_ptr_equal(ended, &op);
	assert_int_equal(op.rv, 0);
	assert_true(s3_server_holds(server, "new", body, BODY));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin_client, end_client)
	const struct CMUnitTest tests[] = {
		TEST(a_server_that_is_down_is_asked_rarely),
		TEST(a_queue_has_the_patience_of_one),
		TEST(a_pause_that_is_asked_for_is_kept),
		TEST(a_small_server_is_not_overrun),
		TEST(connections_are_kept_and_bounded),
		TEST(polling_moves_bytes),
	};

	return cmocka_run_group_tests(tests, start_server, stop_server);
}
