/*
 * The storage threads of two hosts that save into one bucket: what they ask it for, which
 * checkpoint they offer when the hosts' memory has one, too, and how a host joins while the bucket
 * does not answer.
 */
#include "agent/peer/peers.h"
#include "agent/peer/place.h"
#include "agent/persist/alerts.h"
#include "agent/persist/persist.h"
#include "base/crc.h"
#include "ckpt/format/record.h"
#include "ckpt/format/zip.h"
#include "ckpt/root.h"
#include "ckpt/tags.h"
#include "io/loop.h"
#include "ipc/proto.h"
#include "s3_server.h"
#include "times.h"
#include "within.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOSTS   2
#define FILE_B  5000u
#define ARENA_B 8192u
#define ROOT    S3_ADDRESS "/p"

/* A host of one rank. */
struct host {
	struct peers *peers; /* NULL: no links */
	struct persist *persist;
	struct loop *loop;
	struct persist_job open, begin, enter, save, find, vote;
	struct history_row row;
	struct persist_rank rank;
	struct record record;
	struct record_part part;
	struct record_piece piece;
	uint64_t storage_bytes;
	uint8_t *arena;
};

static struct s3_server *server;
static struct host hosts[HOSTS];
static _Atomic bool refuses;        /* the bucket refuses all requests */
static _Atomic bool stalls;         /* the bucket does not answer requests about the history */
static _Atomic unsigned stalled_n;  /* number of such requests */
static _Atomic unsigned history_n;  /* number of other requests about it */
static _Atomic unsigned requests;   /* number of requests */
static _Atomic unsigned of_agree_n; /* requests about messages between hosts */

/* Fits s3_hook_fn. */
static void look(void *user, const struct s3_ask *ask, struct s3_fault *fault)
{
	requests++;
	of_agree_n += strstr(ask->path, "pawl-hosts") != NULL ||
		(ask->query != NULL && strstr(ask->query, "pawl-hosts") != NULL);
	if (strstr(ask->path, "checkpointHistories") != NULL) {
		stalled_n += stalls;
		history_n += !stalls;
		fault->kind = stalls ? S3_STALL : S3_FINE;
	}
	if (refuses) {
		*fault =
			(struct s3_fault){.kind = S3_ANSWER, .status = 403, .code = "AccessDenied"};
	}
}

static int start_server(void **state)
{
	server = s3_server_start();
	s3_server_setenv(server);
	return 0;
}

static int stop_server(void **state)
{
	s3_server_stop(server);
	return 0;
}

/* ---- two hosts ---- */

static void submit(struct host *host, struct persist_job *job)
{
	persist_submit(host->persist, job);
}

static void reap(struct host *host, const struct persist_job *job)
{
	struct persist_job *ended;

	WITHIN(WITHIN_LONG_S, (ended = persist_reap(host->persist)) != NULL);
	assert_ptr_equal(ended, job);
}

static void succeeds(const struct persist_job *job)
{
	if (job->result.rv != 0) {
		fail_msg("job %d: %s", (int)job->kind, job->result.err.msg);
	}
}

static void start_host(uint32_t h)
{
	struct host *host = &hosts[h];
	const struct persist_options options = {.root = ROOT,
		.job = "test",
		.first_rank = h,
		.ranks = 1,
		.remote_ranks = HOSTS - 1,
		.peers = host->peers};

	assert_int_equal(loop_open(&host->loop, NULL), 0);
	assert_int_equal(persist_start(&host->persist, host->loop, &options, NULL), 0);
	host->open = (struct persist_job){.kind = PERSIST_OPEN};
	host->begin = (struct persist_job){.kind = PERSIST_BEGIN};
	submit(host, &host->open);
	submit(host, &host->begin);
}

static void await_start(uint32_t h)
{
	reap(&hosts[h], &hosts[h].open);
	reap(&hosts[h], &hosts[h].begin);
	succeeds(&hosts[h].open);
	succeeds(&hosts[h].begin);
}

static void stop_host(uint32_t h)
{
	assert_true(persist_stop(hosts[h].persist, 60000));
	loop_close(hosts[h].loop);
	hosts[h].persist = NULL;
}

static void link_host(uint32_t h)
{
	const struct peers_options options = {.job = "test",
		.address = "127.0.0.1",
		.domain = h == 0 ? "a" : "b"};

	assert_int_equal(peers_open(&hosts[h].peers, &options, NULL), 0);
	peers_set_leader(hosts[h].peers, "127.0.0.1", peers_port(hosts[0].peers));
}

static void start_both(bool linked)
{
	const struct s3_settings settings = {.hook = look};

	s3_server_setenv(server);
	s3_server_clear(server);
	s3_server_set(server, &settings);
	refuses = false;
	stalls = false;
	stalled_n = 0;
	requests = 0;
	of_agree_n = 0;
	for (uint32_t h = 0; h < HOSTS; h++) {
		hosts[h] = (struct host){.peers = NULL};
		if (linked) {
			link_host(h);
		}
		start_host(h);
	}
	for (uint32_t h = 0; h < HOSTS; h++) {
		await_start(h);
	}
}

static int start_linked(void **state)
{
	start_both(true);
	return 0;
}

static int stop_both(void **state)
{
	for (uint32_t h = 0; h < HOSTS; h++) {
		stop_host(h);
		free(hosts[h].arena);
	}
	for (uint32_t h = 0; h < HOSTS; h++) {
		peers_close(hosts[h].peers);
	}
	s3_server_wait_idle(server);
	return 0;
}

/* Has the ranks of both hosts begin anew. */
static void begin_both(void)
{
	for (uint32_t h = 0; h < HOSTS; h++) {
		hosts[h].begin = (struct persist_job){.kind = PERSIST_BEGIN};
		submit(&hosts[h], &hosts[h].begin);
	}
	for (uint32_t h = 0; h < HOSTS; h++) {
		reap(&hosts[h], &hosts[h].begin);
		succeeds(&hosts[h].begin);
	}
}

/* ---- saves ---- */

/* Stages a file of the rank's own. */
static void stage(struct host *host, uint32_t h, uint64_t step)
{
	struct zip_plan plan;

	host->storage_bytes = FILE_B;
	assert_int_equal(zip_plan_init_raw(&plan, &host->storage_bytes, 1, NULL), 0);
	assert_int_equal(plan.size_bytes, FILE_B);
	zip_plan_deinit(&plan);
	if (host->arena == NULL) {
		host->arena = aligned_alloc(4096, ARENA_B);
		assert_non_null(host->arena);
	}
	memset(host->arena, (int)(step * 8 + h), ARENA_B);
	host->piece = (struct record_piece){0, FILE_B, crc32c(0, host->arena, FILE_B)};
	host->part = (struct record_part){.raw = true,
		.size_bytes = FILE_B,
		.hi = FILE_B,
		.storages = 1,
		.storage_bytes = &host->storage_bytes,
		.pieces_n = 1,
		.pieces = &host->piece};
	snprintf(host->part.name, sizeof(host->part.name), "state");
	host->record = (struct record){.step = step,
		.rank = h,
		.world = HOSTS,
		.parts_n = 1,
		.parts = &host->part};
	host->rank = (struct persist_rank){&host->record, host->arena};
}

static void save_both(uint64_t seq, uint64_t step)
{
	for (uint32_t h = 0; h < HOSTS; h++) {
		struct host *host = &hosts[h];

		stage(host, h, step);
		host->row = (struct history_row){.step = step, .size_bytes = FILE_B};
		host->save = (struct persist_job){.kind = PERSIST_SAVE,
			.save = {.seq = seq,
				.step = step,
				.since_ns = INT64_MAX,
				.world = 1,
				.first_rank = h,
				.remote_ranks = HOSTS - 1,
				.ranks = &host->rank,
				.row = &host->row}};
		tag_of_step(host->save.tag, sizeof(host->save.tag), step);
		memcpy(host->row.tag, host->save.tag, sizeof(host->row.tag));
		submit(host, &host->save);
	}
	for (uint32_t h = 0; h < HOSTS; h++) {
		reap(&hosts[h], &hosts[h].save);
		succeeds(&hosts[h].save);
	}
	/* What follows a save asks the bucket, too. */
	WITHIN(WITHIN_LONG_S, persist_idle(hosts[0].persist));
}

static bool has_tag(uint64_t step)
{
	char tag[CKPT_TAG_MAX];
	struct manifest manifest;
	struct tags_root *root;
	int rv;

	tag_of_step(tag, sizeof(tag), step);
	assert_int_equal(tags_root_open(ROOT, NULL, false, &root, NULL), 0);
	rv = tag_open(root, tag, &manifest, NULL);
	if (rv == 0) {
		manifest_deinit(&manifest);
	}
	tags_root_close(root);
	return rv == 0;
}

static void messages_are_not_in_the_bucket(void **state)
{
	for (int linked = 0; linked < 2; linked++) {
		start_both(linked);
		save_both(1, 10);
		save_both(2, 20);
		assert_true(has_tag(10) && has_tag(20));
		assert_true((of_agree_n == 0) == (linked == 1));
		stop_both(NULL);
	}
}

/* ---- the run, for the loop ---- */

static void the_loop_gets_the_hosts_of_each_run(void **state)
{
	static struct peer_map maps[HOSTS];
	uint64_t run;

	for (uint32_t h = 0; h < HOSTS; h++) {
		assert_false(persist_take_map(hosts[h].persist, &maps[h]));
		hosts[h].enter = (struct persist_job){.kind = PERSIST_ENTER};
		submit(&hosts[h], &hosts[h].enter);
	}
	for (uint32_t h = 0; h < HOSTS; h++) {
		reap(&hosts[h], &hosts[h].enter);
		succeeds(&hosts[h].enter);
		assert_true(persist_take_map(hosts[h].persist, &maps[h]));
		assert_false(persist_take_map(hosts[h].persist, &maps[h]));
		assert_true(maps[h].run != 0 && maps[h].run == maps[0].run);
		assert_int_equal(maps[h].own, h);
		assert_int_equal(maps[h].n, HOSTS);
		assert_string_equal(maps[h].hosts[1].address, peers_address(hosts[1].peers));
		assert_string_equal(maps[h].hosts[1].domain, "b");
	}
	run = maps[0].run;
	begin_both();
	for (uint32_t h = 0; h < HOSTS; h++) {
		assert_true(persist_take_map(hosts[h].persist, &maps[h]));
		assert_int_equal(maps[h].run, 0);
	}
	save_both(1, 10);
	assert_true(persist_take_map(hosts[1].persist, &maps[1]));
	assert_true(maps[1].run != 0 && maps[1].run != run);
}

/* Rank 0's host begins anew while another one, which did something in the run, works on. */
static void who_took_part_must_begin_anew(void **state)
{
	for (int took_part = 0; took_part < 2; took_part++) {
		begin_both();
		for (uint32_t h = 0; h < HOSTS; h++) {
			hosts[h].enter = (struct persist_job){.kind = PERSIST_ENTER};
			if (h == 0 || took_part) {
				submit(&hosts[h], &hosts[h].enter);
			}
		}
		for (uint32_t h = 0; h < HOSTS; h++) {
			if (h == 0 || took_part) {
				reap(&hosts[h], &hosts[h].enter);
				succeeds(&hosts[h].enter);
			}
		}
		hosts[0].begin = (struct persist_job){.kind = PERSIST_BEGIN};
		submit(&hosts[0], &hosts[0].begin);
		reap(&hosts[0], &hosts[0].begin);
		if (took_part) {
			submit(&hosts[1], &hosts[1].enter);
			reap(&hosts[1], &hosts[1].enter);
			assert_int_equal(hosts[1].enter.result.rv, PAWL_EPEER);
		}
	}
}

/* ---- restores ---- */

static struct peer_part held_part(uint64_t step, uint32_t rank)
{
	struct peer_part part = {.save = {.run = 5, .number = step},
		.step = step,
		.world = HOSTS,
		.first_rank = rank,
		.ranks = 1};

	snprintf(part.tag, sizeof(part.tag), "held%llu", (unsigned long long)step);
	return part;
}

/* Has both hosts ask for a checkpoint; the first holds both parts of the save of step held, if
 * that is not 0. Plans are to be freed by free_plans. */
static void find_both(uint64_t held, uint64_t asked)
{
	static struct peer_part parts[HOSTS];

	for (uint32_t h = 0; h < HOSTS; h++) {
		parts[h] = held_part(held, h);
	}
	for (uint32_t h = 0; h < HOSTS; h++) {
		hosts[h].find = (struct persist_job){.kind = PERSIST_RESOLVE,
			.resolve = {.has_step = asked != 0,
				.step = asked,
				.held = parts,
				.held_n = held != 0 && h == 0 ? HOSTS : 0}};
		submit(&hosts[h], &hosts[h].find);
	}
	for (uint32_t h = 0; h < HOSTS; h++) {
		reap(&hosts[h], &hosts[h].find);
	}
}

static void free_plans(void)
{
	for (uint32_t h = 0; h < HOSTS; h++) {
		free(hosts[h].find.result.resolve.plan);
	}
}

/* Has both hosts vote on what find_both has offered. */
static void vote_both(bool memory, uint8_t zero, uint8_t one, uint8_t verdict)
{
	for (uint32_t h = 0; h < HOSTS; h++) {
		hosts[h].vote = (struct persist_job){.kind = PERSIST_VOTE,
			.vote = {.verdict = h == 0 ? zero : one, .memory = memory}};
		snprintf(hosts[h].vote.vote.why, PERSIST_WHY_MAX, "rank %u's", h);
		memcpy(hosts[h].vote.tag, hosts[h].find.result.resolve.tag, CKPT_TAG_MAX);
		submit(&hosts[h], &hosts[h].vote);
	}
	for (uint32_t h = 0; h < HOSTS; h++) {
		reap(&hosts[h], &hosts[h].vote);
		succeeds(&hosts[h].vote);
		assert_int_equal(hosts[h].vote.result.vote.verdict, verdict);
	}
}

/* Expects both hosts to be offered this step, from memory or from the store. */
static void offered(uint64_t step, bool memory)
{
	for (uint32_t h = 0; h < HOSTS; h++) {
		const struct persist_found *found = &hosts[h].find.result.resolve;

		succeeds(&hosts[h].find);
		assert_true(found->found);
		assert_int_equal(found->step, step);
		assert_int_equal(found->memory, memory);
		assert_true((found->plan != NULL) == memory);
		if (found->plan != NULL) {
			assert_string_equal(found->plan->tag, found->tag);
			assert_int_equal(found->plan->step, step);
			assert_int_equal(found->plan->save.number, step);
			assert_int_equal(found->plan->sources_n, HOSTS);
			assert_int_equal(found->plan->sources[0].host, 0);
		}
	}
	free_plans();
}

/* Returns the number of alerts of rank 0's host that contain a text. */
static unsigned count_alerts(const char *text)
{
	struct alert alert;
	unsigned n = 0;

	while (alerts_take(persist_alerts(hosts[0].persist), &alert)) {
		n += strstr(alert.text, text) != NULL;
	}
	return n;
}

static void the_higher_step_is_offered(void **state)
{
	unsigned before;

	save_both(1, 10);
	begin_both();
	before = requests;
	find_both(20, 0);
	assert_int_equal(requests, before); /* the store is known to have no such step */
	offered(20, true);
	vote_both(true, VERDICT_GO, VERDICT_GO, VERDICT_GO);
	begin_both();
	before = requests;
	find_both(10, 0); /* as high as in the store */
	assert_int_equal(requests, before);
	offered(10, true);
	begin_both();
	find_both(9, 0);
	offered(10, false);
	begin_both();
	find_both(0, 0);
	offered(10, false);
	assert_int_equal(count_alerts("memory of the hosts"), 0);
}

/* A leader that starts anew knows what the store has. */
static void what_the_store_has_is_known_after_a_start(void **state)
{
	unsigned before;

	save_both(1, 10);
	stop_host(0);
	start_host(0);
	await_start(0);
	begin_both();
	before = requests;
	find_both(20, 0);
	assert_int_equal(requests, before);
	offered(20, true);
	begin_both();
	find_both(5, 0);
	offered(10, false);
}

/* The newest tag of the store is gone: the leader asks, and finds out. */
static void a_store_that_lost_its_newest_is_asked(void **state)
{
	struct persist_job gone = {.kind = PERSIST_REMOVE};

	save_both(1, 10);
	save_both(2, 30);
	tag_of_step(gone.tag, sizeof(gone.tag), 30);
	submit(&hosts[0], &gone);
	reap(&hosts[0], &gone);
	succeeds(&gone);
	begin_both();
	find_both(20, 0);
	offered(20, true);
	begin_both();
	find_both(5, 0);
	offered(10, false);
}

static void a_step_that_is_asked_for_is_found_in_either(void **state)
{
	unsigned before;

	save_both(1, 10);
	save_both(2, 30);
	begin_both();
	before = requests;
	find_both(20, 20);
	assert_int_equal(requests, before);
	offered(20, true);
	begin_both();
	find_both(20, 10);
	offered(10, false);
	begin_both();
	find_both(20, 11);
	succeeds(&hosts[1].find);
	assert_false(hosts[1].find.result.resolve.found || hosts[1].find.result.resolve.memory);
	assert_null(hosts[1].find.result.resolve.plan);
}

static void memory_is_taken_while_the_store_cannot_be_asked(void **state)
{
	save_both(1, 10);
	begin_both();
	refuses = true;
	find_both(9, 0);
	offered(9, true);
	assert_int_equal(count_alerts("step 9 is restored from the memory of the hosts"), 1);
	begin_both();
	find_both(0, 0);
	assert_int_not_equal(hosts[0].find.result.rv, 0);
	assert_int_equal(hosts[1].find.result.rv, hosts[0].find.result.rv);
	assert_null(hosts[0].find.result.resolve.plan);
	refuses = false;
}

/* What is damaged in memory says nothing of a tag of that name in the store. */
static void damage_in_memory_puts_no_tag_aside(void **state)
{
	struct persist_found *found = &hosts[0].find.result.resolve;

	save_both(1, 10);
	begin_both();
	find_both(10, 0);
	offered(10, true);
	tag_of_step(found->tag, sizeof(found->tag), 10);
	vote_both(true, VERDICT_GO, VERDICT_RETRY, VERDICT_RETRY);
	assert_string_equal(hosts[0].vote.result.vote.why, "rank 1's");
	assert_true(has_tag(10));
	find_both(0, 0); /* in the next round the parts are gone */
	offered(10, false);
	vote_both(false, VERDICT_GO, VERDICT_RETRY, VERDICT_RETRY);
	assert_false(has_tag(10));
}

/* A host holds more than fits a message: what has the highest steps is offered. */
static void of_many_parts_the_highest_are_offered(void **state)
{
	static struct peer_part parts[200];

	for (uint32_t i = 0; i < 200; i++) { /* steps 1 to 100 in no order */
		parts[i] = held_part(i / 2 * 37 % 100 + 1, i % 2);
	}
	for (uint32_t h = 0; h < HOSTS; h++) {
		hosts[h].find = (struct persist_job){.kind = PERSIST_RESOLVE,
			.resolve = {.held = parts, .held_n = h == 1 ? 200 : 0}};
		submit(&hosts[h], &hosts[h].find);
	}
	for (uint32_t h = 0; h < HOSTS; h++) {
		reap(&hosts[h], &hosts[h].find);
		succeeds(&hosts[h].find);
		assert_int_equal(hosts[h].find.result.resolve.step, 100);
		assert_int_equal(hosts[h].find.result.resolve.plan->sources[0].host, 1);
	}
	free_plans();
}

/* ---- hosts that come and go ---- */

/* A host is replaced while the bucket answers nothing: the new one joins, and all restore from
 * memory. */
static void a_host_joins_while_the_bucket_refuses_all(void **state)
{
	save_both(1, 10);
	refuses = true;
	stop_host(1);
	peers_close(hosts[1].peers);
	link_host(1);
	start_host(1);
	await_start(1);
	hosts[0].begin = (struct persist_job){.kind = PERSIST_BEGIN};
	submit(&hosts[0], &hosts[0].begin);
	reap(&hosts[0], &hosts[0].begin);
	find_both(20, 0);
	offered(20, true);
	vote_both(true, VERDICT_GO, VERDICT_GO, VERDICT_GO);
	refuses = false;
	save_both(2, 30);
	assert_true(has_tag(30));
}

/* A host waits for a leader that is gone, and its agent leaves: that is not held up. */
static void who_waits_for_a_lost_leader_can_leave(void **state)
{
	stop_host(0);
	peers_close(hosts[0].peers);
	hosts[0].peers = NULL;
	hosts[1].enter = (struct persist_job){.kind = PERSIST_ENTER};
	submit(&hosts[1], &hosts[1].enter);
	within_pace(0.1);
	stop_host(1);
	link_host(0);
	peers_set_leader(hosts[1].peers, "127.0.0.1", peers_port(hosts[0].peers));
	start_host(0);
	start_host(1);
	await_start(0);
	await_start(1);
	save_both(1, 10);
}

/* Rows of the history are due when a restore comes, and the bucket does not answer. */
static void a_restore_does_not_wait_for_rows(void **state)
{
	struct history_row row = {.step = 11, .level = HISTORY_COMMITTED};

	save_both(1, 10);
	begin_both();
	stalls = true;
	persist_queue_row(hosts[0].persist, &row);
	WITHIN(WITHIN_LONG_S, stalled_n > 0);
	find_both(20, 0);
	offered(20, true);
	assert_int_equal(count_alerts("cannot be written"), 0);
	history_n = 0;
	stalls = false;
	WITHIN(WITHIN_LONG_S, history_n > 0); /* the rows are written later */
}

/* The agent leaves before it has taken a plan: under ASan, nothing leaks. */
static void a_plan_that_nobody_takes_is_freed(void **state)
{
	for (uint32_t h = 0; h < HOSTS; h++) {
		struct persist_job *find = calloc(1, sizeof(*find));
		struct peer_part *parts = calloc(HOSTS, sizeof(*parts));

		assert_true(find && parts);
		parts[0] = held_part(7, 0);
		parts[1] = held_part(7, 1);
		find->kind = PERSIST_RESOLVE;
		find->allocated = true;
		find->resolve.held = parts;
		find->resolve.held_n = HOSTS;
		submit(&hosts[h], find);
	}
	within_pace(0.3);
}

int main(void)
{
	const struct sigaction ignore = {.sa_handler = SIG_IGN};
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(messages_are_not_in_the_bucket),
		cmocka_unit_test_setup_teardown(the_loop_gets_the_hosts_of_each_run, start_linked,
			stop_both),
		cmocka_unit_test_setup_teardown(who_took_part_must_begin_anew, start_linked,
			stop_both),
		cmocka_unit_test_setup_teardown(the_higher_step_is_offered, start_linked,
			stop_both),
		cmocka_unit_test_setup_teardown(what_the_store_has_is_known_after_a_start,
			start_linked, stop_both),
		cmocka_unit_test_setup_teardown(a_store_that_lost_its_newest_is_asked, start_linked,
			stop_both),
		cmocka_unit_test_setup_teardown(a_step_that_is_asked_for_is_found_in_either,
			start_linked, stop_both),
		cmocka_unit_test_setup_teardown(memory_is_taken_while_the_store_cannot_be_asked,
			start_linked, stop_both),
		cmocka_unit_test_setup_teardown(damage_in_memory_puts_no_tag_aside, start_linked,
			stop_both),
		cmocka_unit_test_setup_teardown(of_many_parts_the_highest_are_offered, start_linked,
			stop_both),
		cmocka_unit_test_setup_teardown(a_host_joins_while_the_bucket_refuses_all,
			start_linked, stop_both),
		cmocka_unit_test_setup_teardown(who_waits_for_a_lost_leader_can_leave, start_linked,
			stop_both),
		cmocka_unit_test_setup_teardown(a_restore_does_not_wait_for_rows, start_linked,
			stop_both),
		cmocka_unit_test_setup_teardown(a_plan_that_nobody_takes_is_freed, start_linked,
			stop_both),
	};

	test_times("bucket_stall=1000");   /* a request that stalls is not given up by itself */
	sigaction(SIGPIPE, &ignore, NULL); /* as io/tls.h asks for */
	return cmocka_run_group_tests(tests, start_server, stop_server);
}
