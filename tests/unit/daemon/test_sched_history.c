/* The history of a live cluster: what is written, and what is left after a kill, on a full disk, in
 * damaged files, and after months. */
#include "daemon/history/history.h"

#include "base/fault.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/times.h"
#include "seed.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define NODES 3u
#define SLOTS 4u
#define JOBS  12u /* jobs of a world, a few of them at a time */
#define BEGIN 1700000000.0
#define TEXT  65536u

static char folder[] = "/tmp/pawl-history-XXXXXX";
static char dir[64];
static uint64_t first_seed;

/* ---- a made-up cluster ---- */

struct world {
	struct rng rng;
	struct history *history;
	double now_s;
	uint32_t used[NODES];
	uint32_t at[JOBS][NODES];
	uint32_t restarts[JOBS];
	bool there[NODES];
	uint64_t first; /* id of the job at place 0 */
};

static struct history *open_history(uint64_t file_bytes, uint64_t all_bytes)
{
	const struct history_options options = {.dir = dir,
		.host = "host",
		.policy = "pawl",
		.group = (gid_t)-1,
		.file_bytes = file_bytes,
		.all_bytes = all_bytes};
	struct history *history = NULL;

	assert_int_equal(history_open(&history, &options, NULL), 0);
	return history;
}

static struct history_node make_node(uint32_t n, uint32_t slots, const char *state)
{
	struct history_node node = {.slots = slots, .price = 2.5, .spot = n == 1};

	snprintf(node.name, sizeof(node.name), "node%u", n);
	snprintf(node.pool, sizeof(node.pool), "%s", n == 1 ? "spot" : "");
	snprintf(node.type, sizeof(node.type), "A100");
	snprintf(node.state, sizeof(node.state), "%s", state);
	return node;
}

static void put_job(struct world *w, uint32_t j, const char *state, bool over)
{
	struct history_job job = {.id = w->first + j,
		.user = "ann",
		.queue = "default",
		.least = 1,
		.most = 8,
		.submitted_s = BEGIN,
		.restarts = w->restarts[j],
		.over = over,
		.exit_code = over ? 3 : 0};

	job.entries = calloc(NODES, sizeof(*job.entries));
	assert_non_null(job.entries);
	for (uint32_t n = 0; n < NODES && !over; n++) {
		if (w->at[j][n] > 0) {
			struct history_entry *entry = &job.entries[job.entries_n++];

			entry->replicas = w->at[j][n];
			snprintf(entry->node, sizeof(entry->node), "node%u", n);
		}
	}
	snprintf(job.name, sizeof(job.name), "job-%u", j);
	snprintf(job.state, sizeof(job.state), "%s", state);
	snprintf(job.why, sizeof(job.why), "so it was decided");
	history_put_job(w->history, &job);
}

static void leave(struct world *w, uint32_t j)
{
	for (uint32_t n = 0; n < NODES; n++) {
		w->used[n] -= w->at[j][n];
		w->at[j][n] = 0;
	}
}

/* Changes a job's slots or ends it, or lets a node come or drain. Some steps change nothing. */
static void step(struct world *w)
{
	uint32_t j = (uint32_t)rng_below(&w->rng, JOBS);
	uint32_t n = (uint32_t)rng_below(&w->rng, NODES);
	uint32_t room = SLOTS - w->used[n];
	struct history_node node = make_node(n, SLOTS, rng_below(&w->rng, 2) ? "up" : "drained");

	w->now_s += 1 + (double)rng_below(&w->rng, 50);
	history_begin(w->history, w->now_s);
	if (!w->there[n]) {
		w->there[n] = true;
		history_put_node(w->history, &node);
	}
	switch (rng_below(&w->rng, 4)) {
	case 0:
		history_put_node(w->history, &node);
		break;
	case 1:
		leave(w, j);
		put_job(w, j, "failed", true);
		break;
	case 2:
		leave(w, j);
		put_job(w, j, "queued", false);
		break;
	default:
		if (room > 0) {
			w->at[j][n] += 1;
			w->used[n] += 1;
			w->restarts[j]++;
			put_job(w, j, "running", false);
		}
	}
	history_end(w->history);
}

static struct world begin(uint64_t file_bytes, uint64_t all_bytes)
{
	struct world w = {.rng = {first_seed}, .now_s = BEGIN, .first = 1};

	w.history = open_history(file_bytes, all_bytes);
	return w;
}

static void wipe(void)
{
	DIR *opened = opendir(dir);
	struct dirent *entry;

	while (opened && (entry = readdir(opened)) != NULL) {
		char path[512];

		snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name);
		unlink(path);
	}
	if (opened) {
		closedir(opened);
	}
	rmdir(dir);
}

/* Writes what the history knows as text. */
static void format_history(const struct history *history, char text[TEXT])
{
	const struct history_node *const *nodes;
	const struct history_job *const *jobs;
	uint32_t nodes_n = history_nodes(history, &nodes);
	uint32_t jobs_n = history_jobs(history, &jobs);
	size_t len = 0;

	text[0] = '\0';
	for (uint32_t i = 0; i < nodes_n; i++) {
		const struct history_node *n = nodes[i];

		len += (size_t)snprintf(text + len, TEXT - len, "%s %s %s %s %u %g %d\n", n->name,
			n->pool, n->type, n->state, n->slots, n->price, n->spot);
	}
	for (uint32_t i = 0; i < jobs_n; i++) {
		const struct history_job *j = jobs[i];

		len += (size_t)snprintf(text + len, TEXT - len,
			"%llu %s %s %s %s %u %.0f %.0f:", (unsigned long long)j->id, j->name,
			j->user, j->state, j->why, j->restarts, j->submitted_s, j->begun_s);
		for (uint32_t s = 0; s < j->entries_n; s++) {
			len += (size_t)snprintf(text + len, TEXT - len, " %s(%u)",
				j->entries[s].node, j->entries[s].replicas);
		}
		len += (size_t)snprintf(text + len, TEXT - len, "\n");
	}
	assert_true(len < TEXT);
}

static void check_fits(const struct history *history)
{
	const struct history_job *const *jobs;
	uint32_t n = history_jobs(history, &jobs);
	uint32_t used[NODES] = {0};

	for (uint32_t i = 0; i < n; i++) {
		for (uint32_t s = 0; s < jobs[i]->entries_n; s++) {
			uint32_t node = (uint32_t)(jobs[i]->entries[s].node[4] - '0');

			used[node] += jobs[i]->entries[s].replicas;
			assert_true(used[node] <= SLOTS);
		}
	}
}

static uint32_t count_files(uint64_t *all_bytes)
{
	uint64_t *numbers = NULL;
	uint32_t n = 0;

	*all_bytes = 0;
	assert_int_equal(history_files(dir, &numbers, &n, NULL), 0);
	for (uint32_t i = 0; i < n; i++) {
		char path[PATH_MAX];
		struct stat st;

		assert_true(i == 0 || numbers[i] > numbers[i - 1]);
		history_file_name(dir, numbers[i], path);
		assert_int_equal(stat(path, &st), 0);
		*all_bytes += (uint64_t)st.st_size;
	}
	free(numbers);
	return n;
}

static void read_number(uint64_t number, char **bytes, size_t *len)
{
	assert_int_equal(history_file_read(dir, number, bytes, len, NULL), 0);
}

/* Checks that every line is whole, and that times rise. Returns the number of lines. */
static uint32_t check_lines(const char *bytes, size_t len)
{
	double last_s = 0;
	uint32_t n = 0;

	for (size_t at = 0; at < len;) {
		const char *end = memchr(bytes + at, '\n', len - at);
		struct history_row row;

		assert_non_null(end);
		assert_int_equal(
			history_row_decode(&row, bytes + at, (size_t)(end - bytes) - at, NULL), 0);
		assert_true(row.t_s >= last_s && (row.kind == HISTORY_FILE_HEADER) == (n == 0));
		last_s = row.t_s;
		history_row_deinit(&row);
		at = (size_t)(end - bytes) + 1;
		n++;
	}
	return n;
}

/* ---- what is written ---- */

static void rows_are_known_after_reopening(void **state)
{
	static char before[TEXT];
	static char after[TEXT];
	struct world w = begin(1u << 20, 1u << 20);

	for (uint32_t i = 0; i < 200; i++) {
		step(&w);
		check_fits(w.history);
	}
	format_history(w.history, before);
	history_close(w.history);
	w.history = open_history(1u << 20, 1u << 20);
	format_history(w.history, after);
	assert_string_equal(after, before);
	assert_non_null(strstr(before, "node0"));
	assert_non_null(strstr(before, "job-"));
	history_close(w.history);
	wipe();
}

static void unchanged_rows_are_not_written(void **state)
{
	struct world w = begin(1u << 20, 1u << 20);
	uint64_t first_bytes;
	uint64_t bytes;

	step(&w);
	history_begin(w.history, w.now_s + 1);
	put_job(&w, 0, "queued", false);
	history_end(w.history);
	count_files(&first_bytes);
	for (uint32_t i = 0; i < 10; i++) {
		history_begin(w.history, w.now_s + 2 + i);
		put_job(&w, 0, "queued", false);
		history_end(w.history);
	}
	count_files(&bytes);
	assert_int_equal(bytes, first_bytes);
	history_close(w.history);
	wipe();
}

static void put_goodput(struct history *history, double t_s, double goodput)
{
	struct history_job job = {.id = 9,
		.name = "g",
		.state = "running",
		.goodput = goodput,
		.batch = 64,
		.entries = calloc(1, sizeof(*job.entries))};

	history_begin(history, t_s);
	history_put_job(history, &job);
	history_end(history);
}

static void goodput_alone_is_written_rarely(void **state)
{
	struct history *history = open_history(1u << 20, 1u << 20);

	put_goodput(history, BEGIN, 0);
	put_goodput(history, BEGIN + 1, 100); /* the first that is known */
	assert_true(history_job_find(history, 9)->goodput == 100);
	put_goodput(history, BEGIN + 2, 150);
	assert_true(history_job_find(history, 9)->goodput == 100); /* too soon */
	put_goodput(history, BEGIN + 400, 105);
	assert_true(history_job_find(history, 9)->goodput == 100); /* too little */
	put_goodput(history, BEGIN + 401, 150);
	assert_true(history_job_find(history, 9)->goodput == 150);
	history_close(history);
	wipe();
}

static void time_goes_on_though_the_clock_is_set_back(void **state)
{
	struct world w = begin(1u << 20, 1u << 20);
	char *bytes;
	size_t len;

	for (uint32_t i = 0; i < 100; i++) {
		step(&w);
		w.now_s -= i % 10 == 5 ? 1000 : 0;
	}
	history_close(w.history);
	read_number(1, &bytes, &len);
	check_lines(bytes, len);
	free(bytes);
	wipe();
}

/* Without a group, only the owner can read it. */
static void modes_are_narrow(void **state)
{
	struct world w = begin(1u << 20, 1u << 20);
	char path[PATH_MAX];
	struct stat st;

	step(&w);
	assert_int_equal(stat(dir, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	history_file_name(dir, 1, path);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0640);
	history_close(w.history);
	wipe();
}

/* ---- what stays on disk ---- */

static void write_file(uint64_t number, const char *bytes, size_t len)
{
	char path[PATH_MAX];
	int fd;

	history_file_name(dir, number, path);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0640);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, len), len);
	close(fd);
}

static void cut_anywhere_whole_steps_are_left(void **state)
{
	struct world w = begin(1u << 20, 1u << 20);
	char *bytes;
	char *again;
	size_t len;
	size_t again_len;

	for (uint32_t i = 0; i < 40; i++) {
		step(&w);
	}
	history_close(w.history);
	read_number(1, &bytes, &len);
	for (size_t cut = 0; cut < len; cut += cut < 2000 || cut + 2000 > len ? 1 : 97) {
		struct world more = {.now_s = w.now_s, .first = 100, .rng = {first_seed}};

		write_file(1, bytes, cut);
		more.history = open_history(1u << 20, 1u << 20);
		check_fits(more.history);
		history_begin(more.history, more.now_s + 1);
		put_job(&more, 0, "queued", false);
		history_end(more.history);
		history_close(more.history);
		read_number(1, &again, &again_len);
		assert_true(check_lines(again, again_len) > 0);
		free(again);
	}
	free(bytes);
	wipe();
}

static void a_damaged_file_is_left_alone_and_another_one_begun(void **state)
{
	struct world w = begin(1u << 20, 1u << 20);
	char *bytes;
	char *again;
	size_t len;
	size_t again_len;
	uint64_t all;

	for (uint32_t i = 0; i < 40; i++) {
		step(&w);
	}
	history_close(w.history);
	read_number(1, &bytes, &len);
	memcpy(bytes + len / 2, "\n{{{\n", 5);
	write_file(1, bytes, len);
	log_set_level(LOG_ERROR);
	w.history = open_history(1u << 20, 1u << 20);
	log_set_level(LOG_INFO);
	step(&w);
	history_close(w.history);
	assert_int_equal(count_files(&all), 2);
	read_number(1, &again, &again_len);
	assert_int_equal(again_len, len);
	assert_memory_equal(again, bytes, len);
	free(again);
	read_number(2, &again, &again_len);
	assert_true(check_lines(again, again_len) > 0);
	free(again);
	free(bytes);
	wipe();
}

static void months_take_no_more_than_a_bound(void **state)
{
	static char before[TEXT];
	static char after[TEXT];
	struct world w = begin(4000, 20000);
	char *bytes;
	size_t len;
	uint64_t all;
	uint64_t most = 0;

	for (uint32_t i = 0; i < 3000; i++) {
		step(&w);
		count_files(&all);
		most = all > most ? all : most;
	}
	printf("at most %llu bytes\n", (unsigned long long)most);
	/* The files that are kept, and the one that grows, with its last step. */
	assert_true(most > 15000 && most < 20000 + 4000 + 8000);
	format_history(w.history, before);
	history_close(w.history);
	w.history = open_history(4000, 20000);
	format_history(w.history, after);
	assert_string_equal(after, before);
	history_close(w.history);
	assert_true(count_files(&all) >= 2);
	for (uint64_t number = 1; number < 10000; number++) {
		if (history_file_read(dir, number, &bytes, &len, NULL) == 0) {
			check_lines(bytes, len);
			free(bytes);
		}
	}
	wipe();
}

/* Each call that can fail does, once or from then on. All puts are in memory nevertheless, and
 * once the disk has room, a file has them, and the time since which rows are lost. */
static void a_full_disk_costs_rows_and_nothing_else(void **state)
{
	static char before[TEXT];
	static char after[TEXT];

	log_set_level(LOG_ERROR);
	for (uint64_t n = 1, passed = n; passed >= n; n++) {
		struct world w = begin(1500, 1u << 20);
		bool lost = false;
		uint64_t *numbers;
		uint32_t files;

		fault_arm("history.", n, ENOSPC, n % 2 == 0);
		for (uint32_t i = 0; i < 60; i++) {
			step(&w);
		}
		passed = fault_count();
		fault_disarm();
		w.now_s += 2 * times_s(TIME_HISTORY_AGAIN);
		for (uint32_t i = 0; i < 5; i++) {
			step(&w);
		}
		format_history(w.history, before);
		history_close(w.history);
		w.history = open_history(1500, 1u << 20);
		format_history(w.history, after);
		assert_string_equal(after, before);
		history_close(w.history);
		assert_int_equal(history_files(dir, &numbers, &files, NULL), 0);
		for (uint32_t i = 0; i < files; i++) {
			char *bytes;
			size_t len;

			read_number(numbers[i], &bytes, &len);
			lost = lost || memmem(bytes, len, "\"lost\":", 7) != NULL;
			free(bytes);
		}
		free(numbers);
		assert_true(lost == (passed >= n));
		wipe();
	}
	log_set_level(LOG_INFO);
}

/* ---- the history of one job ---- */

struct seen {
	uint32_t n;
	char text[2000];
	size_t len;
};

static void see(void *user, const struct history_row *row)
{
	struct seen *seen = user;

	seen->n++;
	seen->len += (size_t)snprintf(seen->text + seen->len, sizeof(seen->text) - seen->len,
		"%.0f %s %u;", row->t_s - BEGIN, row->job.state,
		row->job.entries_n > 0 ? row->job.entries[0].replicas : 0);
	assert_true(seen->len < sizeof(seen->text));
}

static void record_change(struct world *w, double t_s, uint32_t replicas, const char *what)
{
	w->at[0][0] = replicas;
	history_begin(w->history, BEGIN + t_s);
	put_job(w, 0, what, strcmp(what, "done") == 0);
	history_end(w->history);
}

static void newest_changes_of_a_job_are_read(void **state)
{
	struct world w = begin(100, 1u << 20); /* a file a step */
	struct seen seen = {0};
	uint64_t highest = 0;
	int fd;
	uint64_t all;
	char path[PATH_MAX];

	w.first = 7;
	record_change(&w, 0, 0, "queued");
	record_change(&w, 10, 2, "running");
	w.first = 77; /* another job, whose number begins alike */
	record_change(&w, 15, 1, "running");
	w.first = 7;
	record_change(&w, 20, 3, "running");
	assert_int_equal(history_read_job(dir, 7, 8, see, &seen, NULL), 0);
	assert_string_equal(seen.text, "0 queued 0;10 running 2;20 running 3;");
	record_change(&w, 30, 0, "done");
	history_file_name(dir, count_files(&all), path);
	fd = open(path, O_WRONLY | O_APPEND);
	assert_int_equal(write(fd, "{\"t\":1700000040.0,\"job\":7,", 26), 26); /* half a line */
	close(fd);
	seen = (struct seen){0};
	assert_int_equal(history_read_job(dir, 7, 2, see, &seen, NULL), 0);
	assert_string_equal(seen.text, "20 running 3;30 done 0;");
	assert_int_equal(history_read_job(dir, 8, 2, see, &seen, NULL), PAWL_ENOENT);
	history_highest_job(dir, &highest);
	assert_int_equal(highest, 77); /* in an older file alone */
	history_close(w.history);
	wipe();
	assert_int_equal(history_read_job(dir, 7, 2, see, &seen, NULL), PAWL_ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rows_are_known_after_reopening),
		cmocka_unit_test(unchanged_rows_are_not_written),
		cmocka_unit_test(goodput_alone_is_written_rarely),
		cmocka_unit_test(time_goes_on_though_the_clock_is_set_back),
		cmocka_unit_test(modes_are_narrow),
		cmocka_unit_test(cut_anywhere_whole_steps_are_left),
		cmocka_unit_test(a_damaged_file_is_left_alone_and_another_one_begun),
		cmocka_unit_test(months_take_no_more_than_a_bound),
		cmocka_unit_test(a_full_disk_costs_rows_and_nothing_else),
		cmocka_unit_test(newest_changes_of_a_job_are_read),
	};
	int rv;

	first_seed = test_seed();
	if (!mkdtemp(folder)) {
		return 1;
	}
	snprintf(dir, sizeof(dir), "%s/history", folder);
	rv = cmocka_run_group_tests(tests, NULL, NULL);
	rmdir(folder);
	return rv;
}
