/* The scheduler's database where one must exist: a file that is none is reported, and left
 * unchanged. */
#include "sched/database/database.h"

#include "pawl/err.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static char dir[] = "/tmp/pawl-head-XXXXXX";
static char path[64];

static void wipe(void)
{
	char name[80];

	for (uint32_t i = 0; i < 3; i++) {
		static const char *const ends[] = {"", "-wal", "-shm"};

		snprintf(name, sizeof(name), "%s%s", path, ends[i]);
		unlink(name);
	}
}

static void run_sql(const char *text)
{
	sqlite3 *db;

	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, text, NULL, NULL, NULL), SQLITE_OK);
	sqlite3_close(db);
}

static int open_kept(struct pawl_err *err)
{
	struct sched_database *database = NULL;
	int rv = sched_database_open(&database, path, false, err);

	sched_database_close(database);
	return rv;
}

static void put_file(const char *name, const char *text)
{
	FILE *file = fopen(name, "we");

	assert_non_null(file);
	fputs(text, file);
	assert_int_equal(fclose(file), 0);
}

/* A database must exist: a file that is none is left unchanged, with the WAL file beside it. */
static void what_is_no_store_is_not_made_one(void **state)
{
	struct sched_database *database = NULL;
	char log[80];
	struct pawl_err err;
	struct stat st;

	snprintf(log, sizeof(log), "%s-wal", path);
	assert_int_equal(open_kept(&err), PAWL_ENOENT);
	assert_int_equal(stat(path, &st), -1);
	put_file(path, "");
	put_file(log, "all that was written");
	assert_int_equal(open_kept(&err), PAWL_ENOENT);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_size, 0);
	assert_int_equal(stat(log, &st), 0);
	wipe();
	put_file(path, "no database");
	assert_int_equal(open_kept(&err), PAWL_ECORRUPT);
	wipe();
	run_sql("VACUUM");
	assert_int_equal(open_kept(&err), PAWL_EINVAL);
	wipe();
	run_sql("PRAGMA journal_mode = WAL; CREATE TABLE mine(x)");
	assert_int_equal(open_kept(&err), PAWL_EINVAL);
	wipe();
	assert_int_equal(sched_database_open(&database, path, true, NULL), 0);
	sched_database_close(database);
	assert_int_equal(open_kept(&err), 0);
	wipe();
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_no_store_is_not_made_one)};
	int failed;

	if (!mkdtemp(dir)) {
		return 1;
	}
	snprintf(path, sizeof(path), "%s/sched.db", dir);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	wipe();
	rmdir(dir);
	return failed;
}
