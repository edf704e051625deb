/*
 * Small messages that the hosts of a job leave for each other, by path, as files of a directory
 * would be: kept in the memory of rank 0's host, apart for each root. A folder is there if a note
 * is in it. All functions may be called by any thread.
 */
#ifndef AGENT_PEER_NOTES_H
#define AGENT_PEER_NOTES_H

#include <stddef.h>
#include <stdint.h>

struct notes;
struct pawl_err;
struct wire_out;

#define NOTES_BYTES_MAX (1u << 30) /* bytes of all notes; a write beyond is PAWL_ELIMIT */

int notes_open(struct notes **out, struct pawl_err *err);
void notes_close(struct notes *notes); /* NULL is fine */

/* Writes a note, in place of one of that path. */
int notes_write(struct notes *notes, uint64_t root, const char *path, const void *bytes,
	size_t len_bytes, struct pawl_err *err);
/* Appends the note's bytes to out. PAWL_ENOENT. */
int notes_read(struct notes *notes, uint64_t root, const char *path, struct wire_out *out,
	struct pawl_err *err);
/* Appends the names in a folder to out, each once with its NUL, in order: of notes, and of the
 * folders in it. */
int notes_list(struct notes *notes, uint64_t root, const char *folder, struct wire_out *out,
	struct pawl_err *err);
/* Removes a note, or all notes in a folder and below. Removing what is not there succeeds. */
void notes_remove(struct notes *notes, uint64_t root, const char *path);

#endif
