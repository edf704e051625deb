/* The tables of the scheduler's database, version by version: see database_schema.h. */
#include "sched/database/database_schema.h"

#include "base/assert.h"

/* Statements from each version to the next; the last one leads to DATABASE_VERSION. Only ever
 * appended to, never changed. */
static const char *const migrations[] = {
	"CREATE TABLE cluster(id INTEGER PRIMARY KEY, record BLOB NOT NULL);"
	"CREATE TABLE clock(id INTEGER PRIMARY KEY, core_ns INTEGER NOT NULL, wall_ns INTEGER NOT "
	"NULL);"
	"CREATE TABLE nodes(id INTEGER PRIMARY KEY, name TEXT NOT NULL, record BLOB NOT NULL);"
	"CREATE TABLE jobs(id INTEGER PRIMARY KEY, name TEXT NOT NULL, owner INTEGER NOT NULL,"
	" queue TEXT NOT NULL, state TEXT NOT NULL, over INTEGER NOT NULL, record BLOB NOT NULL);"
	"CREATE INDEX jobs_over ON jobs(over, id);"
	"CREATE TABLE specs(job INTEGER PRIMARY KEY, spec BLOB NOT NULL);"
	"CREATE TABLE history(seq INTEGER PRIMARY KEY AUTOINCREMENT, core_ns INTEGER NOT NULL,"
	" wall_ns INTEGER NOT NULL, job INTEGER NOT NULL, state TEXT NOT NULL,"
	" reason TEXT NOT NULL, generation INTEGER NOT NULL, replicas INTEGER NOT NULL,"
	" place TEXT NOT NULL);",
	"ALTER TABLE jobs ADD COLUMN reason TEXT NOT NULL DEFAULT '';"
	"ALTER TABLE jobs ADD COLUMN exit_code INTEGER NOT NULL DEFAULT 0;"
	"ALTER TABLE jobs ADD COLUMN submitted_ns INTEGER NOT NULL DEFAULT 0;" /* wall clock */
	"ALTER TABLE jobs ADD COLUMN since_ns INTEGER NOT NULL DEFAULT 0;"     /* wall clock */
	"ALTER TABLE jobs ADD COLUMN ran_ns INTEGER NOT NULL DEFAULT 0;"
	"ALTER TABLE jobs ADD COLUMN restarts INTEGER NOT NULL DEFAULT 0;"
	"ALTER TABLE jobs ADD COLUMN failures INTEGER NOT NULL DEFAULT 0;",
	"DROP TABLE history;", /* history is in files of its own: daemon/history/history.h */
	/* Totals over all jobs that are over, including those no longer in the table. */
	"CREATE TABLE totals(state TEXT PRIMARY KEY, jobs INTEGER NOT NULL,"
	" took_ns INTEGER NOT NULL, restarts INTEGER NOT NULL, failures INTEGER NOT NULL);"
	"INSERT INTO totals SELECT state, count(*), sum(since_ns - submitted_ns), sum(restarts),"
	" sum(failures) FROM jobs WHERE over = 1 GROUP BY state;",
	"ALTER TABLE clock ADD COLUMN boot_ns INTEGER NOT NULL DEFAULT 0;"
	"ALTER TABLE clock ADD COLUMN boot TEXT NOT NULL DEFAULT '';"
	"ALTER TABLE cluster ADD COLUMN crc INTEGER;" /* NULL: written by an older version */
	"ALTER TABLE nodes ADD COLUMN crc INTEGER;"
	"ALTER TABLE jobs ADD COLUMN crc INTEGER;"
	"ALTER TABLE specs ADD COLUMN crc INTEGER;",
	"CREATE TABLE types(id INTEGER PRIMARY KEY, name TEXT NOT NULL, crc INTEGER NOT NULL);",
	"CREATE INDEX jobs_name ON jobs(name, over, id);", "",
	"", /* records of jobs got a word more, twice, which older versions cannot read */
};

_Static_assert(sizeof(migrations) / sizeof(*migrations) == DATABASE_VERSION,
	"a migration to each version");

const char *database_migration(int version)
{
	ASSERT(version >= 0 && version < DATABASE_VERSION);
	return migrations[version];
}
