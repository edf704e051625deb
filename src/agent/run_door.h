/*
 * The files by which ranks of an elastic run, pawl.elastic's, say what `pawl run` must know of
 * them: DOOR, where others join, and the numbers of those that train; or "over" in its place, which
 * tells those that wait there that nobody will be let in any more; and DOOR.imports, what modules
 * they have imported. docs/elastic.md has the first one.
 *
 * In all: door: the path; "": the run is not elastic, and there are no files.
 */
#ifndef AGENT_RUN_DOOR_H
#define AGENT_RUN_DOOR_H

#include <stdbool.h>

struct run_group;

#define RUN_DOOR_IMPORTS ".imports"

/* Whether ranks can come and go: it was written, and one of those that train is alive. */
bool run_door_is_open(const char *door, const struct run_group *group);
/* Says that it is over. */
void run_door_close(const char *door);
/* Newline-separated names of modules, to be freed; NULL: not told yet, or too many. */
char *run_door_imports(const char *door);
/* Both files; none is fine. */
void run_door_remove(const char *door);

#endif
