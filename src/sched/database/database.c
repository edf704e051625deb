/* The scheduler's database: see database.h. The records of the core are stored unchanged
 * (core_rows.c), beside the columns that queries need. sched_database_open takes the lock until
 * the database is closed (locking_mode EXCLUSIVE), then migrates, in one transaction. */
#include "sched/database/database.h"

#include "base/assert.h"
#include "base/crc.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/times.h"
#include "sched/database/database_header.h"
#include "sched/database/database_schema.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(CORE_ROW_CLUSTER == 0 && CORE_ROW_NODE == 1 && CORE_ROW_JOB == 2,
	"the kinds that GET_ROWS selects");
_Static_assert(DATABASE_SPECS_BYTES <= UINT32_MAX, "trim takes 32 bits");

enum statement {
	PUT_CLUSTER,
	PUT_CLOCK,
	PUT_NODE,
	DROP_NODE,
	PUT_JOB,
	PUT_SPEC,
	PUT_TYPE,
	DROP_TYPES,
	ADD_TOTAL,
	TRIM_SPECS,
	TRIM_BYTES,
	TRIM_JOBS,
	GET_CLOCK,
	GET_ROWS,
	GET_SPEC,
	GET_TYPES,
	SIZE_SPEC,
	SUM_SPECS,
	GET_ENDED,
	GET_NAMED,
	COUNT_ENDED,
	GET_TOTALS,
	BEGIN,
	COMMIT,
	STATEMENTS
};

#define ENDED                                                                                      \
	"SELECT id, name, owner, queue, state, reason, exit_code, submitted_ns, since_ns, ran_ns," \
	" restarts, failures, record FROM jobs WHERE over = 1"

static const char *const texts[STATEMENTS] = {
	[PUT_CLUSTER] = "REPLACE INTO cluster(id, record, crc) VALUES(1, ?1, ?2)",
	[PUT_CLOCK] = "REPLACE INTO clock(id, core_ns, wall_ns, boot_ns, boot)"
		      " VALUES(1, ?1, ?2, ?3, ?4)",
	[PUT_NODE] = "REPLACE INTO nodes(id, name, record, crc) VALUES(?1, ?2, ?3, ?4)",
	[DROP_NODE] = "DELETE FROM nodes WHERE id = ?1",
	[PUT_JOB] = "REPLACE INTO jobs(id, name, owner, queue, state, over, record, reason,"
		    " exit_code, submitted_ns, since_ns, ran_ns, restarts, failures, crc)"
		    " VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
	[PUT_SPEC] = "REPLACE INTO specs(job, spec, crc) VALUES(?1, ?2, ?3)",
	[PUT_TYPE] = "INSERT INTO types(id, name, crc) VALUES(?1, ?2, ?3)",
	[DROP_TYPES] = "DELETE FROM types",
	[ADD_TOTAL] =
		"INSERT INTO totals(state, jobs, took_ns, restarts, failures)"
		" VALUES(?1, 1, ?2, ?3, ?4) ON CONFLICT(state) DO UPDATE SET"
		" jobs = jobs + 1, took_ns = took_ns + excluded.took_ns,"
		" restarts = restarts + excluded.restarts, failures = failures + excluded.failures",
	[TRIM_SPECS] = "DELETE FROM specs WHERE job IN (SELECT id FROM jobs WHERE over = 1"
		       " AND id <= (SELECT max(id) FROM jobs) - ?1)",
	[TRIM_BYTES] =
		"DELETE FROM specs WHERE job IN (SELECT job FROM (SELECT job, sum(length(spec))"
		" OVER (ORDER BY job DESC) AS bytes FROM specs JOIN jobs ON id = job"
		" WHERE over = 1) WHERE bytes > ?1)",
	[TRIM_JOBS] = "DELETE FROM jobs WHERE over = 1 AND id <= (SELECT max(id) FROM jobs) - ?1",
	[GET_CLOCK] = "SELECT core_ns, wall_ns, boot_ns, boot FROM clock",
	[GET_ROWS] = "SELECT 0, 0, record, crc FROM cluster"
		     " UNION ALL SELECT 1, id, record, crc FROM nodes"
		     " UNION ALL SELECT 2, id, record, crc FROM jobs WHERE over = 0",
	[GET_SPEC] = "SELECT spec, crc FROM specs WHERE job = ?1",
	[GET_TYPES] = "SELECT id, name, crc FROM types",
	[SIZE_SPEC] = "SELECT ifnull(sum(length(spec)), 0) FROM specs WHERE job = ?1",
	[SUM_SPECS] = "SELECT ifnull(sum(length(spec)), 0) FROM specs JOIN jobs ON id = job"
		      " WHERE over = 1",
	[GET_ENDED] = ENDED " AND id BETWEEN ?1 AND ?4 ORDER BY id DESC LIMIT ?3",
	[GET_NAMED] = ENDED " AND name = ?2 AND id BETWEEN ?1 AND ?4 ORDER BY id DESC LIMIT ?3",
	[COUNT_ENDED] = "SELECT count(*) FROM jobs WHERE over = 1",
	[GET_TOTALS] = "SELECT state, jobs, took_ns, restarts, failures FROM totals",
	[BEGIN] = "BEGIN IMMEDIATE",
	[COMMIT] = "COMMIT",
};

struct sched_database {
	sqlite3 *sql;                         /* owned */
	sqlite3_stmt *statements[STATEMENTS]; /* owned */
	char *path;                           /* owned; for messages */
	int64_t ended_bytes; /* upper bound: bytes of specs of jobs that are over */
};

/* ---- errors ---- */

static int fail(const struct sched_database *db, const char *what, int rc, struct pawl_err *err)
{
	int sys = errno; /* SQLite reports only some of them (sqlite3_system_errno) */

	switch (rc < 0 ? rc : rc & 0xff) {
	case -1: /* a fault point */
		return pawl_err_sys(err, "%s: %s", db->path, what);
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
		return pawl_err_set(err, PAWL_EBUSY,
			"%s: %s: another process has locked it (waited %d ms)", db->path, what,
			times_ms(TIME_SCHED_BUSY));
	case SQLITE_READONLY:
	case SQLITE_PERM:
		return pawl_err_set(err, PAWL_EIO,
			"%s: %s: it is read-only; make the file and its directory writable for "
			"this user",
			db->path, what);
	case SQLITE_FULL:
		return pawl_err_set(err, PAWL_ENOSPC, "%s: %s: no space is left on its disk",
			db->path, what);
	case SQLITE_NOMEM:
		return pawl_err_set(err, PAWL_ENOMEM, "%s: %s: no memory", db->path, what);
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB:
		return pawl_err_set(err, PAWL_ECORRUPT, "%s: %s: %s; " DATABASE_REMEDY, db->path,
			what, sqlite3_errstr(rc));
	case SQLITE_IOERR:
	case SQLITE_CANTOPEN:
		if (sys == ENOSPC || sys == EDQUOT || sys == EFBIG) {
			return pawl_err_set(err, PAWL_ENOSPC,
				"%s: %s: no space is left on its disk", db->path, what);
		}
		return pawl_err_set(err, PAWL_EIO, "%s: %s: %s%s%s", db->path, what,
			sqlite3_errstr(rc), sys != 0 ? ": " : "", sys != 0 ? strerror(sys) : "");
	default:
		return pawl_err_set(err, PAWL_EIO, "%s: %s: %s", db->path, what,
			sqlite3_errstr(rc));
	}
}

static int run_text(struct sched_database *db, const char *text, struct pawl_err *err)
{
	int rc = FAULT_SYS("sched.database", sqlite3_exec(db->sql, text, NULL, NULL, NULL));

	return rc == SQLITE_OK ? 0 : fail(db, "set up", rc, err);
}

/* Steps a statement. Returns 1: there is a row; 0: it is done; or an error. */
static int step(struct sched_database *db, enum statement which, const char *what,
	struct pawl_err *err)
{
	int sys;
	int rc;

	errno = 0;
	rc = FAULT_SYS("sched.database", sqlite3_step(db->statements[which]));
	if (rc == SQLITE_ROW) {
		return 1;
	}
	sys = errno;
	sqlite3_reset(db->statements[which]);
	errno = sys;
	return rc == SQLITE_DONE ? 0 : fail(db, what, rc, err);
}

static sqlite3_stmt *reset_statement(struct sched_database *db, enum statement which)
{
	sqlite3_reset(db->statements[which]);
	sqlite3_clear_bindings(db->statements[which]);
	return db->statements[which];
}

/* ---- opening ---- */

static int read_number(struct sched_database *db, const char *text, int *number,
	struct pawl_err *err)
{
	sqlite3_stmt *stmt = NULL;
	int rc = sqlite3_prepare_v2(db->sql, text, -1, &stmt, NULL);

	rc = rc == SQLITE_OK ? FAULT_SYS("sched.database", sqlite3_step(stmt)) : rc;
	if (rc != SQLITE_ROW) {
		int rv = fail(db, "open", rc, err);

		sqlite3_finalize(stmt);
		return rv;
	}
	*number = sqlite3_column_int(stmt, 0);
	sqlite3_finalize(stmt);
	return 0;
}

static int migrate(struct sched_database *db, int version, struct pawl_err *err)
{
	char text[128];
	int rv = run_text(db, "BEGIN IMMEDIATE", err);

	ASSERT(version >= 0 && version < DATABASE_VERSION);
	for (int v = version; v < DATABASE_VERSION && rv == 0; v++) {
		rv = run_text(db, database_migration(v), err);
	}
	snprintf(text, sizeof(text), "PRAGMA user_version = %d; PRAGMA application_id = %d; COMMIT",
		DATABASE_VERSION, DATABASE_APPLICATION);
	return rv == 0 ? run_text(db, text, err) : rv;
}

static int check_version(struct sched_database *db, bool make, struct pawl_err *err)
{
	int application = 0;
	int version = 0;
	int tables = 0;
	int rv = read_number(db, "PRAGMA application_id", &application, err);

	rv = rv == 0 ? read_number(db, "PRAGMA user_version", &version, err) : rv;
	rv = rv == 0 ? read_number(db, "SELECT count(*) FROM sqlite_master", &tables, err) : rv;
	if (rv != 0) {
		return rv;
	}
	if (application != DATABASE_APPLICATION &&
		(application != 0 || version != 0 || tables != 0)) {
		return database_header_refuse(db->path, err);
	}
	if (!make && version == 0 && tables == 0) {
		return pawl_err_set(err, PAWL_ENOENT, "%s is an empty database", db->path);
	}
	if (version < 0) {
		return pawl_err_set(err, PAWL_ECORRUPT,
			"%s: there is no version %d; " DATABASE_REMEDY, db->path, version);
	}
	if (version > DATABASE_VERSION) {
		return pawl_err_set(err, PAWL_ENOTSUP,
			"%s: a newer Pawl wrote it (version %d; this one reads up to %d)", db->path,
			version, DATABASE_VERSION);
	}
	return version < DATABASE_VERSION ? migrate(db, version, err) : 0;
}

static int prepare(struct sched_database *db, struct pawl_err *err)
{
	for (uint32_t i = 0; i < STATEMENTS; i++) {
		int rc;

		ASSERT(texts[i] != NULL); /* each statement has its text */
		rc = sqlite3_prepare_v3(db->sql, texts[i], -1, SQLITE_PREPARE_PERSISTENT,
			&db->statements[i], NULL);

		if (rc != SQLITE_OK) {
			return fail(db, "prepare", rc, err);
		}
	}
	return 0;
}

/* Adds the bytes of a job's spec (SIZE_SPEC), or of the specs of all jobs that are over
 * (SUM_SPECS). */
static int count_specs(struct sched_database *db, enum statement which, uint64_t job,
	struct pawl_err *err)
{
	sqlite3_stmt *q = reset_statement(db, which);
	int more;

	ASSERT(which == SIZE_SPEC || which == SUM_SPECS);
	if (which == SIZE_SPEC) {
		sqlite3_bind_int64(q, 1, (int64_t)job);
	}
	more = step(db, which, "count specs", err);
	if (more == 1) {
		db->ended_bytes += sqlite3_column_int64(q, 0);
		sqlite3_reset(q);
	}
	return more < 0 ? more : 0;
}

static int open_file(struct sched_database *db, bool make, struct pawl_err *err)
{
	int flags = SQLITE_OPEN_READWRITE | (make ? SQLITE_OPEN_CREATE : 0);
	int rv = make ? 0 : database_header_check(db->path, err);
	int rc;

	if (rv != 0) {
		return rv;
	}
	rc = FAULT_SYS("sched.database", sqlite3_open_v2(db->path, &db->sql, flags, NULL));
	if (rc != SQLITE_OK) {
		return fail(db, "open", rc, err);
	}
	if (sqlite3_db_readonly(db->sql, "main") == 1) {
		return fail(db, "open", SQLITE_READONLY, err);
	}
	sqlite3_busy_timeout(db->sql, times_ms(TIME_SCHED_BUSY));
	/* The order matters: the first statement that reads takes the lock until close. */
	rv = run_text(db,
		"PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL;"
		"PRAGMA synchronous = FULL; BEGIN EXCLUSIVE; COMMIT",
		err);
	rv = rv == 0 ? check_version(db, make, err) : rv;
	rv = rv == 0 ? prepare(db, err) : rv;
	return rv == 0 ? count_specs(db, SUM_SPECS, 0, err) : rv;
}

int sched_database_open(struct sched_database **out, const char *path, bool make,
	struct pawl_err *err)
{
	struct sched_database *db = FAULT_MEM("sched.database", calloc(1, sizeof(*db)));
	int rv;

	if (!db) {
		return pawl_err_set(err, PAWL_ENOMEM, "%s: no memory", path);
	}
	db->path = FAULT_MEM("sched.database", strdup(path));
	rv = db->path ? open_file(db, make, err)
		      : pawl_err_set(err, PAWL_ENOMEM, "%s: no memory", path);
	if (rv != 0) {
		sched_database_close(db);
		return rv;
	}
	*out = db;
	return 0;
}

void sched_database_close(struct sched_database *db)
{
	if (db) {
		for (uint32_t i = 0; i < STATEMENTS; i++) {
			sqlite3_finalize(db->statements[i]);
		}
		sqlite3_close(db->sql);
		free(db->path);
		free(db);
	}
}

/* ---- saving ---- */

static int add_total(struct sched_database *db, const struct core_job *job, struct pawl_err *err)
{
	sqlite3_stmt *q = reset_statement(db, ADD_TOTAL);

	ASSERT(job->state >= CORE_DONE);
	sqlite3_bind_text(q, 1, core_state_name(job->state), -1, SQLITE_STATIC);
	sqlite3_bind_int64(q, 2, job->since_ns - job->submitted_ns);
	sqlite3_bind_int64(q, 3, job->restarts);
	sqlite3_bind_int64(q, 4, job->failures);
	return step(db, ADD_TOTAL, "write totals", err);
}

/* Binds a checksum: SQLite does not notice a flipped bit within a record. */
static void bind_crc(sqlite3_stmt *q, int column, const void *bytes, size_t len_bytes)
{
	sqlite3_bind_int64(q, column, crc32c(0, bytes, len_bytes));
}

static int put_job(struct sched_database *db, const struct core_row *row,
	const struct database_clock *clock, struct pawl_err *err)
{
	/* Added to a time of the core's clock, gives that of the wall clock. */
	int64_t wall_ns = clock->wall_ns - clock->core_ns;
	const struct core_job *job = row->job;
	sqlite3_stmt *q = reset_statement(db, PUT_JOB);

	ASSERT(!row->gone && job->id == row->id && row->len_bytes > 0);
	sqlite3_bind_int64(q, 1, (int64_t)job->id);
	sqlite3_bind_text(q, 2, job->request.name, -1, SQLITE_STATIC);
	sqlite3_bind_int64(q, 3, job->request.owner);
	sqlite3_bind_text(q, 4, job->request.queue, -1, SQLITE_STATIC);
	sqlite3_bind_text(q, 5, core_state_name(job->state), -1, SQLITE_STATIC);
	sqlite3_bind_int(q, 6, job->state >= CORE_DONE);
	sqlite3_bind_blob(q, 7, row->bytes, (int)row->len_bytes, SQLITE_STATIC);
	sqlite3_bind_text(q, 8, core_reason_text(job->reason), -1, SQLITE_STATIC);
	sqlite3_bind_int(q, 9, job->exit_code);
	sqlite3_bind_int64(q, 10, wall_ns + job->submitted_ns);
	sqlite3_bind_int64(q, 11, wall_ns + job->since_ns);
	sqlite3_bind_int64(q, 12, job->ran_ns);
	sqlite3_bind_int64(q, 13, job->restarts);
	sqlite3_bind_int64(q, 14, job->failures);
	bind_crc(q, 15, row->bytes, row->len_bytes);
	return step(db, PUT_JOB, "write a job", err);
}

static int put_row(struct sched_database *db, const struct core_row *row,
	const struct database_clock *clock, struct pawl_err *err)
{
	sqlite3_stmt *q;

	switch (row->kind) {
	case CORE_ROW_JOB:
		return put_job(db, row, clock, err);
	case CORE_ROW_NODE:
		q = reset_statement(db, row->gone ? DROP_NODE : PUT_NODE);
		sqlite3_bind_int64(q, 1, (int64_t)row->id);
		if (!row->gone) {
			ASSERT(row->node->id == row->id && row->len_bytes > 0);
			sqlite3_bind_text(q, 2, row->node->offer.name, -1, SQLITE_STATIC);
			sqlite3_bind_blob(q, 3, row->bytes, (int)row->len_bytes, SQLITE_STATIC);
			bind_crc(q, 4, row->bytes, row->len_bytes);
		}
		return step(db, row->gone ? DROP_NODE : PUT_NODE, "write a node", err);
	default:
		q = reset_statement(db, PUT_CLUSTER);
		sqlite3_bind_blob(q, 1, row->bytes, (int)row->len_bytes, SQLITE_STATIC);
		bind_crc(q, 2, row->bytes, row->len_bytes);
		return step(db, PUT_CLUSTER, "write the cluster", err);
	}
}

static int trim(struct sched_database *db, enum statement which, uint32_t keep,
	struct pawl_err *err)
{
	sqlite3_bind_int64(reset_statement(db, which), 1, keep);
	return step(db, which, "trim", err);
}

/* Trims specs, by more than is needed, since each time all are read. */
static int trim_specs(struct sched_database *db, struct pawl_err *err)
{
	int rv = trim(db, TRIM_SPECS, DATABASE_ENDED_MAX, err);

	if (rv == 0 && db->ended_bytes > DATABASE_SPECS_BYTES) {
		rv = trim(db, TRIM_BYTES, DATABASE_SPECS_BYTES / 8 * 7, err);
		db->ended_bytes = 0;
		rv = rv == 0 ? count_specs(db, SUM_SPECS, 0, err) : rv;
	}
	return rv;
}

static int put_all(struct sched_database *db, struct sched_core *core,
	const struct database_clock *clock, const struct database_spec *spec, struct pawl_err *err)
{
	struct core_row row;
	sqlite3_stmt *q = reset_statement(db, PUT_CLOCK);
	bool ended = false;
	bool over;
	int more;
	int rv;

	sqlite3_bind_int64(q, 1, clock->core_ns);
	sqlite3_bind_int64(q, 2, clock->wall_ns);
	sqlite3_bind_int64(q, 3, clock->boot_ns);
	sqlite3_bind_text(q, 4, clock->boot, -1, SQLITE_STATIC);
	rv = step(db, PUT_CLOCK, "write the clock", err);
	while (rv == 0 && (more = core_row_next(core, &row, err)) != 0) {
		rv = more < 0 ? more : put_row(db, &row, clock, err);
		over = rv == 0 && row.job && row.job->state >= CORE_DONE;
		rv = over ? add_total(db, row.job, err) : rv;
		rv = over && rv == 0 ? count_specs(db, SIZE_SPEC, row.job->id, err) : rv;
		ended = ended || over;
	}
	if (rv == 0 && spec) {
		q = reset_statement(db, PUT_SPEC);
		sqlite3_bind_int64(q, 1, (int64_t)spec->job);
		sqlite3_bind_blob64(q, 2, spec->bytes, spec->len_bytes, SQLITE_STATIC);
		bind_crc(q, 3, spec->bytes, spec->len_bytes);
		rv = step(db, PUT_SPEC, "write a spec", err);
	}
	rv = rv == 0 && ended ? trim_specs(db, err) : rv;
	return rv == 0 && ended ? trim(db, TRIM_JOBS, DATABASE_ENDED_MAX, err) : rv;
}

/* Ends the transaction that was begun; rv: its outcome so far. */
static int commit(struct sched_database *db, int rv, struct pawl_err *err)
{
	rv = rv == 0 ? step(db, COMMIT, "commit", err) : rv;
	if (rv != 0) {
		/* If SQLite has rolled back already, this does nothing. */
		sqlite3_exec(db->sql, "ROLLBACK", NULL, NULL, NULL);
	}
	return rv;
}

int sched_database_save(struct sched_database *db, struct sched_core *core,
	const struct database_clock *clock, const struct database_spec *spec, struct pawl_err *err)
{
	int rv = step(db, BEGIN, "write", err);

	if (rv != 0) {
		return rv;
	}
	rv = commit(db, put_all(db, core, clock, spec, err), err);
	if (rv == 0) {
		core_rows_done(core);
	}
	return rv;
}

/* ---- reading ---- */

/* Checks a column with a record or a spec by the checksum in the next column. */
static int check_crc(struct sched_database *db, sqlite3_stmt *q, int column, const char *what,
	uint64_t id, struct pawl_err *err)
{
	const void *bytes = sqlite3_column_blob(q, column);
	size_t len_bytes = (size_t)sqlite3_column_bytes(q, column);

	if (sqlite3_column_type(q, column + 1) == SQLITE_NULL ||
		sqlite3_column_int64(q, column + 1) == crc32c(0, bytes, len_bytes)) {
		return 0;
	}
	return pawl_err_set(err, PAWL_ECORRUPT,
		"%s: the record of %s %llu is damaged; " DATABASE_REMEDY, db->path, what,
		(unsigned long long)id);
}

/* All records, as core_restore takes them. */
struct loaded {
	struct core_row *rows; /* owned, with their bytes */
	uint32_t n;
	uint32_t max; /* number of rows that there is room for */
};

static int add_row(struct sched_database *db, struct loaded *l, struct pawl_err *err)
{
	static const char *const kinds[] = {"cluster", "node", "job"};
	sqlite3_stmt *q = db->statements[GET_ROWS];
	const void *bytes = sqlite3_column_blob(q, 2);
	int len = sqlite3_column_bytes(q, 2);
	uint8_t *copy;

	if (check_crc(db, q, 2, kinds[sqlite3_column_int(q, 0)],
		    (uint64_t)sqlite3_column_int64(q, 1), err) != 0) {
		return PAWL_ECORRUPT;
	}
	copy = FAULT_MEM("sched.database", malloc((size_t)len + 1));
	if (copy && l->n == l->max) {
		uint32_t max = 2 * l->max + 64;
		void *more = FAULT_MEM("sched.database", realloc(l->rows, max * sizeof(*l->rows)));

		if (!more) {
			free(copy);
			copy = NULL;
		} else {
			l->rows = more;
			l->max = max;
		}
	}
	if (!copy) {
		return pawl_err_set(err, PAWL_ENOMEM, "%s: no memory for %u records", db->path,
			l->n + 1);
	}
	if (len > 0) {
		memcpy(copy, bytes, (size_t)len);
	}
	l->rows[l->n++] = (struct core_row){.kind = (enum core_row_kind)sqlite3_column_int(q, 0),
		.id = (uint64_t)sqlite3_column_int64(q, 1),
		.bytes = copy,
		.len_bytes = (size_t)len};
	return 0;
}

static int load_rows(struct sched_database *db, struct loaded *l, struct pawl_err *err)
{
	int rv;
	int more;

	reset_statement(db, GET_ROWS);
	do {
		more = step(db, GET_ROWS, "read", err);
		rv = more == 1 ? add_row(db, l, err) : more;
	} while (more == 1 && rv == 0);
	sqlite3_reset(db->statements[GET_ROWS]);
	return rv;
}

static int load_clock(struct sched_database *db, struct database_clock *clock, struct pawl_err *err)
{
	sqlite3_stmt *q = reset_statement(db, GET_CLOCK);
	int more = step(db, GET_CLOCK, "read the clock", err);

	*clock = (struct database_clock){0};
	if (more == 1) {
		clock->core_ns = sqlite3_column_int64(q, 0);
		clock->wall_ns = sqlite3_column_int64(q, 1);
		clock->boot_ns = sqlite3_column_int64(q, 2);
		snprintf(clock->boot, sizeof(clock->boot), "%s",
			(const char *)sqlite3_column_text(q, 3));
		sqlite3_reset(q);
	}
	return more < 0 ? more : 0;
}

int sched_database_restore(struct sched_database *db, const struct core_options *options,
	struct sched_core **core, struct database_clock *clock, struct pawl_err *err)
{
	struct loaded loaded = {0};
	int rv = load_clock(db, clock, err);

	rv = rv == 0 ? load_rows(db, &loaded, err) : rv;
	rv = rv == 0 ? core_restore(core, options, loaded.rows, loaded.n, clock->core_ns, err) : rv;
	for (uint32_t i = 0; i < loaded.n; i++) {
		free((void *)loaded.rows[i].bytes);
	}
	free(loaded.rows);
	return rv;
}

/* ---- types of nodes ---- */

int sched_database_get_types(struct sched_database *db, struct database_types *types,
	struct pawl_err *err)
{
	sqlite3_stmt *q = reset_statement(db, GET_TYPES);
	int rv = 0;
	int more;

	*types = (struct database_types){0};
	while (rv == 0 && (more = step(db, GET_TYPES, "read types", err)) != 0) {
		uint64_t id = more == 1 ? (uint64_t)sqlite3_column_int64(q, 0) : 0;

		rv = more == 1 ? check_crc(db, q, 1, "type", id, err) : more;
		if (rv == 0 &&
			(id >= SCHED_TYPES_MAX ||
				(size_t)sqlite3_column_bytes(q, 1) >= CORE_NAME_MAX)) {
			rv = pawl_err_set(err, PAWL_ECORRUPT,
				"%s: type %llu is out of range; " DATABASE_REMEDY, db->path,
				(unsigned long long)id);
		}
		if (rv == 0) {
			snprintf(types->names[id], CORE_NAME_MAX, "%s",
				(const char *)sqlite3_column_text(q, 1));
			types->known |= 1u << id;
		}
	}
	sqlite3_reset(q);
	return rv;
}

static int put_types(struct sched_database *db, const struct database_types *types,
	struct pawl_err *err)
{
	int rv;

	reset_statement(db, DROP_TYPES);
	rv = step(db, DROP_TYPES, "write types", err);
	for (uint32_t t = 0; t < SCHED_TYPES_MAX && rv == 0; t++) {
		sqlite3_stmt *q = reset_statement(db, PUT_TYPE);

		if (types->known >> t & 1) {
			sqlite3_bind_int64(q, 1, t);
			sqlite3_bind_text(q, 2, types->names[t], -1, SQLITE_STATIC);
			bind_crc(q, 3, types->names[t], strlen(types->names[t]));
			rv = step(db, PUT_TYPE, "write types", err);
		}
	}
	return rv;
}

int sched_database_put_types(struct sched_database *db, const struct database_types *types,
	struct pawl_err *err)
{
	int rv = step(db, BEGIN, "write", err);

	if (rv != 0) {
		return rv;
	}
	rv = put_types(db, types, err);
	return commit(db, rv, err);
}

int sched_database_spec(struct sched_database *db, uint64_t job, uint8_t **bytes, size_t *len_bytes,
	struct pawl_err *err)
{
	sqlite3_stmt *q = reset_statement(db, GET_SPEC);
	int more;
	int len;
	uint8_t *copy;

	sqlite3_bind_int64(q, 1, (int64_t)job);
	more = step(db, GET_SPEC, "read a spec", err);
	if (more != 1) {
		return more < 0 ? more
				: pawl_err_set(err, PAWL_ENOENT, "%s: no spec of job %llu",
					  db->path, (unsigned long long)job);
	}
	if (check_crc(db, q, 0, "what was submitted as job", job, err) != 0) {
		sqlite3_reset(q);
		return PAWL_ECORRUPT;
	}
	len = sqlite3_column_bytes(q, 0);
	copy = FAULT_MEM("sched.database", malloc((size_t)len + 1));
	if (copy && len > 0) {
		memcpy(copy, sqlite3_column_blob(q, 0), (size_t)len);
	}
	sqlite3_reset(q);
	if (!copy) {
		return pawl_err_set(err, PAWL_ENOMEM, "%s: no memory for a spec", db->path);
	}
	*bytes = copy;
	*len_bytes = (size_t)len;
	return 0;
}

int sched_database_count_ended(struct sched_database *db, uint64_t *n, struct pawl_err *err)
{
	sqlite3_stmt *q = reset_statement(db, COUNT_ENDED);
	int more = step(db, COUNT_ENDED, "count jobs", err);

	if (more == 1) {
		*n = (uint64_t)sqlite3_column_int64(q, 0);
		sqlite3_reset(q);
	}
	return more < 0 ? more : 0;
}

/* Reads the row of a job that is over. Its strings are valid until the next step. */
static struct database_job read_ended(sqlite3_stmt *q)
{
	struct core_request request = {0};
	struct database_job job = {.id = (uint64_t)sqlite3_column_int64(q, 0),
		.name = (const char *)sqlite3_column_text(q, 1),
		.owner = (uint32_t)sqlite3_column_int64(q, 2),
		.queue = (const char *)sqlite3_column_text(q, 3),
		.state = (const char *)sqlite3_column_text(q, 4),
		.reason = (const char *)sqlite3_column_text(q, 5),
		.exit_code = sqlite3_column_int(q, 6),
		.submitted_ns = sqlite3_column_int64(q, 7),
		.since_ns = sqlite3_column_int64(q, 8),
		.ran_ns = sqlite3_column_int64(q, 9),
		.restarts = (uint32_t)sqlite3_column_int64(q, 10),
		.failures = (uint32_t)sqlite3_column_int64(q, 11)};

	core_row_request(sqlite3_column_blob(q, 12), (size_t)sqlite3_column_bytes(q, 12), &request);
	job.priority = request.priority;
	job.least = request.least;
	job.most = request.most;
	return job;
}

int sched_database_each_ended(struct sched_database *db, const struct database_query *query,
	void (*on_job)(void *user, const struct database_job *job), void *user,
	struct pawl_err *err)
{
	bool named = query->name && query->name[0] != '\0';
	enum statement which = named ? GET_NAMED : GET_ENDED;
	sqlite3_stmt *q = reset_statement(db, which);
	int more;

	sqlite3_bind_int64(q, 1, (int64_t)query->id);
	sqlite3_bind_text(q, 2, query->name, -1, SQLITE_STATIC);
	sqlite3_bind_int64(q, 3, query->most);
	sqlite3_bind_int64(q, 4, query->id > 0 ? (int64_t)query->id : INT64_MAX);
	while ((more = step(db, which, "read jobs", err)) == 1) {
		const struct database_job job = read_ended(q);

		on_job(user, &job);
	}
	sqlite3_reset(q);
	return more;
}

int sched_database_totals(struct sched_database *db,
	void (*on_total)(void *user, const struct database_total *total), void *user,
	struct pawl_err *err)
{
	sqlite3_stmt *q = reset_statement(db, GET_TOTALS);
	int more;

	while ((more = step(db, GET_TOTALS, "read totals", err)) == 1) {
		const struct database_total total = {
			.state = (const char *)sqlite3_column_text(q, 0),
			.jobs = (uint64_t)sqlite3_column_int64(q, 1),
			.took_ns = sqlite3_column_int64(q, 2),
			.restarts = (uint64_t)sqlite3_column_int64(q, 3),
			.failures = (uint64_t)sqlite3_column_int64(q, 4)};

		on_total(user, &total);
	}
	sqlite3_reset(q);
	return more;
}
