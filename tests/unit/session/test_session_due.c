/* "Is a save due?" gets the same answer on every rank at the same question, soon after the advised
 * time. This holds however far apart ranks are, also while they save of their own accord. */
#include "test_session_agent.h"

#include "base/rng.h"
#include "base/times.h"
#include "ipc/link.h"
#include "seed.h"
#include "session/session.h"
#include "times.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

/* Saves follow each other, and ranks connect to another agent, at once. Ranks wait for each other
 * longer than a busy machine stops a process. */
#define WAITS                                                                                      \
	"advice_save_min=0.2,advice_save_max=0.3,due_again=0.1,session_gone=0.2,session_agree=2"

#define RANKS     3u
#define STEPS     150u /* steps of some 10 ms each */
#define TOGETHER  7u   /* steps between two places where ranks wait for each other */
#define OWN_EVERY 47u  /* steps between saves that were not due */

static bool due[RANKS][STEPS]; /* answer that each rank got at each step */
/* A rank no longer waits for the step at which all get yes. */
static atomic_bool late;
static pthread_barrier_t barrier;
static uint64_t seed;

/* Writes a failure for each second, so that the shortest interval is advised. */
static void write_events(void)
{
	char path[sizeof(root) + 64];
	FILE *file;

	assert_int_equal(mkdir(root, 0700), 0);
	snprintf(path, sizeof(path), "%s/checkpointEvents.csv", root);
	file = fopen(path, "w");
	assert_non_null(file);
	fputs("time,job,attempt,event,ranks,step,why\n", file);
	for (int i = 0; i < 2000; i++) {
		fprintf(file,
			"2026-11-20T10:00:00.000Z,j,0,started,3,,\n"
			"2026-11-20T10:00:00.001Z,j,0,failed,3,,\n");
	}
	fclose(file);
}

static void save_nothing(struct pawl_ckpt *ckpt, uint64_t step)
{
	struct pawl_ckpt_part part = {.name = "model", .pickle = "p", .pickle_bytes = 1};
	uint64_t id;

	assert_int_equal(pawl_ckpt_save(ckpt, step, &part, 1, false, &id, NULL), 0);
}

static bool poll_due(struct pawl_ckpt *ckpt)
{
	int64_t begun_ns = clock_mono_ns();
	bool yes = pawl_ckpt_due(ckpt);

	if (clock_mono_ns() - begun_ns >= times_ns(TIME_SESSION_AGREE)) {
		late = true;
	}
	return yes;
}

static void *train(void *user)
{
	uint32_t rank = *(uint32_t *)user;
	struct rng rng = {seed + rank};
	struct pawl_ckpt *ckpt = join(rank, RANKS, 0);

	for (uint32_t step = 0; step < STEPS; step++) {
		within_pace((double)rng_below(&rng, 20 * NS_PER_MS) / NS_PER_S); /* work */
		if (step % TOGETHER == 0) {
			pthread_barrier_wait(&barrier);
		}
		if (late) {
			continue;
		}
		due[rank][step] = poll_due(ckpt);
		if (late) {
			continue; /* the others may have got another answer */
		}
		if (due[rank][step] || step % OWN_EVERY == OWN_EVERY - 1) {
			save_nothing(ckpt, step);
		}
	}
	pawl_ckpt_close(ckpt, 10000, NULL);
	return NULL;
}

static void all_ranks_get_the_same_answer(void **state)
{
	uint32_t ranks[RANKS];
	pthread_t threads[RANKS];
	int64_t begun_ns = clock_mono_ns();
	int64_t took_ns;
	unsigned saves = 0;

	seed = test_seed();
	write_events();
	pthread_barrier_init(&barrier, NULL, RANKS);
	for (uint32_t r = 0; r < RANKS; r++) {
		ranks[r] = r;
		assert_int_equal(pthread_create(&threads[r], NULL, train, &ranks[r]), 0);
	}
	for (uint32_t r = 0; r < RANKS; r++) {
		pthread_join(threads[r], NULL);
	}
	pthread_barrier_destroy(&barrier);
	took_ns = clock_mono_ns() - begun_ns;
	if (late) {
		printf("skipped: agent or rank stood still for longer than ranks wait to agree\n");
		skip();
	}
	for (uint32_t step = 0; step < STEPS; step++) {
		assert_int_equal(due[0][step], due[1][step]);
		assert_int_equal(due[0][step], due[2][step]);
		saves += due[0][step];
	}
	/* The steps take 1.5 s and more, with three saves of the ranks' own between; and no save
	 * comes sooner than advised. */
	assert_in_range(saves, 2, took_ns / times_ns(TIME_ADVICE_SAVE_MIN) + 1);
}

static void start_agent_with(const char *waits)
{
	const char *given = getenv(TIMES_ENV);
	char all[512];

	snprintf(all, sizeof(all), "%s", given ? given : "");
	setenv(TIMES_ENV, waits, 1);
	start_agent();
	setenv(TIMES_ENV, all, 1);
}

static int setup_with(void **state, const char *waits)
{
	make_dir();
	start_agent_with(waits);
	return 0;
}

/* Starts an agent that advises the longest interval between saves. */
static int setup_seldom(void **state)
{
	return setup_with(state, "scale=1");
}

/* The first save is due after two seconds, by the cost that saves are taken to have; by then the
 * test must have come to where it stops the agent. */
static int setup_later(void **state)
{
	return setup_with(state, "advice_save_min=0.2");
}

/* Stops the agent after it has sent HOLD, until the rank no longer waits for it. The rank's
 * receiving thread was blocked until then. */
static void stop_agent_after_hold(struct pawl_ckpt *ckpt)
{
	const struct session_question *question = &ckpt->questions.at[QUESTION_DUE];
	bool yes_pending = false;

	pthread_mutex_lock(&ckpt->state);
	for (uint32_t i = 0; i < 40 && !yes_pending; i++) {
		within_pace(0.3); /* the question comes once a save may be due */
		kill(agent_pid, SIGSTOP);
		pthread_mutex_unlock(&ckpt->state);
		within_pace(0.2);
		pthread_mutex_lock(&ckpt->state);
		yes_pending = question->yes_pending && question->yes_at == UINT64_MAX;
		if (!yes_pending) {
			kill(agent_pid, SIGCONT);
		}
	}
	pthread_mutex_unlock(&ckpt->state);
	if (!yes_pending) {
		FAIL_LATE("ranks had agreed before the agent could be stopped");
	}
}

static bool is_yes_pending(const struct session_question *question)
{
	return question->yes_pending;
}

static bool is_agreed(const struct session_question *question)
{
	return question->yes_at != UINT64_MAX;
}

/* Waits until is() holds for a rank's question. */
static void await_question(struct pawl_ckpt *ckpt, bool (*is)(const struct session_question *))
{
	bool reached = false;

	WITHIN_DOING(WITHIN_LONG_S, reached, {
		within_pace(0.01);
		pthread_mutex_lock(&ckpt->state);
		reached = is(&ckpt->questions.at[QUESTION_DUE]);
		pthread_mutex_unlock(&ckpt->state);
	});
}

static bool await_due(struct pawl_ckpt *ckpt)
{
	bool yes = false;

	for (uint32_t i = 0; i < WAIT_MS / 10 && !yes; i++) {
		yes = pawl_ckpt_due(ckpt);
		within_pace(0.01);
	}
	return yes;
}

static void a_lone_rank_gets_a_late_answer(void **state)
{
	struct pawl_ckpt *ckpt;

	write_events();
	ckpt = join(0, 1, 0);
	stop_agent_after_hold(ckpt);
	assert_false(pawl_ckpt_due(ckpt)); /* returns after a wait */
	assert_false(pawl_ckpt_due(ckpt));
	kill(agent_pid, SIGCONT);
	await_question(ckpt, is_agreed);
	assert_true(pawl_ckpt_due(ckpt));
	save_nothing(ckpt, 1);
	assert_true(await_due(ckpt));
	pawl_ckpt_close(ckpt, 10000, NULL);
}

static void *join_as_1(void *user)
{
	return join(1, 2, 0);
}

static void join_both(struct pawl_ckpt **both)
{
	pthread_t other;

	write_events();
	assert_int_equal(pthread_create(&other, NULL, join_as_1, NULL), 0);
	both[0] = join(0, 2, 0);
	pthread_join(other, (void **)&both[1]);
}

static void *close_in_thread(void *ckpt)
{
	pawl_ckpt_close(ckpt, 10000, NULL);
	return NULL;
}

static void close_both(struct pawl_ckpt **both)
{
	pthread_t other;

	assert_int_equal(pthread_create(&other, NULL, close_in_thread, both[1]), 0);
	pawl_ckpt_close(both[0], 10000, NULL);
	pthread_join(other, NULL);
}

/* Waits until both ranks get yes, and saves. */
static void save_when_due(struct pawl_ckpt **both, uint64_t step)
{
	struct pawl_ckpt_part part = {.name = "model", .pickle = "p", .pickle_bytes = 1};
	uint64_t id;

	assert_true(await_due(both[0]));
	assert_true(await_due(both[1]));
	assert_int_equal(pawl_ckpt_save(both[1], step, &part, 1, false, &id, NULL), 0);
	assert_int_equal(pawl_ckpt_save(both[0], step, &part, 1, false, &id, NULL), 0);
	assert_int_equal(pawl_ckpt_wait(both[0], id, PAWL_CKPT_COMMITTED, WAIT_MS, NULL), 0);
}

/* The other rank saves, which fails as soon as this one learns of it; both then have the same
 * numbers. The other one polls only when it has received HOLD: otherwise both would get yes at a
 * later poll, the first one rightly, too. */
static void who_misses_a_save_counts_it(void **state)
{
	struct pawl_ckpt_status status;
	struct pawl_ckpt *both[2];

	join_both(both);
	stop_agent_after_hold(both[0]);
	assert_false(pawl_ckpt_due(both[0])); /* returns after a wait */
	kill(agent_pid, SIGCONT);
	await_question(both[1], is_yes_pending);
	assert_true(await_due(both[1]));
	save_nothing(both[1], 1);
	for (uint32_t i = 0; i < WAIT_MS / 10 && both[0]->saves.last_id == 0; i++) {
		assert_false(pawl_ckpt_due(both[0]));
		within_pace(0.01);
	}
	assert_int_equal(pawl_ckpt_wait(both[1], 1, PAWL_CKPT_COMMITTED, WAIT_MS, NULL),
		PAWL_ECANCELED);
	assert_int_equal(pawl_ckpt_status(both[0], 1, &status, NULL), 0);
	assert_int_equal(status.level, PAWL_CKPT_FAILED);
	save_when_due(both, 2);
	close_both(both);
}

/* A rank gets yes, and reaches that step long after the other one, when the next save would be
 * due. */
static void who_comes_late_to_a_save_is_not_asked_again(void **state)
{
	struct pawl_ckpt *both[2];

	join_both(both);
	assert_true(await_due(both[1]));
	save_nothing(both[1], 1);
	within_pace(0.5);
	assert_true(await_due(both[0]));
	save_nothing(both[0], 1);
	assert_int_equal(pawl_ckpt_wait(both[1], 1, PAWL_CKPT_COMMITTED, WAIT_MS, NULL), 0);
	save_when_due(both, 2);
	close_both(both);
}

static void *await_due_in_thread(void *ckpt)
{
	return await_due(ckpt) ? ckpt : NULL;
}

/* Each rank polls by itself, as its answer may depend on the other one's polls. */
static void await_both_due(struct pawl_ckpt **both)
{
	pthread_t other;
	void *yes;

	assert_int_equal(pthread_create(&other, NULL, await_due_in_thread, both[1]), 0);
	assert_true(await_due(both[0]));
	pthread_join(other, &yes);
	assert_non_null(yes);
}

static void replace_agent(void)
{
	kill_agent();
	start_agent();
	await_agent(sock);
}

static void restore_nothing(struct pawl_ckpt *ckpt)
{
	struct pawl_restore *restore;

	assert_int_equal(pawl_ckpt_restore(ckpt, false, 0, WAIT_MS, &restore, NULL), PAWL_ENOENT);
}

/* The first rank has saved before the second one has polled: the agent remembers that save. */
static void who_restores_late_holds_up_nothing(void **state)
{
	struct pawl_ckpt *both[2];

	join_both(both);
	for (uint32_t r = 0; r < 2; r++) {
		restore_nothing(both[r]);
		save_nothing(both[r], 0);
	}
	save_when_due(both, 1);
	close_both(both);
}

/* Both ranks got yes, one has saved, and the agent dies before the other one reaches that step. */
static void a_promise_outlives_the_agent(void **state)
{
	struct pawl_ckpt *both[2];

	join_both(both);
	restore_nothing(both[0]);
	restore_nothing(both[1]);
	assert_true(await_due(both[1]));
	save_nothing(both[1], 1);
	replace_agent();
	assert_true(await_due(both[0]));
	save_nothing(both[0], 1);
	assert_int_equal(both[0]->saves.last_id, both[1]->saves.last_id);
	await_both_due(both);
	save_when_due(both, 2);
	close_both(both);
}

static void *connect_again(void *user)
{
	struct pawl_ckpt *ckpt = user;
	int rv;

	pthread_mutex_lock(&ckpt->saving);
	rv = session_connect(ckpt, NULL);
	pthread_mutex_unlock(&ckpt->saving);
	return rv == 0 ? ckpt : NULL;
}

/* Another agent restarts the count of joint restores, and sends no HOLD for a second. What the
 * previous agent answered both ranks still holds for the next save. */
static void a_promise_outlives_a_count_of_restores(void **state)
{
	const struct session_question *question;
	struct pawl_ckpt *both[2];
	pthread_t other;
	void *joined;
	bool yes = false;

	join_both(both);
	restore_nothing(both[0]);
	restore_nothing(both[1]);
	assert_int_equal(both[0]->numbers.rounds, 1);
	assert_true(await_due(both[1]));
	await_question(both[0], is_agreed);
	kill_agent();
	start_agent_with("scale=1");
	await_agent(sock);
	assert_int_equal(pthread_create(&other, NULL, connect_again, both[1]), 0);
	assert_non_null(connect_again(both[0]));
	pthread_join(other, &joined);
	assert_non_null(joined);
	assert_int_equal(both[0]->numbers.rounds, 0);
	question = &both[0]->questions.at[QUESTION_DUE];
	do {
		yes = pawl_ckpt_due(both[0]);
	} while (!yes && question->polls < question->yes_at);
	assert_true(yes);
	save_when_due(both, 1);
	close_both(both);
}

/* A rank that saves only when a save is due connects to the next agent as well. */
static void another_agent_is_connected(void **state)
{
	struct pawl_ckpt *both[2];

	join_both(both);
	restore_nothing(both[0]);
	restore_nothing(both[1]);
	save_when_due(both, 1);
	replace_agent();
	await_both_due(both);
	save_when_due(both, 2);
	close_both(both);
}

static void ignore_event(void *user, struct link *link, uint16_t type,
	const union frame_event *event)
{
}

/* Tells the agent that its machine goes away, as `pawl notice` does. */
static void notify_agent(void)
{
	const struct frame_preempt preempt = {.left_ms = 30000};
	struct frame_preempted preempted;
	struct link_reply reply = {0};
	struct wire_out out = {0};
	struct link *link;

	assert_int_equal(link_open(&link, sock, ignore_event, NULL, NULL), 0);
	assert_int_equal(link_call(link, &out, PROTO_PREEMPT, &preempt, WAIT_MS, &reply, NULL), 0);
	assert_int_equal(
		link_reply_get(&reply, PROTO_PREEMPTED, &preempted, sizeof(preempted), NULL), 0);
	assert_string_equal(preempted.job, "test");
	link_reply_deinit(&reply);
	wire_out_deinit(&out);
	link_close(link);
}

/* A save is due that nobody would have made for half an hour, and is made durable, though one of
 * the ranks was not there yet when the notice came. */
static void a_notice_makes_a_save_due(void **state)
{
	struct pawl_ckpt_part part = {.name = "model", .pickle = "p", .pickle_bytes = 1};
	struct pawl_ckpt *both[2];
	pthread_t other;
	uint64_t id;

	both[0] = join(0, 2, 0);
	notify_agent();
	assert_int_equal(pthread_create(&other, NULL, join_as_1, NULL), 0);
	pthread_join(other, (void **)&both[1]);
	restore_nothing(both[0]); /* the time of the next save counts anew */
	restore_nothing(both[1]);
	await_both_due(both);
	assert_int_equal(pawl_ckpt_save(both[1], 1, &part, 1, false, &id, NULL), 0);
	assert_int_equal(pawl_ckpt_save(both[0], 1, &part, 1, false, &id, NULL), 0);
	assert_int_equal(pawl_ckpt_wait(both[0], id, PAWL_CKPT_DURABLE, WAIT_MS, NULL), 0);
	assert_true(pawl_ckpt_stopping(both[0]) && pawl_ckpt_stopping(both[1]));
	close_both(both);
}

/* Questions are answered without the agent: cheap enough for every step. The fastest of some
 * thousands counts: other programs run here, too. */
static void asking_is_cheap(void **state)
{
	struct pawl_ckpt *ckpt = join(0, 1, 0);
	int64_t least_ns = INT64_MAX;

	for (int i = 0; i < 100; i++) {
		int64_t begun_ns = clock_mono_ns();
		int64_t took_ns;

		for (int j = 0; j < 1000; j++) {
			assert_false(pawl_ckpt_due(ckpt));
		}
		took_ns = clock_mono_ns() - begun_ns;
		least_ns = took_ns < least_ns ? took_ns : least_ns;
	}
	assert_in_range(least_ns / 1000, 0, 20000); /* ns; sanitizers too */
	pawl_ckpt_close(ckpt, 10000, NULL);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(all_ranks_get_the_same_answer, setup, teardown),
		cmocka_unit_test_setup_teardown(a_lone_rank_gets_a_late_answer, setup_later,
			teardown),
		cmocka_unit_test_setup_teardown(who_misses_a_save_counts_it, setup_later, teardown),
		cmocka_unit_test_setup_teardown(who_comes_late_to_a_save_is_not_asked_again, setup,
			teardown),
		cmocka_unit_test_setup_teardown(who_restores_late_holds_up_nothing, setup,
			teardown),
		cmocka_unit_test_setup_teardown(a_promise_outlives_a_count_of_restores, setup,
			teardown),
		cmocka_unit_test_setup_teardown(a_promise_outlives_the_agent, setup, teardown),
		cmocka_unit_test_setup_teardown(another_agent_is_connected, setup, teardown),
		cmocka_unit_test_setup_teardown(a_notice_makes_a_save_due, setup_seldom, teardown),
		cmocka_unit_test_setup_teardown(asking_is_cheap, setup_seldom, teardown),
	};

	if (argc > 1) {
		return run_agent(argv[1]);
	}
	test_times(WAITS); /* agents have it, too */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
