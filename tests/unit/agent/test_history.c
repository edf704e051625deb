/* Rows of the history and of the events: their format, what a crash, a full disk or another version
 * leaves, and that no row is lost or written twice. */
#include "agent/persist/events.h"
#include "agent/persist/history.h"
#include "base/clock.h"
#include "base/rng.h"
#include "ckpt/root.h"
#include "pawl/err.h"
#include "seed.h"
#include "store/dirs.h"
#include "store/fault.h"
#include "store/mem.h"
#include "store/store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h needs the standard headers above. */
#include <cmocka.h>

#define OLD_HEADER                                                                                 \
	"time,job,attempt,step,tag,level,files,bytes,stall_ms,stage_ms,persist_ms,mib_per_s\n"
#define NOON_NS 1700000000500000000LL /* 2023-11-14T22:13:20.5Z */

static struct tags_root *root;
static struct store *store; /* the root's */
static struct pawl_err err;

static int open_store(void **state)
{
	return store_mem_open(&store, &err) || tags_root_over(store, &root, &err);
}

static int close_store(void **state)
{
	tags_root_close(root);
	return 0;
}

static void put_file(const char *name, const char *text)
{
	assert_int_equal(store_write_small(store, name, text, strlen(text), &err), 0);
}

/* Returns the file's text, which the caller frees; "" if there is no file. */
static char *text_of(struct store *from, const char *name)
{
	void *bytes;
	size_t len;

	if (store_read_small(from, name, &bytes, &len, ROWS_FILE_MAX, NULL) != 0) {
		return strdup("");
	}
	return bytes;
}

static void assert_text(const char *name, const char *expected)
{
	char *text = text_of(store, name);

	assert_string_equal(text, expected);
	free(text);
}

static struct rows rows_of(const char *file, const char *header)
{
	struct rows rows;

	assert_int_equal(rows_init(&rows, file, header, &err), 0);
	return rows;
}

static struct rows history_rows(void)
{
	return rows_of(HISTORY_FILE, HISTORY_HEADER);
}

static void queue_line(struct rows *rows, const char *line)
{
	wire_put_raw(&rows->row, line, strlen(line));
	rows_queue(rows);
}

/* ---- the format of rows ---- */

static void a_row_holds_what_is_known(void **state)
{
	struct wire_out out = {0};
	struct history_row row = {.level = HISTORY_DURABLE,
		.step = 7,
		.tag = "best, so far",
		.attempt = 2,
		.ranks = 4,
		.begun_ns = NOON_NS,
		.stall_ns = 1500000,
		.stage_ns = 20000000,
		.persist_ns = 500 * NS_PER_MS,
		.files = 3,
		.size_bytes = 1 << 20,
		.partitions = "model optimizer"};

	history_put(&out, &row, "a \"job\"", NOON_NS + NS_PER_S);
	row = (struct history_row){.step = 8, .tag = "t8", .ranks = 1, .why = "a\nb"};
	history_put(&out, &row, "j", NOON_NS);
	wire_put_u8(&out, 0);
	assert_string_equal((char *)out.bytes,
		"2023-11-14T22:13:21Z,\"a \"\"job\"\"\",2,7,\"best, so far\",durable,3,1048576,"
		"1.500,20.000,500.000,2.0,2023-11-14T22:13:20.500Z,4,model optimizer,\n"
		"2023-11-14T22:13:20Z,j,0,8,t8,failed,,,,,,,,1,,a b\n");
	wire_out_deinit(&out);
}

static void fields_come_apart_as_they_went_together(void **state)
{
	uint64_t seed = test_seed();
	struct rng rng = {seed};
	static const char letters[] = "a,\"b ";
	char texts[4][8];
	char *fields[4];

	for (unsigned n = 0; n < 20000; n++) {
		struct wire_out out = {0};

		for (unsigned f = 0; f < 4; f++) {
			size_t len = rng_below(&rng, sizeof(texts[f]));

			for (size_t i = 0; i < len; i++) {
				texts[f][i] = letters[rng_below(&rng, sizeof(letters) - 1)];
			}
			texts[f][len] = '\0';
			rows_put_text(&out, texts[f], f == 3);
		}
		assert_int_equal(out.bytes[out.len_bytes - 1], '\n');
		out.bytes[out.len_bytes - 1] = '\0';
		assert_int_equal(rows_split((char *)out.bytes, fields, 4), 4);
		for (unsigned f = 0; f < 4; f++) {
			assert_string_equal(fields[f], texts[f]);
		}
		wire_out_deinit(&out);
	}
}

static void times_are_read_back(void **state)
{
	char text[ROWS_TIME_MAX];

	assert_int_equal(rows_time_ns(rows_time(text, NOON_NS, true)), NOON_NS);
	assert_int_equal(rows_time_ns(rows_time(text, NOON_NS, false)), NOON_NS - 500 * NS_PER_MS);
	assert_string_equal(rows_time(text, 0, true), "");
	assert_int_equal(rows_time_ns("yesterday"), 0);
	assert_int_equal(rows_time_ns(""), 0);
}

/* ---- writing ---- */

static void rows_are_durable_only_when_asked(void **state)
{
	struct rows rows = rows_of("r.csv", "h\n");
	struct store *after;
	char *text;

	queue_line(&rows, "1\n");
	queue_line(&rows, "2\n");
	rows_take(&rows);
	assert_int_equal(rows_write(&rows, root, true, &err), 0);
	assert_int_equal(store_sync_dir(store, "", &err), 0);
	queue_line(&rows, "3\n");
	rows_take(&rows);
	assert_int_equal(rows_write(&rows, root, false, &err), 0);
	assert_text("r.csv", "h\n1\n2\n3\n");
	assert_int_equal(store_mem_after_crash(store, MEM_LOSE, NULL, &after, &err), 0);
	text = text_of(after, "r.csv");
	assert_string_equal(text, "h\n1\n2\n");
	free(text);
	store_close(after);
	rows_deinit(&rows);
}

/* A disk fails at any operation, tearing what it writes, and then works again: each row is there
 * once, whatever else is. */
static void no_row_is_lost_or_doubled_by_a_disk_that_fails(void **state)
{
	for (unsigned nth = 1; nth < 12; nth++) {
		struct rows rows = rows_of("r.csv", "head\n");
		struct store_fault_plan plan = {.what = STORE_FAULT_TEAR,
			.nth = nth,
			.code = PAWL_ENOSPC};
		struct tags_root *faulty_root;
		struct store *mem;
		struct store *faulty;
		char line[16];
		char *text;

		assert_int_equal(store_mem_open(&mem, &err), 0);
		assert_int_equal(store_fault_open(mem, &plan, &faulty, &err), 0);
		assert_int_equal(tags_root_over(faulty, &faulty_root, &err), 0);
		for (unsigned i = 0; i < 10; i++) {
			snprintf(line, sizeof(line), "row%u\n", i);
			queue_line(&rows, line);
			if (i % 2 == 1) {
				rows_take(&rows);
				rows_write(&rows, faulty_root, i % 4 == 1, &err);
			}
		}
		assert_int_equal(rows_write(&rows, faulty_root, true, &err), 0);
		text = text_of(faulty, "r.csv");
		assert_int_equal(strncmp(text, "head\n", 5), 0);
		for (unsigned i = 0; i < 10; i++) {
			char *at;

			snprintf(line, sizeof(line), "\nrow%u\n", i);
			at = strstr(text, line);
			assert_non_null(at);
			assert_null(strstr(at + 1, line));
		}
		free(text);
		rows_deinit(&rows);
		tags_root_close(faulty_root);
	}
}

static void what_finds_no_room_is_counted(void **state)
{
	struct rows rows = rows_of("none/r.csv", "h\n");
	char line[1024];
	unsigned n = 0;

	memset(line, 'x', sizeof(line));
	line[sizeof(line) - 2] = '\n';
	line[sizeof(line) - 1] = '\0';
	for (; n < 4000; n++) {
		queue_line(&rows, line);
		rows_take(&rows);
		assert_int_not_equal(rows_write(&rows, root, false, &err), 0); /* no such folder */
	}
	assert_in_range(rows.taken.len_bytes + rows.queued.len_bytes, ROWS_QUEUED_MAX,
		2 * ROWS_QUEUED_MAX + sizeof(line));
	assert_int_equal((rows.taken.len_bytes + rows.queued.len_bytes) / strlen(line) + rows.lost,
		n);
	rows_deinit(&rows);
}

/* ---- at start ---- */

static void recover(struct rows *rows)
{
	int64_t latest_ns;

	assert_int_equal(history_recover(rows, root, &latest_ns, &err), 0);
	rows_take(rows);
	assert_int_equal(rows_write(rows, root, true, &err), 0);
}

static void the_older_header_is_brought_to_this_one(void **state)
{
	struct rows rows = history_rows();

	put_file(HISTORY_FILE,
		OLD_HEADER "2026-11-20T10:00:00Z,a,b,0,5,global_step5,durable,2,9,1,2,3,4\n"
			   "2026-11-20T10:00:01Z,j,1,6,global_step6,durable,2,9,,,,\n"
			   "2026-11-20T10:00:02Z,j,1,7,glob");
	recover(&rows);
	assert_text(HISTORY_FILE,
		HISTORY_HEADER
		"2026-11-20T10:00:00Z,\"a,b\",0,5,global_step5,durable,2,9,1,2,3,4,,,,\n"
		"2026-11-20T10:00:01Z,j,1,6,global_step6,durable,2,9,,,,,,,,\n");
	rows_deinit(&rows);
}

static void a_foreign_file_is_put_aside(void **state)
{
	struct rows rows = history_rows();
	struct rows events = rows_of(EVENTS_FILE, EVENTS_HEADER);
	struct events_past past;

	put_file(HISTORY_FILE, "step,loss\n1,2\n");
	put_file(EVENTS_FILE, "");
	recover(&rows);
	assert_text(HISTORY_FILE, "");
	assert_text("checkpointHistories.old.csv", "step,loss\n1,2\n");
	assert_int_equal(events_recover(&events, root, 0, &past, &err), 0);
	assert_int_equal(store_stat(store, EVENTS_FILE, NULL, NULL, &err), PAWL_ENOENT);
	queue_line(&rows, "x\n");
	rows_take(&rows);
	assert_int_equal(rows_write(&rows, root, true, &err), 0);
	assert_text(HISTORY_FILE, HISTORY_HEADER "x\n");
	rows_deinit(&rows);
	rows_deinit(&events);
}

static void a_torn_row_does_not_spoil_the_next(void **state)
{
	struct rows rows = history_rows();

	put_file(HISTORY_FILE, HISTORY_HEADER "2026-11-20T10:00:00Z,j,0,5,glo");
	recover(&rows);
	queue_line(&rows, "x\n");
	rows_take(&rows);
	assert_int_equal(rows_write(&rows, root, true, &err), 0);
	assert_text(HISTORY_FILE, HISTORY_HEADER "2026-11-20T10:00:00Z,j,0,5,glo\nx\n");
	rows_deinit(&rows);
}

/* ---- events ---- */

static void runs_are_summed_up(void **state)
{
	char text[] = EVENTS_HEADER
		"2026-11-20T10:00:00.000Z,j,0,started,2,,\n"
		"2026-11-20T10:00:10.500Z,j,0,failed,2,4,\"rank 1 (pid 5) is gone, alas\"\n"
		"2026-11-20T10:00:11.000Z,j,1,started,2,,\n"
		"2026-11-20T10:00:12.000Z,j,1,restored,2,4,memory\n"
		"2026-11-20T10:00:31.000Z,j,1,ended,2,9,\n"
		"2026-11-20T11:00:00.000Z,j,0,started,2,,\n"
		"2026-11-20T11:00:05.000Z,j,0,lost,2,9,\n"
		"garbage\n"
		"2026-11-20T12:00:00.000Z,j,3,started,8,,\n"
		"2026-11-20T12:00:01.000Z,j,3,restored,8,9,store\n";
	struct events_past past;
	struct event open;
	char job[CKPT_JOB_MAX];

	assert_true(events_sum(text, &past, &open, job, sizeof(job)));
	assert_int_equal(past.failures, 2);
	assert_int_equal(past.losses, 1);
	assert_int_equal((int)(past.run_s * 1000 + 0.5), 10500 + 20000 + 5000 + 1000);
	assert_int_equal(open.attempt, 3);
	assert_int_equal(open.ranks, 8);
	assert_string_equal(job, "j");
}

static void the_next_agent_writes_the_end_of_a_lost_run(void **state)
{
	struct rows rows = rows_of(EVENTS_FILE, EVENTS_HEADER);
	struct events_past past;

	put_file(EVENTS_FILE,
		EVENTS_HEADER "2026-11-20T10:00:00.000Z,j,2,started,4,,\n"
			      "2026-11-20T10:00:01.000Z,j,2,restored,4,9,store\n");
	assert_int_equal(
		events_recover(&rows, root, rows_time_ns("2026-11-20T10:00:30Z"), &past, &err), 0);
	assert_int_equal(past.failures, 1);
	assert_int_equal(past.losses, 1);
	assert_int_equal((int)(past.run_s + 0.5), 30);
	assert_int_equal(rows_write(&rows, root, true, &err), 0);
	assert_text(EVENTS_FILE,
		EVENTS_HEADER "2026-11-20T10:00:00.000Z,j,2,started,4,,\n"
			      "2026-11-20T10:00:01.000Z,j,2,restored,4,9,store\n"
			      "2026-11-20T10:00:30.000Z,j,2,lost,4,,\"the agent was gone, with its "
			      "workers\"\n");
	assert_int_equal(events_recover(&rows, root, 0, &past, &err), 0);
	assert_int_equal(past.failures, 1);
	assert_int_equal((int)(past.run_s + 0.5), 30);
	assert_int_equal(rows.taken.len_bytes, 0);
	rows_deinit(&rows);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_row_holds_what_is_known),
		cmocka_unit_test(fields_come_apart_as_they_went_together),
		cmocka_unit_test(times_are_read_back),
		cmocka_unit_test_setup_teardown(rows_are_durable_only_when_asked, open_store,
			close_store),
		cmocka_unit_test(no_row_is_lost_or_doubled_by_a_disk_that_fails),
		cmocka_unit_test_setup_teardown(what_finds_no_room_is_counted, open_store,
			close_store),
		cmocka_unit_test_setup_teardown(the_older_header_is_brought_to_this_one, open_store,
			close_store),
		cmocka_unit_test_setup_teardown(a_foreign_file_is_put_aside, open_store,
			close_store),
		cmocka_unit_test_setup_teardown(a_torn_row_does_not_spoil_the_next, open_store,
			close_store),
		cmocka_unit_test(runs_are_summed_up),
		cmocka_unit_test_setup_teardown(the_next_agent_writes_the_end_of_a_lost_run,
			open_store, close_store),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
