/* The statistics of a group, which show where its time went, and its trace. */
#include "base/clock.h"
#include "coll/group/group_impl.h"
#include "coll/group/trace.h"
#include "test_coll_begun.h"
#include "test_coll_heartbeat.h"
#include "test_coll_world.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define ROUNDS   5
#define BYTES    (256u << 10)
#define LATE     2               /* rank that comes late */
#define PAUSE_NS (2 * NS_PER_MS) /* least delay of rank LATE */

static struct world world;
static float vectors[RANKS][BYTES / sizeof(float)];
static char folder[64];

/* Returns whether a rank has begun, waits for one header only, and its caller waits for that. */
static bool waits_for_one(struct pawl_group *group, uint64_t number)
{
	bool waits;

	if (!lacks_headers(group, number, 1)) {
		return false;
	}
	pthread_mutex_lock(&group->state);
	waits = group->driver.waiters > 0;
	pthread_mutex_unlock(&group->state);
	return waits;
}

static void come_last(uint64_t number)
{
	double pause_s = (double)PAUSE_NS / NS_PER_S;

	for (uint32_t r = 0; r < RANKS; r++) {
		WITHIN_DOING(WITHIN_LONG_S,
			r == LATE || waits_for_one(world.members[r].group, number),
			within_pace(pause_s));
	}
	within_pace(pause_s);
}

/* Does one sum at a time. */
static void *reduce_rounds(void *user)
{
	struct member *member = user;
	struct pawl_coll_call call = {.kind = PAWL_ALL_REDUCE,
		.dtype = PAWL_FLOAT32,
		.len_bytes = BYTES,
		.in = vectors[member->rank],
		.out = vectors[member->rank]};
	struct pawl_work work;

	for (uint64_t n = 0; n < ROUNDS; n++) {
		if (member->rank == LATE) {
			come_last(n);
		}
		assert_int_equal(pawl_group_submit(member->group, &work, &call, NULL), 0);
		assert_int_equal(IN_TIME(pawl_group_wait(member->group, &work, LONG_NS, NULL)), 0);
	}
	return NULL;
}

static struct pawl_stats take(uint32_t rank, struct pawl_peer_stats *peers)
{
	struct pawl_stats stats;

	assert_int_equal(pawl_group_stats(world.members[rank].group, &stats, peers, RANKS), RANKS);
	return stats;
}

static uint64_t sum_phases(const struct pawl_kind_stats *kind)
{
	uint64_t sum = 0;

	for (int p = 0; p < PAWL_PHASES; p++) {
		sum += kind->phase_ns[p];
	}
	return sum;
}

static void who_is_late_is_named(void **state)
{
	open_world(&world);
	run_world(&world, reduce_rounds);
	for (uint32_t r = 0; r < RANKS; r++) {
		struct pawl_peer_stats peers[RANKS];
		struct pawl_stats stats = take(r, peers);
		const struct pawl_kind_stats *kind = &stats.kinds[PAWL_ALL_REDUCE];
		uint64_t sent = 0;
		uint64_t received = 0;

		assert_int_equal(kind->count, ROUNDS);
		assert_int_equal(kind->bytes, ROUNDS * BYTES);
		for (uint32_t p = 0; p < RANKS; p++) {
			sent += peers[p].sent_bytes;
			received += peers[p].received_bytes;
			if (r != LATE) {
				assert_int_equal(peers[p].last_n, p == LATE ? ROUNDS : 0);
			}
		}
		/* Each rank adds a quarter of the vector, and gives it to the others. */
		assert_int_equal(sent, ROUNDS * (BYTES - BYTES / RANKS) * 2);
		assert_int_equal(received, sent);
		if (r != LATE) {
			/* A driver that was stopped may date a header too early. */
			assert_true(kind->phase_ns[PAWL_PHASE_LATE] > NS_PER_MS);
			assert_int_equal(peers[LATE].late_ns, kind->phase_ns[PAWL_PHASE_LATE]);
			assert_true(kind->blocked_ns >= ROUNDS * PAUSE_NS);
		}
		assert_int_equal(kind->phase_ns[PAWL_PHASE_NETWORK], 0);
		assert_int_equal(stats.kinds[PAWL_BROADCAST].count, 0);
	}
	close_world(&world);
}

/* ---- traces ---- */

/* Reads a rank's trace file while it is still written to. */
static void read_trace(uint32_t rank, struct trace *trace)
{
	static uint8_t bytes[TRACE_FILE_BYTES + 1];
	struct dirent *entry;
	DIR *dir = opendir(folder);
	char ends[32];
	uint64_t count;
	ssize_t n = 0;

	assert_non_null(dir);
	snprintf(ends, sizeof(ends), "-rank%u%s", rank, TRACE_SUFFIX);
	while ((entry = readdir(dir)) != NULL) {
		char path[512];
		int fd;

		if (!strstr(entry->d_name, ends)) {
			continue;
		}
		snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		n = read(fd, bytes, sizeof(bytes));
		close(fd);
	}
	closedir(dir);
	memcpy(&count, bytes + TRACE_COUNT_AT, sizeof(count));
	assert_int_equal(trace_decode(trace, bytes, (size_t)n, count, NULL), 0);
}

static void open_traced(void)
{
	snprintf(folder, sizeof(folder), "/tmp/pawl-test-XXXXXX");
	assert_non_null(mkdtemp(folder));
	setenv("PAWL_TRACE", folder, 1);
	open_world(&world);
	unsetenv("PAWL_TRACE");
}

static void remove_folder(void)
{
	DIR *dir = opendir(folder);
	struct dirent *entry;

	while ((entry = readdir(dir)) != NULL) {
		unlinkat(dirfd(dir), entry->d_name, 0);
	}
	closedir(dir);
	assert_int_equal(rmdir(folder), 0);
}

/* Each operation is in the trace, its times are those of the statistics, and its phases add up to
 * it. */
static void a_trace_adds_up_to_the_statistics(void **state)
{
	open_traced();
	run_world(&world, reduce_rounds);
	for (uint32_t r = 0; r < RANKS; r++) {
		struct pawl_peer_stats peers[RANKS];
		struct pawl_stats stats = take(r, peers);
		struct trace trace;
		uint64_t whole_ns = 0;
		uint64_t blocked_ns = 0;
		uint64_t n = 0;

		read_trace(r, &trace);
		assert_int_equal(trace.header.rank, r);
		assert_int_equal(trace.header.ranks, RANKS);
		assert_int_equal(trace.header.pid, getpid());
		for (size_t i = 0; i < trace.n; i++) {
			const struct trace_record *record = &trace.records[i];
			int64_t ns = record->at_ns[TRACE_DONE] - record->at_ns[TRACE_SUBMITTED];

			if (record->type == TRACE_WAIT) {
				blocked_ns += (uint64_t)ns;
				continue;
			}
			assert_int_equal(record->number, n++);
			assert_int_equal(record->kind, PAWL_ALL_REDUCE);
			assert_int_equal(record->bytes, BYTES);
			assert_int_equal(record->algorithm, COLL_DIRECT);
			assert_true(r == LATE || record->peer == LATE);
			whole_ns += (uint64_t)ns;
		}
		assert_int_equal(n, ROUNDS);
		assert_int_equal(sum_phases(&stats.kinds[PAWL_ALL_REDUCE]), whole_ns);
		assert_int_equal(stats.kinds[PAWL_ALL_REDUCE].blocked_ns, blocked_ns);
		trace_deinit(&trace);
	}
	close_world(&world);
	remove_folder();
}

/* Does more operations than the trace has room for: the last ones are kept. */
static void *do_too_many(void *user)
{
	struct member *member = user;
	const struct pawl_coll_call call = {.kind = PAWL_BARRIER};
	struct pawl_work works[16];

	for (uint32_t n = 0; n < TRACE_CAP + 32; n += 16) {
		for (uint32_t i = 0; i < 16; i++) {
			assert_int_equal(pawl_group_submit(member->group, &works[i], &call, NULL),
				0);
		}
		for (uint32_t i = 0; i < 16; i++) {
			assert_int_equal(pawl_group_wait(member->group, &works[i], LONG_NS, NULL),
				0);
		}
	}
	return NULL;
}

static void a_full_trace_keeps_the_last(void **state)
{
	struct trace trace;
	uint64_t last = 0;

	open_traced();
	run_world(&world, do_too_many);
	read_trace(1, &trace);
	assert_int_equal(trace.n, TRACE_CAP - 1);
	assert_true(trace.written > TRACE_CAP + 32);
	for (size_t i = 0; i < trace.n; i++) {
		uint64_t number = trace.records[i].number;

		if (trace.records[i].type == TRACE_OPERATION && number > last) {
			last = number; /* channels overtake each other */
		}
	}
	assert_int_equal(last, TRACE_CAP + 31);
	trace_deinit(&trace);
	close_world(&world);
	remove_folder();
}

/* The trace folder cannot be written to: the group does without a trace. */
static void training_does_without_a_trace(void **state)
{
	setenv("PAWL_TRACE", "/proc/nowhere", 1);
	open_world(&world);
	unsetenv("PAWL_TRACE");
	run_world(&world, reduce_rounds);
	close_world(&world);
}

static void what_is_no_trace_is_refused(void **state)
{
	const struct trace_header header = {.rank = 1,
		.ranks = 2,
		.peers = 2,
		.hosts = 1,
		.hostname = "a \"b\"",
		.wall_ns = 1};
	struct trace_record record = {.at_ns = {1, 2, 3, 4, 5, 6}};
	uint8_t bytes[TRACE_HEADER_BYTES];
	struct trace_header got;

	trace_header_encode(bytes, &header);
	assert_int_equal(trace_header_decode(bytes, &got, NULL), 0);
	assert_string_equal(got.hostname, "a ?b?");
	bytes[28] ^= 1;
	assert_int_equal(trace_header_decode(bytes, &got, NULL), PAWL_ECORRUPT);
	trace_record_encode(bytes, &record, 9);
	assert_true(trace_record_decode(bytes, &header, 9, &record));
	assert_int_equal(record.at_ns[TRACE_DONE], 6);
	assert_false(trace_record_decode(bytes, &header, 10, &record));
	record.at_ns[TRACE_REMOTE] = 7;
	trace_record_encode(bytes, &record, 9);
	assert_false(trace_record_decode(bytes, &header, 9, &record));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_is_late_is_named),
		cmocka_unit_test(a_trace_adds_up_to_the_statistics),
		cmocka_unit_test(a_full_trace_keeps_the_last),
		cmocka_unit_test(training_does_without_a_trace),
		cmocka_unit_test(what_is_no_trace_is_refused),
	};

	bear_silence();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
