/* The scheduler's database: what is written is read back, after a kill at any point; and each error
 * is reported. */
#include "base/fault.h"
#include "base/rng.h"
#include "each_fault.h"
#include "equal.h"
#include "sched/database/database.h"
#include "seed.h"
#include "within.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define S_NS     1000000000LL
#define DUMP_MAX (1u << 20)
#define KILLS    30u
#define JOBS     20u

/* What a child that will be killed shares: the dumps before and after the save under way. */
struct reported {
	volatile uint64_t saves;   /* number of saves that have returned */
	volatile uint32_t at;      /* index of the newest dump that is saved */
	volatile uint32_t pending; /* the other dump is being saved */
	size_t len[2];
	uint8_t bytes[2][DUMP_MAX];
};

static uint64_t first_seed;
static char dir[] = "/tmp/pawl-sched-XXXXXX";
static char path[64];
static struct reported *reported;
static const struct core_queue queues[] = {{.name = "main", .weight = 1}};
static const struct core_options options = {.queues = queues,
	.queues_n = 1,
	.round_ns = 60 * S_NS,
	.start_timeout_ns = 60 * S_NS,
	.kill_interval_ns = 10 * S_NS,
	.backoff_ns = S_NS,
	.backoff_max_ns = 60 * S_NS,
	.policy = &equal_policy};

static void wipe(void)
{
	char name[80];

	for (uint32_t i = 0; i < 3; i++) {
		static const char *const ends[] = {"", "-wal", "-shm"};

		snprintf(name, sizeof(name), "%s%s", path, ends[i]);
		unlink(name);
	}
}

static struct sched_database *open_database(void)
{
	struct sched_database *database = NULL;
	struct pawl_err err;

	if (sched_database_open(&database, path, true, &err) != 0) {
		fail_msg("%s", err.msg);
	}
	return database;
}

static void read_dump(struct sched_core *core, uint8_t *bytes, size_t *len)
{
	uint8_t *dump = NULL;

	assert_int_equal(core_dump(core, &dump, len, NULL), 0);
	assert_true(*len <= DUMP_MAX);
	memcpy(bytes, dump, *len);
	free(dump);
}

/* Makes something happen to some job. */
static void happen(struct sched_core *core, struct rng *rng, int64_t now_ns)
{
	const struct core_job *const *jobs;
	uint32_t n = core_jobs(core, &jobs);
	const struct core_job *job = n > 0 ? jobs[rng_below(rng, n)] : NULL;
	struct core_request request = {.name = "job",
		.least = 1,
		.most = 4,
		.retries = 3,
		.in_place = true};
	struct core_offer offer = {.name = "node", .slots = 8};
	struct sched_hints hints = {.progress = (double)rng_below(rng, 1000)};
	struct core_event event = {.kind = CORE_SUBMIT,
		.now_ns = now_ns,
		.request = &request,
		.offer = &offer,
		.hints = &hints,
		.node = offer.name};
	uint64_t id;

	if (job && (n >= JOBS || rng_below(rng, 3) > 0)) {
		static const enum core_event_kind kinds[] = {CORE_RUNS, CORE_RUNS, CORE_ENDED,
			CORE_HINTS, CORE_CANCEL, CORE_PAUSE, CORE_RESUME, CORE_REFUSED};

		event.kind = kinds[rng_below(rng, 8)];
		event.job = job->id;
		event.generation = job->generation;
		event.exit_code = (int)rng_below(rng, 2);
	} else if (rng_below(rng, 4) == 0) {
		snprintf(offer.name, sizeof(offer.name), "node%u", (unsigned)rng_below(rng, 4));
		event.kind = rng_below(rng, 3) == 0 ? CORE_NODE_GONE : CORE_NODE_REPORTED;
	}
	core_step(core, &event, &id, NULL);
}

/* Runs a scheduler, reported to the parent, until it is killed or after so many saves. */
static int live(uint64_t seed, uint64_t saves)
{
	struct rng rng = {seed};
	struct sched_database *database = NULL;
	struct sched_core *core = NULL;
	struct database_clock clock;
	struct pawl_err err;
	int rv = sched_database_open(&database, path, true, &err);

	rv = rv == 0 ? sched_database_restore(database, &options, &core, &clock, &err) : rv;
	if (rv == 0) {
		core_step(core, &(struct core_event){.kind = CORE_LISTED, .now_ns = S_NS}, NULL,
			NULL);
	}
	for (uint64_t i = 0; i < saves && rv == 0; i++) {
		uint32_t other = 1 - reported->at;

		clock.core_ns += S_NS;
		if (i > 0) {
			happen(core, &rng, clock.core_ns);
		}
		read_dump(core, reported->bytes[other], &reported->len[other]);
		reported->pending = 1;
		rv = sched_database_save(database, core, &clock,
			&(struct database_spec){.job = i, .bytes = "spec", .len_bytes = 4}, &err);
		if (rv == 0) {
			reported->at = other;
			reported->pending = 0;
			reported->saves++;
		}
	}
	if (rv != 0 && !fault_armed) {
		print_message("%s\n", err.msg);
	}
	core_close(core);
	sched_database_close(database);
	return rv;
}

/* Returns whether the stored state is the one reported last, or the one that was being saved. */
static bool is_as_reported(void)
{
	static uint8_t bytes[DUMP_MAX];
	struct sched_database *database = open_database();
	struct sched_core *core = NULL;
	struct database_clock clock;
	struct pawl_err err;
	size_t len;
	uint32_t at = reported->at;
	bool same;

	if (sched_database_restore(database, &options, &core, &clock, &err) != 0) {
		fail_msg("%s", err.msg);
	}
	read_dump(core, bytes, &len);
	same = len == reported->len[at] && memcmp(bytes, reported->bytes[at], len) == 0;
	if (!same && reported->pending) {
		same = len == reported->len[1 - at] &&
			memcmp(bytes, reported->bytes[1 - at], len) == 0;
	}
	read_dump(core, reported->bytes[at], &reported->len[at]);
	reported->pending = 0;
	core_close(core);
	sched_database_close(database);
	return same;
}

static void begin(void)
{
	struct sched_database *database;
	struct sched_core *core = NULL;
	struct database_clock clock;

	wipe();
	memset(reported, 0, sizeof(*reported));
	database = open_database();
	assert_int_equal(sched_database_restore(database, &options, &core, &clock, NULL), 0);
	assert_int_equal(clock.core_ns, 0);
	read_dump(core, reported->bytes[0], &reported->len[0]);
	core_close(core);
	sched_database_close(database);
}

static void what_is_written_is_read(void **state)
{
	begin();
	assert_int_equal(live(first_seed, 300), 0);
	assert_int_equal(reported->saves, 300);
	assert_true(is_as_reported());
}

static void specs_are_kept(void **state)
{
	struct sched_database *database;
	uint8_t *bytes;
	size_t len;

	begin();
	assert_int_equal(live(first_seed, 300), 0);
	database = open_database();
	assert_int_equal(sched_database_spec(database, 7, &bytes, &len, NULL), 0);
	assert_int_equal(len, 4);
	assert_memory_equal(bytes, "spec", 4);
	free(bytes);
	assert_int_equal(sched_database_spec(database, 777, &bytes, &len, NULL), PAWL_ENOENT);
	sched_database_close(database);
}

#define LARGE (DATABASE_SPECS_BYTES / 3)

/* Submits a job with a large spec, which is over at once if goes is set. */
static void come_and_go(struct sched_database *database, struct sched_core *core, uint64_t *id,
	bool goes)
{
	static uint8_t large[LARGE];
	struct core_request request = {.name = "job", .least = 1, .most = 1};
	struct core_event event = {.kind = CORE_SUBMIT, .now_ns = 2 * S_NS, .request = &request};
	struct database_spec spec = {.bytes = large, .len_bytes = LARGE};
	const struct database_clock clock = {.core_ns = 2 * S_NS};

	assert_int_equal(core_step(core, &event, id, NULL), 0);
	spec.job = *id;
	assert_int_equal(sched_database_save(database, core, &clock, &spec, NULL), 0);
	if (goes) {
		event = (struct core_event){.kind = CORE_CANCEL, .now_ns = 2 * S_NS, .job = *id};
		assert_int_equal(core_step(core, &event, NULL, NULL), 0);
		assert_int_equal(sched_database_save(database, core, &clock, NULL, NULL), 0);
	}
}

static bool has_spec(struct sched_database *database, uint64_t id)
{
	uint8_t *bytes = NULL;
	size_t len;
	int rv = sched_database_spec(database, id, &bytes, &len, NULL);

	assert_true(rv == 0 || rv == PAWL_ENOENT);
	free(bytes);
	return rv == 0;
}

static void of_jobs_that_are_over_so_many_bytes_are_kept(void **state)
{
	struct sched_database *database;
	struct sched_core *core = NULL;
	struct database_clock clock;
	uint64_t ids[5];

	begin();
	for (uint32_t i = 0; i < 5; i++) {
		database = open_database(); /* jobs from before count as well */
		assert_int_equal(sched_database_restore(database, &options, &core, &clock, NULL),
			0);
		core_step(core, &(struct core_event){.kind = CORE_LISTED, .now_ns = S_NS}, NULL,
			NULL);
		come_and_go(database, core, &ids[i], i > 0);
		core_close(core);
		sched_database_close(database);
	}
	database = open_database();
	assert_true(has_spec(database, ids[0])); /* the job has not run yet */
	assert_false(has_spec(database, ids[1]));
	assert_false(has_spec(database, ids[2]));
	assert_true(has_spec(database, ids[3]) && has_spec(database, ids[4]));
	sched_database_close(database);
}

/* ---- kills ---- */

static void a_kill_at_a_random_time_loses_nothing_reported(void **state)
{
	struct rng rng = {first_seed};
	uint64_t saves = 0;

	begin();
	for (uint32_t i = 0; i < KILLS; i++) {
		pid_t pid = fork();
		double life_s = 0.005 + (double)rng_below(&rng, 40000000) / 1e9;
		int status;

		assert_true(pid >= 0);
		if (pid == 0) {
			_exit(live(first_seed + i, UINT64_MAX) == 0 ? 0 : 1);
		}
		/* On a busy machine a first save may take longer than the child lives. */
		if (i == 0) {
			WITHIN(WITHIN_LONG_S, reported->saves > 0);
		}
		within_pace(life_s);
		kill(pid, SIGKILL);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSIGNALED(status));
		assert_true(is_as_reported());
		saves = reported->saves;
	}
	assert_true(saves > 0);
}

/* The n-th call of SQLite ends the process; or fails, once or always from then on. */
static void a_crash_or_an_error_at_any_call_loses_nothing(void **state)
{
	for (uint32_t kind = 0; kind < 3; kind++) {
		begin();
		for (uint64_t n = 1, done = 0; !done; n++) {
			pid_t pid = fork();
			int status;

			assert_true(pid >= 0 && n < 1000);
			if (pid == 0) {
				int rv;

				fault_arm("sched.database", n, kind == 0 ? -1 : EIO, kind == 2);
				rv = live(first_seed, 6);
				rv = rv == PAWL_EIO || rv == PAWL_ENOMEM ? 0 : rv;
				_exit(rv != 0 ? 2 : fault_reached(n));
			}
			assert_int_equal(waitpid(pid, &status, 0), pid);
			assert_true(WIFEXITED(status));
			assert_true(WEXITSTATUS(status) == 0 ||
				WEXITSTATUS(status) == (kind == 0 ? 99 : 1));
			done = WEXITSTATUS(status) == 0;
			assert_true(is_as_reported());
		}
	}
}

static void a_full_disk_is_named_and_loses_nothing(void **state)
{
	int status;
	pid_t pid;

	begin();
	assert_int_equal(live(first_seed, 50), 0);
	pid = fork();
	if (pid == 0) {
		struct rlimit limit = {200000, 200000};

		sigaction(SIGXFSZ, &(struct sigaction){.sa_handler = SIG_IGN}, NULL);
		setrlimit(RLIMIT_FSIZE, &limit);
		_exit(live(first_seed, 100000) == PAWL_ENOSPC ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	assert_true(is_as_reported());
}

/* ---- files that are not to be used ---- */

static int try_open(struct pawl_err *err)
{
	struct sched_database *database = NULL;
	int rv = sched_database_open(&database, path, true, err);

	sched_database_close(database);
	return rv;
}

static void run_sql(const char *text)
{
	sqlite3 *db;

	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, text, NULL, NULL, NULL), SQLITE_OK);
	sqlite3_close(db);
}

static void two_schedulers_are_one_too_many(void **state)
{
	struct sched_database *database;
	struct pawl_err err;

	begin();
	database = open_database();
	assert_int_equal(try_open(&err), PAWL_EBUSY);
	assert_non_null(strstr(err.msg, "another process has locked it"));
	sched_database_close(database);
	assert_int_equal(try_open(&err), 0);
}

static void what_is_newer_or_not_ours_is_left_alone(void **state)
{
	struct pawl_err err;
	int fd;

	begin();
	run_sql("PRAGMA user_version = 99");
	assert_int_equal(try_open(&err), PAWL_ENOTSUP);
	assert_non_null(
		strstr(err.msg, "a newer Pawl wrote it (version 99; this one reads up to 9)"));
	run_sql("PRAGMA user_version = -1");
	assert_int_equal(try_open(&err), PAWL_ECORRUPT);
	assert_non_null(strstr(err.msg, "there is no version -1; "));
	wipe();
	run_sql("CREATE TABLE mine(x)");
	assert_int_equal(try_open(&err), PAWL_EINVAL);
	wipe();
	fd = open(path, O_WRONLY | O_CREAT, 0644);
	for (uint32_t i = 0; i < 1000; i++) {
		assert_int_equal(write(fd, "garbage!", 8), 8);
	}
	close(fd);
	assert_int_equal(try_open(&err), PAWL_ECORRUPT);
	wipe();
}

/* Removes what version 5 and later have added. */
#define WITHOUT_5                                                                                  \
	"ALTER TABLE jobs DROP COLUMN crc; ALTER TABLE nodes DROP COLUMN crc;"                     \
	"ALTER TABLE cluster DROP COLUMN crc; ALTER TABLE specs DROP COLUMN crc;"                  \
	"ALTER TABLE clock DROP COLUMN boot; ALTER TABLE clock DROP COLUMN boot_ns;"

#define WITHOUT_6 "DROP TABLE types;"
#define WITHOUT_7 "DROP INDEX jobs_name;"

/* A file that the first version wrote is migrated to this version. */
static void an_older_file_is_brought_to_this_version(void **state)
{
	begin();
	assert_int_equal(live(first_seed, 50), 0);
	run_sql(WITHOUT_7 WITHOUT_6
		"ALTER TABLE jobs DROP COLUMN reason; ALTER TABLE jobs DROP COLUMN exit_code;"
		"ALTER TABLE jobs DROP COLUMN submitted_ns; ALTER TABLE jobs DROP COLUMN since_ns;"
		"ALTER TABLE jobs DROP COLUMN ran_ns; ALTER TABLE jobs DROP COLUMN restarts;"
		"ALTER TABLE jobs DROP COLUMN failures;" WITHOUT_5
		"CREATE TABLE history(seq INTEGER); DROP TABLE totals; PRAGMA user_version = 1");
	assert_true(is_as_reported());
	assert_int_equal(live(first_seed + 1, 50), 0);
	assert_true(is_as_reported());
}

static void types_keep_their_numbers(void **state)
{
	struct database_types types = {0};
	struct database_types read;
	struct sched_database *database;
	struct pawl_err err;

	begin();
	/* Version 5 stored no names of types. */
	run_sql(WITHOUT_7 WITHOUT_6 "PRAGMA user_version = 5");
	database = open_database();
	assert_int_equal(sched_database_get_types(database, &read, NULL), 0);
	assert_memory_equal(&read, &types, sizeof(read));
	assert_int_equal(database_types_number(&types, "A100"), 0);
	assert_int_equal(database_types_number(&types, ""), 1);
	assert_int_equal(database_types_number(&types, "H100"), 2);
	assert_int_equal(sched_database_put_types(database, &types, NULL), 0);
	sched_database_close(database);
	database = open_database();
	assert_int_equal(sched_database_get_types(database, &read, NULL), 0);
	assert_memory_equal(&read, &types, sizeof(read));
	assert_int_equal(database_types_number(&read, "h100"), 2);
	read.known &= ~2u; /* every type has a name now */
	assert_int_equal(sched_database_put_types(database, &read, NULL), 0);
	assert_int_equal(sched_database_get_types(database, &read, NULL), 0);
	assert_int_equal(read.known, 5);
	assert_int_equal(database_types_number(&read, "B200"), 1);
	for (uint32_t t = 3; t < SCHED_TYPES_MAX; t++) {
		char name[8];

		snprintf(name, sizeof(name), "T%u", t);
		assert_int_equal(database_types_number(&read, name), t);
	}
	assert_int_equal(database_types_number(&read, "one more"), SCHED_TYPES_MAX);
	sched_database_close(database);
	run_sql("UPDATE types SET name = 'H101' WHERE id = 2");
	database = open_database();
	assert_int_equal(sched_database_get_types(database, &read, &err), PAWL_ECORRUPT);
	assert_non_null(strstr(err.msg, "type 2 is damaged"));
	sched_database_close(database);
}

struct seen {
	uint32_t n;
	uint32_t unread; /* number of jobs whose record is empty */
	uint64_t last;
};

static void see(void *user, const struct database_job *job)
{
	struct seen *seen = user;

	assert_true(seen->n == 0 || job->id < seen->last);
	assert_string_equal(job->name, "job");
	assert_true(strcmp(job->state, "done") == 0 || strcmp(job->state, "failed") == 0 ||
		strcmp(job->state, "cancelled") == 0);
	assert_true(job->since_ns >= job->submitted_ns);
	seen->last = job->id;
	seen->n++;
	seen->unread += job->least == 0;
	assert_true(job->least <= job->most);
}

static void list_ended(struct sched_database *database, uint64_t id, const char *name,
	uint32_t most, void (*on_job)(void *user, const struct database_job *job), void *user)
{
	const struct database_query query = {.id = id, .name = name, .most = most};

	assert_int_equal(sched_database_each_ended(database, &query, on_job, user, NULL), 0);
}

static void jobs_that_are_over_are_listed_the_newest_first(void **state)
{
	struct sched_database *database;
	struct seen all = {0};
	struct seen one = {0};
	struct seen none = {0};
	uint64_t count;

	begin();
	assert_int_equal(live(first_seed, 400), 0);
	database = open_database();
	assert_int_equal(sched_database_count_ended(database, &count, NULL), 0);
	list_ended(database, 0, NULL, 1000, see, &all);
	assert_true(all.n > 3 && all.n == count && all.unread == 0);
	list_ended(database, all.last, NULL, 1000, see, &one);
	assert_true(one.n == 1 && one.last == all.last);
	list_ended(database, 0, "other", 1000, see, &none);
	assert_int_equal(none.n, 0);
	sched_database_close(database);
}

static uint64_t steps; /* steps of SQLite's machine, in databases with count_steps */

static int count_step(void *user)
{
	steps++;
	return 0;
}

/* Called for each file that is opened. */
static int count_steps(sqlite3 *db, char **why, const struct sqlite3_api_routines *api)
{
	sqlite3_progress_handler(db, 1, count_step, NULL);
	return SQLITE_OK;
}

/* Returns the number of steps that the query takes. */
static uint64_t look_up(struct sched_database *database, uint64_t id, const char *name)
{
	struct seen none = {0};

	steps = 0;
	list_ended(database, id, name, 1, see, &none);
	assert_int_equal(none.n, 0);
	return steps;
}

/* A query that read each name would take some thousand times as many steps. */
static void a_name_is_found_among_many_as_fast_as_a_number(void **state)
{
	struct sched_database *database;
	struct seen one = {0};
	uint64_t number_steps;
	uint64_t name_steps;

	begin();
	run_sql("WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i + 1 FROM n WHERE i < 50000)"
		"INSERT INTO jobs(id, name, owner, queue, state, over, record, since_ns)"
		" SELECT i, iif(i % 1000 = 7, 'job', 'a' || i), 0, '', 'done', 1, x'', 9 FROM n");
	sqlite3_auto_extension((void (*)(void))count_steps);
	database = open_database();
	sqlite3_cancel_auto_extension((void (*)(void))count_steps);
	number_steps = look_up(database, 999999, NULL);
	name_steps = look_up(database, 0, "none");
	print_message("by number %llu steps, by name %llu\n", (unsigned long long)number_steps,
		(unsigned long long)name_steps);
	assert_true(number_steps > 0);
	assert_true(name_steps < 5 * number_steps);
	list_ended(database, 0, "job", 3, see, &one);
	assert_true(one.n == 3 && one.last == 47007 && one.unread == 3);
	sched_database_close(database);
}

/* Totals of all states together. */
struct totals {
	uint64_t jobs, restarts, failures;
	int64_t took_ns;
};

static void add_listed(void *user, const struct database_job *job)
{
	struct totals *totals = user;

	totals->jobs++;
	totals->took_ns += job->since_ns - job->submitted_ns;
	totals->restarts += job->restarts;
	totals->failures += job->failures;
}

static void add_total(void *user, const struct database_total *total)
{
	struct totals *totals = user;

	totals->jobs += total->jobs;
	totals->took_ns += total->took_ns;
	totals->restarts += total->restarts;
	totals->failures += total->failures;
}

static struct totals check_totals(void)
{
	struct sched_database *database = open_database();
	struct totals listed = {0};
	struct totals totals = {0};

	list_ended(database, 0, NULL, 100000, add_listed, &listed);
	assert_int_equal(sched_database_totals(database, add_total, &totals, NULL), 0);
	assert_memory_equal(&totals, &listed, sizeof(totals));
	sched_database_close(database);
	return totals;
}

static void totals_are_of_all_that_ended_and_of_what_was_forgotten(void **state)
{
	struct totals first;
	struct totals second;
	struct sched_database *database;

	begin();
	assert_int_equal(live(first_seed, 400), 0);
	first = check_totals();
	assert_true(first.jobs > 3 && first.took_ns > 0 && first.restarts > 0);
	run_sql(WITHOUT_7 WITHOUT_6 WITHOUT_5
		"DROP TABLE totals; PRAGMA user_version = 3"); /* version 3 has no totals */
	second = check_totals();
	assert_memory_equal(&first, &second, sizeof(first));
	run_sql("DELETE FROM jobs WHERE over = 1");
	database = open_database();
	memset(&second, 0, sizeof(second));
	assert_int_equal(sched_database_totals(database, add_total, &second, NULL), 0);
	assert_memory_equal(&first, &second, sizeof(first));
	sched_database_close(database);
}

static void a_read_only_file_is_named(void **state)
{
	int status;
	pid_t pid;

	begin();
	chmod(path, 0444);
	chmod(dir, 0755);
	pid = fork();
	if (pid == 0) {
		struct pawl_err err;
		bool ok = geteuid() != 0 || setuid(65534) == 0;

		ok = ok && try_open(&err) == PAWL_EIO && strstr(err.msg, "it is read-only");
		_exit(ok ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	chmod(path, 0644);
}

static void records_that_are_damaged_are_named(void **state)
{
	struct sched_database *database;
	struct sched_core *core = NULL;
	struct database_clock clock;
	struct pawl_err err;

	begin();
	assert_int_equal(live(first_seed, 100), 0);
	run_sql("UPDATE cluster SET record = x'01000000ff'");
	database = open_database();
	assert_int_equal(sched_database_restore(database, &options, &core, &clock, &err),
		PAWL_ECORRUPT);
	assert_non_null(strstr(err.msg, "the record of cluster 0 is damaged"));
	sched_database_close(database);
	/* As an older version wrote it: the record itself is checked. */
	run_sql("UPDATE cluster SET crc = NULL");
	database = open_database();
	assert_int_equal(sched_database_restore(database, &options, &core, &clock, &err),
		PAWL_ECORRUPT);
	assert_non_null(strstr(err.msg, "the cluster"));
	sched_database_close(database);
}

/* Bytes of the record of each job that is not over are changed, one after the other. */
static void a_flipped_bit_in_a_record_is_named(void **state)
{
	char text[256];
	struct sched_database *database;
	struct sched_core *core = NULL;
	struct database_clock clock;
	struct pawl_err err;
	uint8_t *bytes;
	size_t len;

	begin();
	assert_int_equal(live(first_seed, 100), 0);
	for (uint32_t at = 1; at <= 16; at++) {
		snprintf(text, sizeof(text),
			"UPDATE jobs SET record = CAST(substr(record, 1, %u) || x'5a' || "
			"substr(record, %u) AS BLOB) WHERE over = 0",
			at, at + 2);
		run_sql(text);
		database = open_database();
		assert_int_equal(sched_database_restore(database, &options, &core, &clock, &err),
			PAWL_ECORRUPT);
		assert_non_null(strstr(err.msg, "is damaged; put a copy"));
		sched_database_close(database);
	}
	run_sql("UPDATE specs SET spec = x'00'");
	database = open_database();
	assert_int_equal(sched_database_spec(database, 7, &bytes, &len, &err), PAWL_ECORRUPT);
	assert_non_null(strstr(err.msg, "submitted as job 7 is damaged"));
	sched_database_close(database);
}

/* The wall clock may be set to anything while no scheduler runs: within one boot it does not
 * count. */
static void time_away_is_that_of_the_boot(void **state)
{
	const struct database_clock then = {.core_ns = 5,
		.wall_ns = 100,
		.boot_ns = 7,
		.boot = "a"};
	struct database_clock now = {.wall_ns = INT64_MAX, .boot_ns = 10, .boot = "a"};
	const struct database_clock never = {0};
	struct database_clock old = then;

	assert_int_equal(database_downtime_ns(&then, &now), 3);
	now.wall_ns = 0;
	assert_int_equal(database_downtime_ns(&then, &now), 3);
	now.boot_ns = 6;
	assert_int_equal(database_downtime_ns(&then, &now), 0);
	now = (struct database_clock){.wall_ns = 150, .boot_ns = 1, .boot = "b"};
	assert_int_equal(database_downtime_ns(&then, &now), 50);
	now.wall_ns = 99;
	assert_int_equal(database_downtime_ns(&then, &now), 0);
	now.wall_ns = INT64_MAX;
	assert_int_equal(database_downtime_ns(&then, &now), DATABASE_DOWNTIME_MAX_NS);
	/* Written by an older version. */
	old = (struct database_clock){.core_ns = 5, .wall_ns = INT64_MIN};
	assert_int_equal(database_downtime_ns(&old, &now), DATABASE_DOWNTIME_MAX_NS);
	assert_int_equal(database_downtime_ns(&never, &now), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_written_is_read),
		cmocka_unit_test(specs_are_kept),
		cmocka_unit_test(of_jobs_that_are_over_so_many_bytes_are_kept),
		cmocka_unit_test(a_kill_at_a_random_time_loses_nothing_reported),
		cmocka_unit_test(a_crash_or_an_error_at_any_call_loses_nothing),
		cmocka_unit_test(a_full_disk_is_named_and_loses_nothing),
		cmocka_unit_test(two_schedulers_are_one_too_many),
		cmocka_unit_test(what_is_newer_or_not_ours_is_left_alone),
		cmocka_unit_test(an_older_file_is_brought_to_this_version),
		cmocka_unit_test(types_keep_their_numbers),
		cmocka_unit_test(jobs_that_are_over_are_listed_the_newest_first),
		cmocka_unit_test(a_name_is_found_among_many_as_fast_as_a_number),
		cmocka_unit_test(totals_are_of_all_that_ended_and_of_what_was_forgotten),
		cmocka_unit_test(a_read_only_file_is_named),
		cmocka_unit_test(records_that_are_damaged_are_named),
		cmocka_unit_test(a_flipped_bit_in_a_record_is_named),
		cmocka_unit_test(time_away_is_that_of_the_boot),
	};
	int rv;

	first_seed = test_seed();
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/state.db", dir);
	reported = mmap(NULL, sizeof(*reported), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		-1, 0);
	assert_true(reported != MAP_FAILED);
	rv = cmocka_run_group_tests(tests, NULL, NULL);
	wipe();
	rmdir(dir);
	munmap(reported, sizeof(*reported));
	return rv;
}
