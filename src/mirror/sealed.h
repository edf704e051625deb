/*
 * Records of units that were whole: which files they had. A mirror that crashed leaves them behind,
 * and so the next one on this node can tell a unit that is whole, but was not committed yet, from
 * one that the program was removing when it was killed. A record is a hint for a start after a
 * crash: if it is missing or damaged, a unit is judged by its own files.
 */
#ifndef MIRROR_SEALED_H
#define MIRROR_SEALED_H

#include <stdint.h>

struct workdir;

/* What a record says of the files that a unit has now. */
enum sealed {
	SEALED_UNKNOWN, /* there is no record, or the unit has other files since */
	SEALED_WHOLE,   /* the unit has all files of the record, and no others */
	SEALED_SHRUNK,  /* files of the record are missing, and no others are there */
};

/* Records that the unit of a tag was whole with these files (walk_file_number, sorted), best
 * effort. */
void sealed_put(const struct workdir *work, const char *tag, const uint64_t *files, uint32_t n);
enum sealed sealed_look(const struct workdir *work, const char *tag, const uint64_t *files,
	uint32_t n);
void sealed_remove(const struct workdir *work, const char *tag);
void sealed_clear(const struct workdir *work); /* removes all records */

#endif
