/* The tables of the scheduler's database. A new version of the tables is one migration more, which
 * changes the tables of the version before. A new database goes through all migrations. */
#ifndef SCHED_DATABASE_DATABASE_SCHEMA_H
#define SCHED_DATABASE_DATABASE_SCHEMA_H

#define DATABASE_VERSION 9 /* version of the tables; a database without tables has version 0 */

/* Returns the statements that lead from a version to the next. Static. */
const char *database_migration(int version);

#endif
