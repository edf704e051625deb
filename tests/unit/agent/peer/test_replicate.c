/* Hosts that send their parts of saves to each other: what becomes global, what is withdrawn in the
 * middle, and what fails. */
#include "agent/peer/parity.h"
#include "agent/peer/replicate.h"
#include "agent/peer/rounds.h"
#include "base/fault.h"
#include "each_fault.h"
#include "peer_hosts.h"
#include "seed.h"
#include "times.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define RUN   7u
#define SMALL 300000u /* bytes of a partition */
#define SLOTS 3u
#define LARGE 3000000u

/* Hosts, each with a replicator. */
struct job {
	struct host hosts[HOSTS_MAX];
	struct replicator *replicators[HOSTS_MAX];
	struct peer_map map;
	/* What is offered: by host and slot. */
	struct part_sample *offered[HOSTS_MAX][SLOTS];
};

/* ---- calls that are stopped ---- */

static struct gate gate = GATE_INIT;

ssize_t __real_pread64(int fd, void *bytes, size_t len_bytes, off_t off);
ssize_t __wrap_pread64(int fd, void *bytes, size_t len_bytes, off_t off);

ssize_t __wrap_pread64(int fd, void *bytes, size_t len_bytes, off_t off)
{
	gate_pass(&gate, fd);
	return __real_pread64(fd, bytes, len_bytes, off);
}

/* ---- jobs ---- */

static void set_map(struct job *job, uint32_t host)
{
	job->map.own = host;
	OK(replicator_set_map(job->replicators[host], &job->map, &err));
}

static void set_maps(struct job *job)
{
	for (uint32_t i = job->map.n; i-- > 0;) { /* the leader is the last */
		set_map(job, i);
	}
}

static struct job *job_start(uint32_t hosts, uint32_t replicas, bool parity)
{
	struct job *job = calloc(1, sizeof(*job));

	assert_non_null(job);
	hosts_open(job->hosts, hosts, RUN, &job->map);
	for (uint32_t i = 0; i < hosts; i++) {
		job->map.hosts[i].replicas = replicas;
		job->map.hosts[i].parity = parity;
		OK(replicator_start(&job->replicators[i], job->hosts[i].peers, job->hosts[i].loop,
			ROOT, &err));
	}
	set_maps(job);
	return job;
}

static struct job *job_open(uint32_t hosts, uint32_t replicas)
{
	return job_start(hosts, replicas, false);
}

static void close_host(struct job *job, uint32_t host)
{
	replicator_stop(job->replicators[host]);
	job->replicators[host] = NULL;
	if (job->hosts[host].peers) {
		host_close(&job->hosts[host]);
	}
}

static void job_close(struct job *job)
{
	for (uint32_t i = HOSTS_MAX; i-- > 0;) {
		replicator_stop(job->replicators[i]);
		job->replicators[i] = NULL;
	}
	for (uint32_t i = 0; i < HOSTS_MAX; i++) {
		close_host(job, i);
		for (uint32_t slot = 0; slot < SLOTS; slot++) {
			sample_drop(job->offered[i][slot]);
		}
	}
	free(job);
}

static void withdraw(struct job *job, uint32_t host, uint32_t slot)
{
	replicator_withdraw(job->replicators[host], (int)slot);
	sample_drop(job->offered[host][slot]);
	job->offered[host][slot] = NULL;
}

static struct peer_save save_of(const struct job *job, uint64_t number)
{
	return (struct peer_save){.run = job->map.run, .number = number};
}

static int try_offer(struct job *job, uint32_t host, uint32_t slot, const struct part_sample *s)
{
	struct replicate_rank ranks[RANKS];

	for (uint32_t i = 0; i < RANKS; i++) {
		ranks[i] = (struct replicate_rank){.blob = s->ranks[i].blob.bytes,
			.blob_bytes = (uint32_t)s->ranks[i].blob.len_bytes,
			.fd = s->ranks[i].arena.fd,
			.arena_bytes = s->ranks[i].arena.size_bytes};
	}
	return replicator_offer(job->replicators[host], (int)slot, &s->info, ranks, &err);
}

/* Commits a save at a host, in the slot of its number. */
static struct part_sample *offer(struct job *job, uint32_t host, uint64_t number,
	uint64_t size_bytes)
{
	struct peer_save save = save_of(job, number);
	uint32_t slot = (uint32_t)(number % SLOTS);
	struct part_sample *s;

	withdraw(job, host, slot);
	s = sample_part(&save, host, job->map.n, size_bytes, number % 2 == 0);
	job->offered[host][slot] = s;
	OK(try_offer(job, host, slot, s));
	return s;
}

static void offer_all(struct job *job, uint64_t number)
{
	for (uint32_t i = 0; i < job->map.n; i++) {
		offer(job, i, number, SMALL);
	}
}

static struct replicate_status status_of(struct job *job, uint32_t host)
{
	struct replicate_status status;

	replicator_status(job->replicators[host], &status);
	return status;
}

static bool is_global(struct job *job, uint64_t number)
{
	struct peer_save save = save_of(job, number);

	for (uint32_t i = 0; i < job->map.n; i++) {
		struct replicate_status status = status_of(job, i);

		if (!peer_save_is(&status.global, &save)) {
			return false;
		}
	}
	return true;
}

static bool is_announced(struct job *job, uint64_t number)
{
	struct peer_save announced = {0};
	struct peer_save global = {0};

	OK(rounds_next(peers_rounds(job->hosts[0].peers), ROOT, &announced, &global, 1, &err));
	return announced.run == job->map.run && announced.number >= number;
}

static bool holds(struct job *job, uint32_t host, const struct peer_save *save, uint32_t rank)
{
	struct held_part *part = held_find(peers_held(job->hosts[host].peers), ROOT, save, rank);

	held_release(part);
	return part != NULL;
}

/* Expects that a host holds the part as it was offered. */
static void expect_held(struct job *job, uint32_t host, const struct part_sample *s)
{
	struct held_part *part = held_find(peers_held(job->hosts[host].peers), ROOT, &s->info.save,
		s->info.first_rank);
	uint8_t *bytes = malloc(CKPT_CHUNK);
	struct image_at at = {0};
	struct image_piece piece;

	assert_non_null(part);
	assert_non_null(bytes);
	assert_memory_equal(held_part_info(part)->tag, s->info.tag, sizeof(s->info.tag));
	assert_int_equal(held_part_image(part)->size_bytes, s->image.size_bytes);
	while (image_next(&s->image, &at, &piece)) {
		OK(held_part_read(part, piece.off, bytes, piece.len_bytes, &err));
		assert_memory_equal(bytes, sample_bytes(s, &piece), piece.len_bytes);
	}
	for (uint32_t i = 0; i < RANKS; i++) {
		const struct wire_out *sent = &s->ranks[i].blob;
		uint64_t arena_bytes;
		const uint8_t *blob;
		uint32_t n;

		held_part_record(part, s->info.first_rank + i, &blob, &n, &arena_bytes);
		assert_int_equal(n, sent->len_bytes);
		assert_int_equal(arena_bytes, s->ranks[i].arena.size_bytes);
		if (n > 0) {
			assert_memory_equal(blob, sent->bytes, n);
		}
	}
	held_release(part);
	free(bytes);
}

/* Expects that all hosts hold the replicas of a save that is global. */
static void expect_replicas(struct job *job, uint64_t number, uint32_t replicas)
{
	for (uint32_t i = 0; i < job->map.n; i++) {
		uint32_t peers[PLACE_REPLICAS_MAX];
		uint32_t n = place_replicas(&job->map, i, replicas, peers);

		assert_true(n > 0);
		for (uint32_t p = 0; p < n; p++) {
			expect_held(job, peers[p], job->offered[i][number % SLOTS]);
		}
	}
}

/* ---- saves that become global ---- */

static void a_save_becomes_global_on_all_hosts(void **state)
{
	for (uint32_t replicas = 1; replicas <= 2; replicas++) {
		struct job *job = job_open(2 + replicas, replicas);

		for (uint64_t number = 1; number <= 4; number++) {
			offer_all(job, number);
			WITHIN(WITHIN_LONG_S, is_global(job, number));
			expect_replicas(job, number, replicas);
		}
		for (uint32_t i = 0; i < job->map.n; i++) {
			struct replicate_status status = status_of(job, i);

			assert_int_equal(status.failures, 0);
			assert_string_equal(status.why, "");
			assert_true(status.sent_bytes > 0);
		}
		job_close(job);
	}
}

/* ---- sums ---- */

/* Expects that a sum is what its group's parts add up to. */
static void expect_sum(struct job *job, uint64_t number, const struct place_group *group,
	uint32_t row)
{
	struct peer_save save = save_of(job, number);
	struct peer_parity parity = group->parity;
	struct held_part *part;
	struct parity code;
	uint8_t *expected;
	uint8_t *sum;
	uint64_t size_bytes;

	parity.row = row;
	part = held_find_sum(peers_held(job->hosts[group->holders[row]].peers), ROOT, &save,
		&parity, parity.group);
	assert_non_null(part);
	size_bytes = held_part_size(part);
	expected = calloc(1, size_bytes);
	sum = malloc(size_bytes);
	assert_true(expected && sum);
	OK(parity_init(&code, parity.k, parity.m, &err));
	for (uint32_t i = 0; i < job->map.n; i++) {
		const struct part_sample *s = job->offered[i][number % SLOTS];
		struct image_at at = {0};
		struct place_group other;
		struct image_piece piece;

		assert_true(place_parity(&job->map, i, parity.m, &other));
		while (other.parity.group == parity.group && image_next(&s->image, &at, &piece)) {
			parity_add_row(&code, row, other.parity.index, sample_bytes(s, &piece),
				piece.len_bytes, expected + piece.off);
		}
	}
	OK(held_part_read(part, 0, sum, size_bytes, &err));
	assert_memory_equal(sum, expected, size_bytes);
	parity_deinit(&code);
	free(expected);
	free(sum);
	held_release(part);
}

static void expect_sums(struct job *job, uint64_t number, uint32_t m)
{
	for (uint32_t i = 0; i < job->map.n; i++) {
		struct place_group group;

		assert_true(place_parity(&job->map, i, m, &group));
		for (uint32_t row = 0; row < m; row++) {
			expect_sum(job, number, &group, row);
		}
	}
}

static void sums_become_global_on_all_hosts(void **state)
{
	for (uint32_t m = 1; m <= 3; m++) {
		struct job *job = job_start(4, m, true);

		for (uint64_t number = 1; number <= 4; number++) {
			struct peer_save save = save_of(job, number);

			offer_all(job, number);
			WITHIN(WITHIN_LONG_S, is_global(job, number));
			expect_sums(job, number, m);
			for (uint32_t i = 0; i < 4; i++) { /* nobody has a part as it is */
				assert_false(holds(job, i, &save, 0));
			}
		}
		job_close(job);
	}
}

/* With too few hosts, replicas are held as ever. */
static void few_hosts_keep_replicas(void **state)
{
	struct job *job = job_start(3, 1, true);

	offer_all(job, 1);
	WITHIN(WITHIN_LONG_S, is_global(job, 1));
	expect_replicas(job, 1, 1);
	job_close(job);
}

/* A part that is withdrawn after some of it was added: the next save is summed up anew. */
static void a_torn_part_does_not_spoil_the_next_sum(void **state)
{
	struct job *job = job_start(4, 1, true);
	struct part_sample *s;

	s = offer(job, 1, 1, LARGE);
	gate_arm(&gate, s->ranks[0].arena.fd, 20);
	offer(job, 0, 1, SMALL);
	offer(job, 2, 1, SMALL);
	offer(job, 3, 1, SMALL);
	WITHIN(WITHIN_LONG_S, gate_reached(&gate));
	replicator_withdraw(job->replicators[1], 1);
	gate_release(&gate);
	offer_all(job, 2);
	WITHIN(WITHIN_LONG_S, is_global(job, 2));
	expect_sums(job, 2, 1);
	job_close(job);
}

/* Any call at a holder fails once: the part is sent again, and is in the sum once. */
static void a_part_that_failed_is_sent_again(void **state)
{
	struct job *job = job_start(4, 2, true);

	for (uint64_t nth = 1; nth <= 24; nth++) {
		fault_arm(nth % 2 == 0 ? "held." : "replicate.read", nth / 2 + 1, ENOMEM, false);
		offer_all(job, nth);
		WITHIN(WITHIN_LONG_S, is_global(job, nth));
		fault_disarm();
		expect_sums(job, nth, 2);
	}
	job_close(job);
}

static void note_wake(void *user)
{
	*(bool *)user = true;
}

static void stop_loop(struct loop_timer *timer)
{
	loop_stop(timer->user);
}

static bool was_woken(struct loop *loop)
{
	struct loop_timer timer = {.fired = stop_loop, .user = loop};
	bool woken = false;

	loop_on_wake(loop, note_wake, &woken);
	loop_timer_start(loop, &timer, clock_mono_ns() + 20 * NS_PER_MS);
	OK(loop_run(loop, &err));
	return woken;
}

static void the_loop_is_woken(void **state)
{
	struct job *job = job_open(2, 1);

	offer_all(job, 1);
	WITHIN(WITHIN_LONG_S, was_woken(job->hosts[0].loop));
	WITHIN(WITHIN_LONG_S, was_woken(job->hosts[1].loop));
	job_close(job);
}

/* A leader that is ahead announces a save that another host has not committed yet. */
static void a_save_waits_for_its_commit_on_all_hosts(void **state)
{
	struct job *job = job_open(2, 1);

	offer(job, 0, 1, SMALL);
	WITHIN(WITHIN_LONG_S, is_announced(job, 1));
	within_pace(0.02);
	offer(job, 1, 1, SMALL);
	WITHIN(WITHIN_LONG_S, is_global(job, 1));
	expect_replicas(job, 1, 1);
	job_close(job);
}

static void runs_follow_each_other(void **state)
{
	struct job *job = job_open(3, 1);

	offer_all(job, 9);
	WITHIN(WITHIN_LONG_S, is_global(job, 9));
	for (uint32_t i = 0; i < 3; i++) {
		OK(replicator_set_map(job->replicators[i], NULL, &err));
		assert_int_equal(status_of(job, i).global.run, 0);
	}
	job->map.run++;
	set_maps(job);
	offer_all(job, 1);
	WITHIN(WITHIN_LONG_S, is_global(job, 1));
	expect_replicas(job, 1, 1);
	job_close(job);
}

/* Save 2 was global when the ranks began anew, and they went on from it. Rank 0's host knows; the
 * others learn it, and drop save 1 rather than save 2. */
static void a_new_run_keeps_what_was_global(void **state)
{
	struct job *job = job_open(3, 1);
	struct peer_save first = save_of(job, 1);
	struct peer_save second = save_of(job, 2);

	offer_all(job, 1);
	WITHIN(WITHIN_LONG_S, is_global(job, 1));
	offer_all(job, 2);
	WITHIN(WITHIN_LONG_S, is_global(job, 2));
	job->map.run++;
	set_maps(job);
	replicator_set_before(job->replicators[0], &second);
	for (uint64_t number = 1; number <= 2; number++) {
		offer_all(job, number);
		WITHIN(WITHIN_LONG_S, is_global(job, number));
		for (uint32_t i = 0; i < 3; i++) {
			uint32_t peers[PLACE_REPLICAS_MAX];

			place_replicas(&job->map, i, 1, peers);
			assert_false(holds(job, peers[0], &first, i * RANKS));
			assert_int_equal(holds(job, peers[0], &second, i * RANKS), number == 1);
		}
	}
	job_close(job);
}

/* ---- saves that make way ---- */

static void no_byte_of_a_withdrawn_slot_is_sent(void **state)
{
	struct job *job = job_open(2, 1);
	struct part_sample *s;
	struct peer_save save = save_of(job, 1);
	struct arena *arena;

	s = offer(job, 1, 1, LARGE);
	arena = &s->ranks[0].arena;
	gate_arm(&gate, arena->fd, 20);
	offer(job, 0, 1, SMALL);
	WITHIN(WITHIN_LONG_S, gate_reached(&gate));
	replicator_withdraw(job->replicators[1], 1);
	memset(arena->map, 0x55, arena->size_bytes);
	gate_release(&gate);
	offer_all(job, 2);
	WITHIN(WITHIN_LONG_S, is_global(job, 2));
	assert_false(holds(job, 0, &save, RANKS));
	expect_replicas(job, 2, 1);
	/* The block under way was dropped, and nothing after it was read: the whole has about 87
	 * pieces, a block about 30. */
	assert_in_range(gate_seen(&gate), 21, 60);
	/* Had the bytes been sent, the other host would have refused them as damaged. */
	assert_int_equal(status_of(job, 0).failures, 0);
	assert_int_equal(status_of(job, 1).failures, 0);
	job_close(job);
}

static void a_save_that_does_not_come_is_given_up(void **state)
{
	struct job *job = job_open(3, 1);

	offer(job, 0, 1, SMALL); /* the others do not commit it in time */
	offer(job, 1, 1, SMALL);
	WITHIN(WITHIN_LONG_S, is_announced(job, 1));
	within_pace(0.1);
	offer(job, 0, 2, SMALL);
	offer(job, 1, 3, SMALL); /* save 2 was passed over here */
	WITHIN(WITHIN_LONG_S, is_announced(job, 2));
	offer(job, 0, 3, SMALL);
	offer(job, 2, 3, SMALL);
	WITHIN(WITHIN_LONG_S, is_global(job, 3));
	expect_replicas(job, 3, 1);
	job_close(job);
}

static void saves_that_come_too_fast_are_reported(void **state)
{
	struct job *job = job_open(2, 1);

	offer(job, 1, 100, SMALL);
	for (uint64_t number = 1; number <= 5; number++) {
		assert_int_equal(status_of(job, 0).failures, 0);
		offer(job, 0, number, SMALL);
		WITHIN(WITHIN_LONG_S, is_announced(job, number));
	}
	WITHIN(WITHIN_LONG_S, strstr(status_of(job, 0).why, "saves come faster") != NULL);
	WITHIN(WITHIN_LONG_S, strstr(status_of(job, 1).why, "saves come faster") != NULL);
	offer(job, 0, 100, SMALL);
	WITHIN(WITHIN_LONG_S, is_global(job, 100));
	assert_string_equal(status_of(job, 0).why, "");
	WITHIN(WITHIN_LONG_S, status_of(job, 1).why[0] == '\0');
	job_close(job);
}

/* ---- failures ---- */

static void what_failed_is_tried_again(void **state)
{
	struct job *job = job_open(3, 1);
	uint64_t sent_bytes;

	fault_arm("held.create", 1, ENOMEM, false);
	offer_all(job, 1);
	WITHIN(WITHIN_LONG_S, is_global(job, 1));
	fault_disarm();
	expect_replicas(job, 1, 1);
	for (uint32_t i = 0; i < 3; i++) {
		sent_bytes = job->offered[i][1]->image.size_bytes;
		assert_int_equal(status_of(job, i).sent_bytes, sent_bytes); /* nothing twice */
	}
	assert_int_equal(status_of(job, 0).failures, 1);
	assert_string_equal(status_of(job, 0).why, "");
	job_close(job);
}

static void a_host_without_memory_is_named(void **state)
{
	struct job *job = job_open(2, 1);

	fault_arm("held.create", 1, ENOMEM, true);
	offer_all(job, 1);
	WITHIN(WITHIN_LONG_S, status_of(job, 0).failures > 1);
	assert_non_null(strstr(status_of(job, 0).why, "'s host: "));
	assert_non_null(strstr(status_of(job, 0).why, "replica: Cannot allocate memory"));
	fault_disarm();
	WITHIN(WITHIN_LONG_S, is_global(job, 1));
	assert_string_equal(status_of(job, 0).why, "");
	job_close(job);
}

static void bytes_that_cannot_be_read_fail_the_save(void **state)
{
	struct job *job = job_open(2, 1);

	fault_arm("replicate.read", 30, EIO, false);
	offer_all(job, 1);
	WITHIN(WITHIN_LONG_S, is_global(job, 1));
	fault_disarm();
	expect_replicas(job, 1, 1);
	assert_int_equal(status_of(job, 0).failures, 1);
	job_close(job);
}

static void a_peer_that_dies_is_named(void **state)
{
	struct job *job = job_open(3, 1);
	struct part_sample *s;
	uint32_t peers[PLACE_REPLICAS_MAX];
	uint32_t dies;
	char name[PEER_ADDRESS_MAX];

	assert_int_equal(place_replicas(&job->map, 0, 1, peers), 1);
	dies = peers[0];
	snprintf(name, sizeof(name), "%s", job->map.hosts[dies].address);
	s = offer(job, 0, 1, LARGE);
	gate_arm(&gate, s->ranks[0].arena.fd, 20);
	WITHIN(WITHIN_LONG_S, gate_reached(&gate));
	close_host(job, dies);
	gate_release(&gate);
	WITHIN(WITHIN_LONG_S, status_of(job, 0).failures > 0);
	assert_non_null(strstr(status_of(job, 0).why, name));

	/* The run ends, and goes on with the others. */
	job->map.run++;
	job->map.n = 2;
	if (dies == 1) {
		job->map.hosts[1] = job->map.hosts[2];
		job->hosts[1] = job->hosts[2];
		job->hosts[2] = (struct host){0};
		job->replicators[1] = job->replicators[2];
		job->replicators[2] = NULL;
	}
	job->map.hosts[1].first_rank = RANKS;
	set_map(job, 0);
	set_map(job, 1);
	offer_all(job, 1);
	WITHIN(WITHIN_LONG_S, is_global(job, 1));
	expect_replicas(job, 1, 1);
	job_close(job);
}

static void nothing_to_do_is_no_failure(void **state)
{
	struct job *job = job_open(1, 1);
	struct job *none = job_open(2, 0);

	offer_all(job, 1);
	offer_all(none, 1);
	within_quiet(0.05);
	assert_int_equal(status_of(job, 0).failures, 0);
	assert_int_equal(status_of(none, 0).failures, 0);
	assert_int_equal(status_of(none, 1).global.run, 0);
	job_close(none);
	job_close(job);
}

static void a_host_without_links_is_named(void **state)
{
	struct job *job = job_open(3, 1);

	job->map.run++;
	job->map.hosts[2].address[0] = '\0';
	set_map(job, 0);
	set_map(job, 1);
	offer(job, 0, 1, SMALL);
	offer(job, 1, 1, SMALL);
	WITHIN(WITHIN_LONG_S, status_of(job, 0).failures == 1);
	assert_non_null(strstr(status_of(job, 0).why, "rank 4's host"));
	job->map.run++;
	job->map.hosts[1].address[0] = '\0';
	set_map(job, 0);
	offer(job, 0, 1, SMALL);
	WITHIN(WITHIN_LONG_S, strstr(status_of(job, 0).why, "no other host") != NULL);
	within_quiet(0.05);
	assert_int_equal(status_of(job, 0).failures, 2);
	job_close(job);
}

/* Sums would wait for parts that never come, and rank 0's host for hosts that send nothing. */
static void hosts_that_ask_for_different_replicas_are_named(void **state)
{
	static const char *const why[] = {
		"rank 0 has replicas=1, parity=False, and rank 2 has replicas=0, parity=False:",
		"rank 0 has replicas=1, parity=False, and rank 2 has replicas=1, parity=True:",
		"rank 0 has replicas=1, parity=False, and rank 2 has replicas=2, parity=False:"};
	struct job *job = job_open(4, 1);

	for (uint32_t i = 0; i < 3; i++) {
		job->map.run++;
		job->map.hosts[1].replicas = i;
		job->map.hosts[1].parity = i == 1;
		set_maps(job);
		offer_all(job, 1);
		WITHIN(WITHIN_LONG_S, status_of(job, 0).failures == i + 1);
		assert_non_null(strstr(status_of(job, 0).why, why[i]));
		within_quiet(0.05);
		assert_false(is_announced(job, 1));
		assert_int_equal(status_of(job, 1).failures, 0);
	}
	job->map.run++;
	job->map.hosts[1].replicas = 1;
	set_maps(job);
	offer_all(job, 1);
	WITHIN(WITHIN_LONG_S, is_global(job, 1));
	job_close(job);
}

static void a_map_that_cannot_be_is_refused(void **state)
{
	struct job *job = job_open(2, 1);
	struct peer_map map = job->map;

	map.own = 2;
	FAILS(PAWL_EINVAL, replicator_set_map(job->replicators[0], &map, &err));
	map.own = 0;
	map.run = 0;
	FAILS(PAWL_EINVAL, replicator_set_map(job->replicators[0], &map, &err));
	job_close(job);
}

/* ---- the end ---- */

/* Peers, and a leader, that never answer: what waits for them ends at once all the same. */
static void what_waits_ends_at_once(void **state)
{
	struct job *job = job_open(2, 1);
	char mute[PEER_ADDRESS_MAX];
	int fd = listen_mutely(mute);

	job->map.run++;
	snprintf(job->map.hosts[1].address, PEER_ADDRESS_MAX, "%s", mute);
	peers_set_leader(job->hosts[1].peers, "127.0.0.1",
		(uint32_t)strtoul(strrchr(mute, ':') + 1, NULL, 10));
	set_map(job, 0);
	set_map(job, 1);
	offer(job, 0, 1, SMALL);
	WITHIN(WITHIN_LONG_S, is_announced(job, 1));
	within_pace(0.05);
	OK(replicator_set_map(job->replicators[0], NULL, &err));
	job_close(job);
	close(fd);
}

static void it_ends_at_any_time(void **state)
{
	for (unsigned i = 0; i < 10; i++) {
		struct job *job = job_open(2, 1);

		offer_all(job, 1);
		within_pace(0.001 * (double)rng_below(&rng, 10));
		if (i % 2 == 0) {
			OK(replicator_set_map(job->replicators[i / 2 % 2], NULL, &err));
		}
		job_close(job);
	}
}

static void each_call_may_fail(void **state)
{
	struct job *job = job_open(1, 1);
	struct part_sample *s;
	int rv;

	for (uint64_t nth = 1; each_fault(nth); nth++) {
		struct replicator *replicator;

		fault_arm("replicate.", nth, ENOMEM, false);
		rv = replicator_start(&replicator, job->hosts[0].peers, job->hosts[0].loop, ROOT,
			&err);
		fault_disarm();
		assert_true(rv == 0 || (rv == PAWL_ENOMEM && fault_reached(nth)));
		replicator_stop(rv == 0 ? replicator : NULL);
	}
	s = offer(job, 0, 1, SMALL);
	for (uint64_t nth = 1; each_fault(nth); nth++) {
		fault_arm("replicate.", nth, ENOMEM, false);
		rv = try_offer(job, 0, 2, s);
		fault_disarm();
		assert_true(rv == 0 || (rv == PAWL_ENOMEM && fault_reached(nth)));
	}
	job_close(job);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_save_becomes_global_on_all_hosts),
		cmocka_unit_test(sums_become_global_on_all_hosts),
		cmocka_unit_test(few_hosts_keep_replicas),
		cmocka_unit_test(a_torn_part_does_not_spoil_the_next_sum),
		cmocka_unit_test(a_part_that_failed_is_sent_again),
		cmocka_unit_test(the_loop_is_woken),
		cmocka_unit_test(a_save_waits_for_its_commit_on_all_hosts),
		cmocka_unit_test(runs_follow_each_other),
		cmocka_unit_test(a_new_run_keeps_what_was_global),
		cmocka_unit_test(no_byte_of_a_withdrawn_slot_is_sent),
		cmocka_unit_test(a_save_that_does_not_come_is_given_up),
		cmocka_unit_test(saves_that_come_too_fast_are_reported),
		cmocka_unit_test(what_failed_is_tried_again),
		cmocka_unit_test(a_host_without_memory_is_named),
		cmocka_unit_test(bytes_that_cannot_be_read_fail_the_save),
		cmocka_unit_test(a_peer_that_dies_is_named),
		cmocka_unit_test(nothing_to_do_is_no_failure),
		cmocka_unit_test(a_host_without_links_is_named),
		cmocka_unit_test(hosts_that_ask_for_different_replicas_are_named),
		cmocka_unit_test(a_map_that_cannot_be_is_refused),
		cmocka_unit_test(what_waits_ends_at_once),
		cmocka_unit_test(it_ends_at_any_time),
		cmocka_unit_test(each_call_may_fail),
	};

	test_times(
		"peer_retry=0.03,peer_commit=0.05,peer_next=0.5,peer_connect=600,peer_answer=600");
	rng.state = test_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
