/* Saves that are brought back from sums: hosts place their parts as place.h says, some of them are
 * lost, and what is left gives back every byte, or the loss is known before anything is read. */
#include "agent/peer/fetch.h"
#include "base/fault.h"
#include "each_fault.h"
#include "peer_hosts.h"
#include "seed.h"
#include "times.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define RUN    7u
#define HOSTS  6u     /* hosts of a job, at most */
#define SMALL  40000u /* bytes of a partition */
#define LARGE  3000000u
#define LISTED 64u /* parts that a host lists, at most */

/* A save that hosts hold in sums. */
struct job {
	uint32_t n; /* number of hosts */
	uint32_t m; /* number of sums */
	struct host hosts[HOSTS];
	struct peer_map map; /* as host 0 has it */
	struct peer_save save;
	struct part_sample *parts[HOSTS]; /* by the host that made them */
	struct recover_plan plan;
	struct peer_fetch *fetch; /* the fetch of host 0 */
};

static struct held *held_of(struct job *job, uint32_t host)
{
	return peers_held(job->hosts[host].peers);
}

/* ---- what hosts hold ---- */

/* Adds a host's part to a sum of its group. */
static void add_to_sum(struct job *job, uint32_t host, const struct place_group *group,
	uint32_t row)
{
	const struct part_sample *s = job->parts[host];
	const struct peer_save global = {0};
	struct peer_part info = s->info;
	struct image_at at = {0};
	struct image_piece piece;
	struct held_in *in;

	info.parity = group->parity;
	info.parity.row = row;
	OK(held_in_open(&in, held_of(job, group->holders[row]), ROOT, &info, &global,
		s->image.size_bytes, &err));
	for (uint32_t i = 0; i < RANKS; i++) {
		const struct wire_out *blob = &s->ranks[i].blob;

		OK(held_in_record(in, info.first_rank + i, s->ranks[i].arena.size_bytes,
			crc32c(0, blob->bytes, blob->len_bytes), blob->bytes, blob->len_bytes,
			&err));
	}
	while (image_next(&s->image, &at, &piece)) {
		OK(held_in_bytes(in, piece.off, sample_bytes(s, &piece), piece.len_bytes, &err));
	}
	OK(held_in_end(in, &err));
	held_in_close(in);
}

/* Makes a save of n hosts, and puts it into m sums; the parts differ in size. */
static struct job *job_open(uint32_t n, uint32_t m, uint64_t size_bytes)
{
	struct job *job = calloc(1, sizeof(*job));

	assert_non_null(job);
	job->n = n;
	job->m = m;
	hosts_open(job->hosts, n, RUN + 1, &job->map);
	job->save = (struct peer_save){.run = RUN, .number = 3};
	for (uint32_t i = 0; i < n; i++) {
		job->parts[i] = sample_part(&job->save, i, n,
			size_bytes - rng_below(&rng, size_bytes / 2), i == 2);
		hold_sample(held_of(job, i), job->parts[i]);
	}
	for (uint32_t i = 0; i < n; i++) {
		struct place_group group;

		assert_true(place_parity(&job->map, i, m, &group));
		for (uint32_t row = 0; row < m; row++) {
			add_to_sum(job, i, &group, row);
		}
	}
	return job;
}

static void job_close(struct job *job)
{
	peer_fetch_close(job->fetch);
	for (uint32_t i = 0; i < job->n; i++) {
		if (job->hosts[i].peers) {
			host_close(&job->hosts[i]);
		}
		sample_drop(job->parts[i]);
	}
	free(job);
}

/* A host is lost, and another one takes its place, which holds nothing. */
static void lose(struct job *job, uint32_t host)
{
	held_drop(held_of(job, host), ROOT, &job->save);
}

/* Chooses what to restore by what all hosts list. */
static bool choose(struct job *job)
{
	static struct recover_held held[HOSTS * LISTED];
	uint32_t held_n = 0;

	for (uint32_t i = 0; i < job->n; i++) {
		struct peer_part parts[LISTED];
		uint32_t n = held_list(held_of(job, i), ROOT, parts, LISTED);

		for (uint32_t p = 0; p < n; p++) {
			held[held_n++] = (struct recover_held){.host = i * RANKS, .part = parts[p]};
		}
	}
	recover_choose(held, held_n, job->n * RANKS, false, 0, &job->plan);
	return job->plan.found;
}

/* ---- what is brought back ---- */

static int open_fetch(struct job *job)
{
	enum peer_fetch_state state;
	int rv = peer_fetch_open(&job->fetch, job->hosts[0].peers, job->hosts[0].loop, ROOT,
		&job->plan, job->n * RANKS, &job->map, &err);

	if (rv != 0) {
		job->fetch = NULL;
		return rv;
	}
	WITHIN(WITHIN_LONG_S, (state = peer_fetch_state(job->fetch, &err)) != FETCH_OPENING);
	return state == FETCH_READY ? 0 : err.code;
}

static void close_fetch(struct job *job)
{
	peer_fetch_close(job->fetch);
	job->fetch = NULL;
}

/* Brings a rank's partition. */
static int bring(struct job *job, uint32_t rank, uint32_t part)
{
	struct peer_fetch_done done;

	int rv = peer_fetch_ask(job->fetch, rank, part, 0, UINT64_MAX, job, &err);

	if (rv != 0) {
		return rv;
	}
	WITHIN(WITHIN_LONG_S, peer_fetch_reap(job->fetch, &done));
	err = done.err;
	return done.rv;
}

static void expect_bytes(struct job *job, uint32_t rank, uint32_t part)
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
	assert_int_equal(given.blob_bytes, s->blob.len_bytes);
	assert_memory_equal(given.blob, s->blob.bytes, given.blob_bytes);
	for (uint32_t i = 0; i < in->pieces_n; i++) {
		const struct record_piece *piece = &in->pieces[i];
		uint64_t off = in->arena_off + piece->file_off;

		assert_int_equal(pread(fd, bytes, piece->len_bytes, (off_t)(given.off + off)),
			piece->len_bytes);
		assert_memory_equal(bytes, s->arena.map + off, piece->len_bytes);
	}
	free(bytes);
}

/* Brings every partition of every rank; all bytes are right. */
static void restore_all(struct job *job)
{
	OK(open_fetch(job));
	for (uint32_t rank = 0; rank < job->n * RANKS; rank++) {
		for (uint32_t part = 0; rank != 5 && part < PARTS_MAX; part++) {
			OK(bring(job, rank, part));
			expect_bytes(job, rank, part);
		}
	}
	close_fetch(job);
}

/* ---- losses ---- */

static uint32_t count_bits(uint32_t set)
{
	return set == 0 ? 0 : (set & 1) + count_bits(set >> 1);
}

/* Whether all groups have enough rows when the hosts of a set are lost. */
static bool is_enough(struct job *job, uint32_t lost)
{
	for (uint32_t host = 0; host < job->n; host++) {
		struct place_group group;
		uint32_t rows = 0;

		assert_true(place_parity(&job->map, host, job->m, &group));
		for (uint32_t other = 0; other < job->n; other++) {
			struct place_group its;

			assert_true(place_parity(&job->map, other, job->m, &its));
			rows += its.parity.group == group.parity.group && (lost >> other & 1) == 0;
		}
		for (uint32_t row = 0; row < job->m; row++) {
			rows += (lost >> group.holders[row] & 1) == 0;
		}
		if ((lost >> host & 1) != 0 && rows < group.parity.k) {
			return false;
		}
	}
	return true;
}

/* Loses a set of hosts: all is restored if enough is left, else nothing is offered. */
static void try_loss(uint32_t n, uint32_t m, uint32_t lost)
{
	struct job *job = job_open(n, m, SMALL);

	for (uint32_t host = 0; host < n; host++) {
		if (lost >> host & 1) {
			lose(job, host);
		}
	}
	assert_true(count_bits(lost) > m || is_enough(job, lost));
	assert_int_equal(choose(job), is_enough(job, lost));
	if (job->plan.found) {
		restore_all(job);
	}
	job_close(job);
}

static void one_sum_survives_one_host(void **state)
{
	for (uint32_t lost = 0; lost < 1u << 5; lost++) {
		if (count_bits(lost) <= 1 || lost % 5 == 0) {
			try_loss(5, 1, lost);
		}
	}
}

static void two_sums_survive_two_hosts(void **state)
{
	for (uint32_t lost = 0; lost < 1u << 6; lost++) {
		if (count_bits(lost) == 2 || (count_bits(lost) == 3 && lost % 3 == 0)) {
			try_loss(6, 2, lost);
		}
	}
}

/* Ranges that are longer than what is rebuilt at a time. */
static void large_parts_are_rebuilt(void **state)
{
	struct job *job = job_open(5, 1, LARGE);

	lose(job, 1);
	assert_true(choose(job));
	restore_all(job);
	job_close(job);
}

/* Each sum takes the room of the longest image of its group, on its holder. */
static void sums_take_the_memory_that_was_promised(void **state)
{
	struct job *job = job_open(6, 2, SMALL);
	uint64_t longest[HOSTS] = {0}; /* by the lowest host of a group */
	uint64_t expected[HOSTS] = {0};

	for (uint32_t host = 0; host < job->n; host++) {
		struct place_group group;
		uint64_t *at;

		assert_true(place_parity(&job->map, host, job->m, &group));
		at = &longest[group.parity.group / RANKS];
		*at = job->parts[host]->image.size_bytes > *at ? job->parts[host]->image.size_bytes
							       : *at;
	}
	for (uint32_t host = 0; host < job->n; host++) {
		struct place_group group;

		assert_true(place_parity(&job->map, host, job->m, &group));
		for (uint32_t row = 0; group.parity.index == 0 && row < job->m; row++) {
			expected[group.holders[row]] += longest[group.parity.group / RANKS];
		}
	}
	for (uint32_t host = 0; host < job->n; host++) {
		uint64_t own = 0;

		for (uint32_t i = 0; i < RANKS; i++) {
			own += job->parts[host]->ranks[i].arena.size_bytes;
		}
		assert_int_equal(held_used_bytes(held_of(job, host)), own + expected[host]);
	}
	job_close(job);
}

/* ---- damage ---- */

/* Flips a bit of a sum of host 1's group. */
static void flip(struct job *job, uint32_t row, uint64_t bit)
{
	struct place_group group;
	struct held_part *part;

	assert_true(place_parity(&job->map, 1, job->m, &group));
	group.parity.row = row;
	part = held_find_sum(held_of(job, group.holders[row]), ROOT, &job->save, &group.parity,
		RANKS);
	assert_non_null(part);
	assert_true(bit / 8 < held_part_size(part));
	part->sum->map[bit / 8] ^= (uint8_t)(1u << bit % 8);
	held_release(part);
}

/* Host 1's part is rebuilt from a sum with a flipped bit, anywhere in its image. */
static void every_flipped_bit_of_a_sum_is_found(void **state)
{
	struct job *job = job_open(5, 1, 24);
	uint64_t bits = 8 * job->parts[1]->image.size_bytes;

	lose(job, 1);
	assert_true(choose(job));
	for (uint64_t bit = 0; bit < bits; bit++) {
		uint32_t failed = 0;

		flip(job, 0, bit);
		OK(open_fetch(job));
		for (uint32_t i = 0; i < RANKS * PARTS_MAX; i++) {
			uint32_t rank = RANKS + i / PARTS_MAX;

			if (bring(job, rank, i % PARTS_MAX) == 0) {
				expect_bytes(job, rank, i % PARTS_MAX);
			} else {
				assert_int_equal(err.code, PAWL_ECORRUPT);
				SAYS("rebuilt from other hosts");
				failed++;
			}
		}
		assert_int_equal(failed, 1);
		close_fetch(job);
		flip(job, 0, bit);
	}
	restore_all(job);
	job_close(job);
}

static void another_sum_stands_in_for_a_damaged_one(void **state)
{
	struct job *job = job_open(6, 2, SMALL);

	lose(job, 1);
	assert_true(choose(job));
	for (unsigned i = 0; i < 10; i++) {
		uint32_t row = (uint32_t)rng_below(&rng, 2);
		uint64_t bit = rng_below(&rng, 8 * job->parts[1]->image.size_bytes);

		flip(job, row, bit);
		restore_all(job);
		flip(job, row, bit);
	}
	job_close(job);
}

/* A part's only holder has damaged it. */
static void a_damaged_part_is_rebuilt(void **state)
{
	struct job *job = job_open(5, 1, SMALL);
	const struct part_sample *s = job->parts[1];

	damage_sample(held_of(job, 1), s, &s->ranks[0].parts[0].pieces[0]);
	assert_true(choose(job));
	restore_all(job);
	job_close(job);
}

/* ---- the way there ---- */

/* After the plan was made, a host is gone: its row is replaced by one that is left. */
static void rows_that_are_gone_are_replaced(void **state)
{
	struct job *job = job_open(6, 2, SMALL);

	lose(job, 1);
	assert_true(choose(job));
	host_close(&job->hosts[2]);
	restore_all(job);
	job_close(job);
	job = job_open(5, 1, SMALL);
	lose(job, 1);
	assert_true(choose(job));
	OK(open_fetch(job));
	host_close(&job->hosts[2]);
	FAILS(PAWL_EPEER, bring(job, RANKS, 0));
	SAYS("cannot be rebuilt: 3 of 4 hosts answered");
	job_close(job);
}

static int try_all(struct job *job)
{
	int rv = open_fetch(job);

	for (uint32_t rank = 0; rv == 0 && rank < job->n * RANKS; rank++) {
		rv = rank == 5 ? 0 : bring(job, rank, 2);
	}
	return rv;
}

static void each_call_may_fail(void **state)
{
	struct job *job = job_open(5, 1, SMALL / 10);

	lose(job, 1);
	assert_true(choose(job));
	for (uint64_t nth = 1; each_fault(nth); nth++) {
		int rv;

		fault_arm("fetch.", nth, ENOMEM, false);
		rv = try_all(job);
		fault_disarm();
		assert_true(rv == 0 || fault_reached(nth));
		close_fetch(job);
	}
	job_close(job);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_sum_survives_one_host),
		cmocka_unit_test(two_sums_survive_two_hosts),
		cmocka_unit_test(large_parts_are_rebuilt),
		cmocka_unit_test(sums_take_the_memory_that_was_promised),
		cmocka_unit_test(every_flipped_bit_of_a_sum_is_found),
		cmocka_unit_test(another_sum_stands_in_for_a_damaged_one),
		cmocka_unit_test(a_damaged_part_is_rebuilt),
		cmocka_unit_test(rows_that_are_gone_are_replaced),
		cmocka_unit_test(each_call_may_fail),
	};

	test_times("peer_connect=600,peer_answer=600,peer_retry=0.05");
	rng.state = test_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
