/* Saves that are brought back from the memory of hosts: every byte is what was staged, or the
 * request fails. */
#include "agent/peer/fetch.h"
#include "base/fault.h"
#include "each_fault.h"
#include "peer_hosts.h"
#include "seed.h"
#include "times.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define RUN   7u
#define HOSTS 3u
#define SMALL 400000u /* bytes of a partition */
#define LARGE 6000000u

/* A save that hosts hold. */
struct job {
	struct host hosts[HOSTS_MAX];
	struct peer_map map; /* as host 0 has it */
	struct peer_save save;
	struct part_sample *parts[HOSTS]; /* by the host that made them */
	struct recover_plan plan;
	struct peer_fetch *fetch; /* the fetch of host 0 */
};

/* ---- calls that are stopped ---- */

static struct gate gate = GATE_INIT;

ssize_t __real_pwrite64(int fd, const void *bytes, size_t len_bytes, off_t off);
ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t len_bytes, off_t off);

ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t len_bytes, off_t off)
{
	gate_pass(&gate, fd);
	return __real_pwrite64(fd, bytes, len_bytes, off);
}

/* ---- memory ---- */

static struct tier_limits limits = {.available = UINT64_MAX / 2, .cgroup = UINT64_MAX};

void __wrap_tier_limits_read(struct tier_limits *out);

/* In place of what the system says. */
void __wrap_tier_limits_read(struct tier_limits *out)
{
	*out = limits;
}

/* ---- what hosts hold ---- */

static struct held *held_of(struct job *job, uint32_t host)
{
	return peers_held(job->hosts[host].peers);
}

static void add_source(struct job *job, uint32_t part, uint32_t host)
{
	job->plan.sources[job->plan.sources_n++] = (struct recover_source){.host = host * RANKS,
		.first_rank = part * RANKS,
		.ranks = RANKS};
}

static void hold_own(struct job *job, uint32_t host)
{
	hold_sample(held_of(job, host), job->parts[host]);
	add_source(job, host, host);
}

/* A host holds a replica of another host's part. */
static void hold_replica(struct job *job, uint32_t part, uint32_t host)
{
	const struct part_sample *s = job->parts[part];
	const struct peer_save global = {0};
	struct image_at at = {0};
	struct image_piece piece;
	struct held_in *in;

	OK(held_in_open(&in, held_of(job, host), ROOT, &s->info, &global, s->image.size_bytes,
		&err));
	for (uint32_t i = 0; i < RANKS; i++) {
		const struct wire_out *blob = &s->ranks[i].blob;

		OK(held_in_record(in, s->info.first_rank + i, s->ranks[i].arena.size_bytes,
			crc32c(0, blob->bytes, blob->len_bytes), blob->bytes, blob->len_bytes,
			&err));
	}
	while (image_next(&s->image, &at, &piece)) {
		OK(held_in_bytes(in, piece.off, sample_bytes(s, &piece), piece.len_bytes, &err));
	}
	OK(held_in_end(in, &err));
	held_in_close(in);
	add_source(job, part, host);
}

/* Flips a bit of a piece of a host's own part; returns the piece. */
static struct record_piece damage(struct job *job, uint32_t host)
{
	const struct record_part *part = &job->parts[host]->ranks[0].parts[0];
	const struct record_piece *piece = &part->pieces[rng_below(&rng, part->pieces_n)];

	damage_sample(held_of(job, host), job->parts[host], piece);
	return *piece;
}

/* Makes a save; hosts hold nothing of it yet. */
static struct job *job_make(uint64_t size_bytes)
{
	struct job *job = calloc(1, sizeof(*job));

	assert_non_null(job);
	hosts_open(job->hosts, HOSTS, RUN + 1, &job->map);
	job->save = (struct peer_save){.run = RUN, .number = 3};
	for (uint32_t i = 0; i < HOSTS; i++) {
		job->parts[i] = sample_part(&job->save, i, HOSTS, size_bytes, i == 2);
	}
	job->plan.found = true;
	job->plan.save = job->save;
	job->plan.step = job->parts[0]->info.step;
	memcpy(job->plan.tag, job->parts[0]->info.tag, sizeof(job->plan.tag));
	return job;
}

/* Makes a save of which host 0 lost its own part, and the others have theirs and a replica of that
 * of the host before. */
static struct job *job_open(uint64_t size_bytes)
{
	struct job *job = job_make(size_bytes);

	hold_replica(job, 0, 1);
	hold_replica(job, 0, 2);
	hold_own(job, 1);
	hold_replica(job, 1, 2);
	hold_own(job, 2);
	hold_replica(job, 2, 0);
	return job;
}

static void open_fetch(struct job *job)
{
	OK(peer_fetch_open(&job->fetch, job->hosts[0].peers, job->hosts[0].loop, ROOT, &job->plan,
		HOSTS * RANKS, &job->map, &err));
}

static void open_ready(struct job *job)
{
	enum peer_fetch_state state;

	open_fetch(job);
	WITHIN(WITHIN_LONG_S, (state = peer_fetch_state(job->fetch, &err)) != FETCH_OPENING);
	if (state != FETCH_READY) {
		fail_msg("%s", err.msg);
	}
}

static void job_close(struct job *job)
{
	peer_fetch_close(job->fetch);
	for (uint32_t i = 0; i < HOSTS; i++) {
		if (job->hosts[i].peers) {
			host_close(&job->hosts[i]);
		}
		sample_drop(job->parts[i]);
	}
	free(job);
}

/* ---- requests ---- */

static int reap(struct job *job)
{
	struct peer_fetch_done done;

	WITHIN(WITHIN_LONG_S, peer_fetch_reap(job->fetch, &done));
	err = done.err;
	assert_ptr_equal(done.user, job);
	return done.rv;
}

/* Asks for bytes of a partition and waits until they are there. */
static int bring(struct job *job, uint32_t rank, uint32_t part, uint64_t lo, uint64_t hi)
{
	OK(peer_fetch_ask(job->fetch, rank, part, lo, hi, job, &err));
	return reap(job);
}

/* Compares the pieces of [lo, hi) of a partition with what was staged. */
static void expect_bytes(struct job *job, uint32_t rank, uint32_t part, uint64_t lo, uint64_t hi)
{
	const struct rank_sample *s = &job->parts[rank / RANKS]->ranks[rank % RANKS];
	const struct record_part *in = &s->parts[part];
	uint8_t *bytes = malloc(CKPT_CHUNK);
	struct peer_fetch_rank given;
	uint64_t size_bytes;
	int fd;

	assert_non_null(bytes);
	peer_fetch_memory(job->fetch, &fd, &size_bytes);
	peer_fetch_rank(job->fetch, rank, &given);
	assert_int_equal(given.off % ARENA_ALIGN, 0);
	assert_int_equal(given.arena_bytes, s->arena.size_bytes);
	assert_true(given.arena_bytes <= size_bytes && given.off <= size_bytes - given.arena_bytes);
	assert_int_equal(given.blob_bytes, s->blob.len_bytes);
	assert_memory_equal(given.blob, s->blob.bytes, given.blob_bytes);
	for (uint32_t i = 0; i < in->pieces_n; i++) {
		const struct record_piece *piece = &in->pieces[i];
		uint64_t off = in->arena_off + piece->file_off;

		if (piece->file_off >= hi || piece->file_off + piece->len_bytes <= lo) {
			continue;
		}
		assert_int_equal(pread(fd, bytes, piece->len_bytes, (off_t)(given.off + off)),
			piece->len_bytes);
		assert_memory_equal(bytes, s->arena.map + off, piece->len_bytes);
	}
	free(bytes);
}

/* Returns the bytes of memory that the arenas take. */
static uint64_t memory_used(struct job *job)
{
	uint64_t size_bytes;
	struct stat st;
	int fd;

	peer_fetch_memory(job->fetch, &fd, &size_bytes);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_size, size_bytes);
	return (uint64_t)st.st_blocks * 512;
}

static bool has_part(uint32_t rank)
{
	return rank + 1 < HOSTS * RANKS; /* the last rank has none: see job_make */
}

static void bring_all(struct job *job)
{
	for (uint32_t rank = 0; rank < HOSTS * RANKS; rank++) {
		for (uint32_t part = 0; has_part(rank) && part < PARTS_MAX; part++) {
			OK(bring(job, rank, part, 0, UINT64_MAX));
			expect_bytes(job, rank, part, 0, UINT64_MAX);
		}
	}
}

/* ---- what is asked for comes ---- */

static void every_byte_is_what_was_staged(void **state)
{
	struct job *job = job_open(SMALL);
	struct peer_fetch_rank none;
	struct peer_fetch_done done;

	open_ready(job);
	assert_int_equal(memory_used(job), 0);
	bring_all(job);
	peer_fetch_rank(job->fetch, HOSTS * RANKS - 1, &none);
	assert_null(none.blob);
	assert_int_equal(none.arena_bytes, 0);
	assert_false(peer_fetch_reap(job->fetch, &done));
	job_close(job);
}

static void only_what_is_asked_for_comes(void **state)
{
	struct job *job = job_open(LARGE);

	open_ready(job);
	for (unsigned i = 0; i < 20; i++) {
		uint32_t rank = (uint32_t)rng_below(&rng, HOSTS * RANKS - 1);
		uint64_t lo = rng_below(&rng, LARGE);
		uint64_t hi = lo + rng_below(&rng, 100000);

		OK(bring(job, rank, 0, lo, hi));
		expect_bytes(job, rank, 0, lo, hi);
	}
	assert_true(memory_used(job) < 20 * (100000 + 2 * 200000 + 3 * CKPT_PAGE));
	OK(bring(job, 0, 0, 5, 5)); /* no bytes */
	OK(bring(job, 0, 0, UINT64_MAX - 1, UINT64_MAX));
	FAILS(PAWL_EINVAL, peer_fetch_ask(job->fetch, 0, PARTS_MAX, 0, 1, job, &err));
	FAILS(PAWL_EINVAL, peer_fetch_ask(job->fetch, HOSTS * RANKS - 1, 0, 0, 1, job, &err));
	FAILS(PAWL_EINVAL, peer_fetch_ask(job->fetch, HOSTS * RANKS, 0, 0, 1, job, &err));
	job_close(job);
}

/* The part's own host comes first in the plan, but this one's memory is nearer. */
static void own_memory_comes_first(void **state)
{
	struct job *job = job_open(SMALL);
	uint32_t sources_n = job->plan.sources_n;
	int fd = listen_mutely(job->map.hosts[1].address);

	memcpy(job->map.hosts[2].address, job->map.hosts[1].address, PEER_ADDRESS_MAX);
	hold_replica(job, 0, 0);
	hold_replica(job, 1, 0);
	job->plan.sources_n = sources_n;
	job->plan.sources[1].host = 0;
	job->plan.sources[3].host = 0;
	open_ready(job); /* nobody else would answer */
	bring_all(job);
	job_close(job);
	close(fd);
}

/* Returns available memory of which so many bytes, or up to seven more, may be used. */
static uint64_t memory_for(uint64_t bytes)
{
	return bytes + (bytes + 6) / 7;
}

/* Ranks 0 and 1 have staged their image, and read that. There is room for more, or for less. */
static void what_does_not_fit_is_refused_before_it_is_there(void **state)
{
	struct job *job = job_open(LARGE);
	uint64_t own = job->parts[0]->image.size_bytes;
	uint64_t used;

	for (int cgroup = 0; cgroup < 2; cgroup++) {
		*(cgroup ? &limits.cgroup : &limits.available) = memory_for(own - 8);
		open_fetch(job);
		WITHIN(WITHIN_LONG_S, peer_fetch_state(job->fetch, &err) == FETCH_FAILED);
		assert_int_equal(err.code, PAWL_ENOMEM);
		SAYS("step 30 does not fit the memory of this host: ");
		peer_fetch_close(job->fetch);
		limits = (struct tier_limits){.available = UINT64_MAX / 2, .cgroup = UINT64_MAX};
	}
	limits.available = memory_for(own + LARGE);
	open_ready(job);
	for (uint32_t rank = 0; rank < RANKS; rank++) {
		for (uint32_t part = 0; part < PARTS_MAX; part++) {
			OK(bring(job, rank, part, 0, UINT64_MAX));
		}
	}
	assert_true(memory_used(job) >= own);
	OK(bring(job, 2, 0, 0, UINT64_MAX));
	used = memory_used(job);
	FAILS(PAWL_ENOMEM, bring(job, 2, 1, 0, UINT64_MAX));
	SAYS("step 30 does not fit the memory of this host: ");
	assert_int_equal(memory_used(job), used);
	OK(bring(job, 2, 0, 0, UINT64_MAX)); /* this is there already */
	limits.available = UINT64_MAX / 2;
	job_close(job);
}

/* Nobody holds the save any more when the bytes are asked for again. */
static void nothing_is_fetched_twice(void **state)
{
	struct job *job = job_open(SMALL);

	open_ready(job);
	OK(bring(job, 3, 0, 0, UINT64_MAX));
	for (uint32_t i = 0; i < HOSTS; i++) {
		held_drop(held_of(job, i), ROOT, &job->save);
	}
	OK(bring(job, 3, 0, 0, UINT64_MAX));
	expect_bytes(job, 3, 0, 0, UINT64_MAX);
	assert_int_not_equal(bring(job, 3, 1, 0, UINT64_MAX), 0);
	job_close(job);
}

/* ---- damage ---- */

static void damage_is_fetched_elsewhere(void **state)
{
	struct job *job = job_open(SMALL);

	damage(job, 1);
	open_ready(job);
	bring_all(job);
	job_close(job);
}

static void damage_everywhere_is_an_error(void **state)
{
	struct job *job = job_make(SMALL);
	struct record_piece piece;
	char text[96];

	for (uint32_t i = 0; i < HOSTS; i++) {
		hold_own(job, i);
	}
	piece = damage(job, 1);
	open_ready(job);
	FAILS(PAWL_ECORRUPT, bring(job, 2, 0, 0, UINT64_MAX));
	SAYS("rank 2's part of step 30, on rank 2's host (127.0.0.1:");
	snprintf(text, sizeof(text), "bytes %llu to %llu of model are not what was staged",
		(unsigned long long)piece.file_off,
		(unsigned long long)piece.file_off + piece.len_bytes - 1);
	SAYS(text);
	if (piece.file_off > 0) {
		OK(bring(job, 2, 0, 0, piece.file_off)); /* the bytes before are fine */
	}
	OK(bring(job, 2, 0, piece.file_off + piece.len_bytes, UINT64_MAX));
	OK(bring(job, 2, 1, 0, UINT64_MAX));
	OK(bring(job, 3, 0, 0, UINT64_MAX));
	job_close(job);
}

/* This host's own memory may be damaged as well. */
static void own_damage_is_fetched_elsewhere(void **state)
{
	struct job *job = job_make(SMALL);

	hold_own(job, 0);
	hold_replica(job, 0, 2);
	hold_own(job, 1);
	hold_own(job, 2);
	damage(job, 0);
	open_ready(job);
	bring_all(job);
	job_close(job);
}

/* ---- hosts that are lost ---- */

static void a_lost_host_is_replaced(void **state)
{
	struct job *job = job_open(LARGE);
	uint64_t size_bytes;
	int fd;

	open_ready(job);
	peer_fetch_memory(job->fetch, &fd, &size_bytes);
	gate_arm(&gate, fd, 10);
	OK(peer_fetch_ask(job->fetch, 2, 0, 0, UINT64_MAX, job, &err));
	OK(peer_fetch_ask(job->fetch, 2, 1, 0, UINT64_MAX, job, &err));
	WITHIN(WITHIN_LONG_S, gate_reached(&gate));
	host_close(&job->hosts[1]);
	gate_release(&gate);
	OK(reap(job));
	OK(reap(job));
	bring_all(job);
	job_close(job);
}

/* One failure of the only host that has a part is no reason to give the save up. */
static void a_host_that_fails_once_is_asked_again(void **state)
{
	static const char *const points[] = {"peer.socket", "peer.block", "held.read"};
	struct job *job = job_make(SMALL);

	for (uint32_t i = 0; i < HOSTS; i++) {
		hold_own(job, i);
	}
	for (size_t i = 0; i < sizeof(points) / sizeof(points[0]); i++) {
		int64_t begun_ns = clock_mono_ns();

		if (i == 0) { /* while the records are fetched; then while bytes are */
			fault_arm(points[i], 1, EMFILE, false);
			open_ready(job);
		} else {
			fault_arm(points[i], 1, EIO, false);
			OK(bring(job, 2, (uint32_t)i - 1, 0, UINT64_MAX));
			expect_bytes(job, 2, (uint32_t)i - 1, 0, UINT64_MAX);
		}
		assert_true(fault_reached(1));
		fault_disarm();
		assert_true(clock_mono_ns() - begun_ns >= times_ns(TIME_PEER_RETRY));
	}
	job_close(job);
}

static void a_save_that_is_gone_fails(void **state)
{
	struct job *job = job_open(SMALL);

	open_ready(job);
	host_close(&job->hosts[1]);
	held_drop(held_of(job, 2), ROOT, &job->save);
	assert_int_not_equal(bring(job, 2, 0, 0, UINT64_MAX), 0);
	SAYS("step 30, rank ");
	OK(bring(job, 4, 0, 0, UINT64_MAX)); /* held here */
	job_close(job);
}

static void records_that_nobody_has_are_named(void **state)
{
	struct job *job = job_open(SMALL);

	held_drop(held_of(job, 1), ROOT, &job->save);
	held_drop(held_of(job, 2), ROOT, &job->save);
	open_fetch(job);
	WITHIN(WITHIN_LONG_S, peer_fetch_state(job->fetch, &err) == FETCH_FAILED);
	SAYS("records of ranks 0 to 1 of step 30: rank 4's host: ");
	job_close(job);
}

static void a_host_that_left_the_run_is_passed_over(void **state)
{
	struct job *job = job_open(SMALL);

	job->map.hosts[1].first_rank = 99;
	open_ready(job);
	bring_all(job);
	job_close(job);
}

/* ---- the end ---- */

static void what_is_forgotten_does_not_come_back(void **state)
{
	struct job *job = job_open(LARGE);
	struct peer_fetch_done done;
	uint64_t size_bytes;
	int other;
	int fd;

	open_ready(job);
	peer_fetch_memory(job->fetch, &fd, &size_bytes);
	gate_arm(&gate, fd, 1);
	OK(peer_fetch_ask(job->fetch, 0, 0, 0, UINT64_MAX, &other, &err)); /* in progress */
	WITHIN(WITHIN_LONG_S, gate_reached(&gate));
	OK(peer_fetch_ask(job->fetch, 1, 0, 0, UINT64_MAX, &other, &err)); /* waits */
	OK(peer_fetch_ask(job->fetch, 4, 0, 0, UINT64_MAX, job, &err));
	peer_fetch_forget(job->fetch, &other);
	gate_release(&gate);
	OK(reap(job));
	gate_arm(&gate, fd, 0);
	OK(peer_fetch_ask(job->fetch, 0, 0, 5, 5, &other,
		&err)); /* has ended when the gate is reached */
	OK(peer_fetch_ask(job->fetch, 4, 1, 0, UINT64_MAX, job, &err));
	WITHIN(WITHIN_LONG_S, gate_reached(&gate));
	peer_fetch_forget(job->fetch, &other);
	gate_release(&gate);
	OK(reap(job));
	assert_false(peer_fetch_reap(job->fetch, &done));
	bring_all(job);
	job_close(job);
}

static void it_closes_at_any_time(void **state)
{
	for (unsigned i = 0; i < 12; i++) {
		struct job *job = job_open(i < 6 ? SMALL : LARGE / 3);

		if (i % 3 == 0) {
			open_fetch(job);
		} else {
			open_ready(job);
			for (uint32_t rank = 0; rank < HOSTS * RANKS - 1; rank++) {
				OK(peer_fetch_ask(job->fetch, rank, 0, 0, UINT64_MAX, job, &err));
			}
		}
		within_pace(0.0005 * (double)rng_below(&rng, 10));
		job_close(job);
	}
}

/* A host that never answers: closing ends the wait for it. */
static void a_mute_host_does_not_keep_it_open(void **state)
{
	struct job *job = job_open(SMALL);
	int fd = listen_mutely(job->map.hosts[1].address);

	open_fetch(job);
	within_pace(0.05);
	assert_int_equal(peer_fetch_state(job->fetch, &err), FETCH_OPENING);
	job_close(job);
	close(fd);
}

/* ---- faults ---- */

/* Opens and brings everything; returns the first error. */
static int try_all(struct job *job)
{
	enum peer_fetch_state state;
	int rv = peer_fetch_open(&job->fetch, job->hosts[0].peers, job->hosts[0].loop, ROOT,
		&job->plan, HOSTS * RANKS, &job->map, &err);

	if (rv != 0) {
		job->fetch = NULL;
		return rv;
	}
	WITHIN(WITHIN_LONG_S, (state = peer_fetch_state(job->fetch, &err)) != FETCH_OPENING);
	rv = state == FETCH_FAILED ? err.code : 0;
	for (uint32_t rank = 0; rv == 0 && rank < HOSTS * RANKS - 1; rank++) {
		rv = peer_fetch_ask(job->fetch, rank, 2, 0, UINT64_MAX, job, &err);
		rv = rv == 0 ? reap(job) : rv;
	}
	return rv;
}

static void each_call_may_fail(void **state)
{
	struct job *job = job_open(SMALL / 10);

	for (uint64_t nth = 1; each_fault(nth); nth++) {
		int rv;

		fault_arm("fetch.", nth, ENOMEM, false);
		rv = try_all(job);
		fault_disarm();
		assert_true(rv == 0 || fault_reached(nth));
		peer_fetch_close(job->fetch);
		job->fetch = NULL;
	}
	job_close(job);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_byte_is_what_was_staged),
		cmocka_unit_test(only_what_is_asked_for_comes),
		cmocka_unit_test(what_does_not_fit_is_refused_before_it_is_there),
		cmocka_unit_test(nothing_is_fetched_twice),
		cmocka_unit_test(own_memory_comes_first),
		cmocka_unit_test(damage_is_fetched_elsewhere),
		cmocka_unit_test(damage_everywhere_is_an_error),
		cmocka_unit_test(own_damage_is_fetched_elsewhere),
		cmocka_unit_test(a_lost_host_is_replaced),
		cmocka_unit_test(a_host_that_fails_once_is_asked_again),
		cmocka_unit_test(a_save_that_is_gone_fails),
		cmocka_unit_test(records_that_nobody_has_are_named),
		cmocka_unit_test(a_host_that_left_the_run_is_passed_over),
		cmocka_unit_test(what_is_forgotten_does_not_come_back),
		cmocka_unit_test(it_closes_at_any_time),
		cmocka_unit_test(a_mute_host_does_not_keep_it_open),
		cmocka_unit_test(each_call_may_fail),
	};

	test_times("peer_connect=600,peer_answer=600,peer_retry=0.05");
	rng.state = test_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
