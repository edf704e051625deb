/* Cuts a stream of bytes into lines, each of which is one object: the answer of a watch. Pure. */
#ifndef ENGINE_K8S_JSON_LINES_H
#define ENGINE_K8S_JSON_LINES_H

#include <stdbool.h>
#include <stddef.h>

#define JSON_LINE_MAX (4u << 20) /* bytes of a line: etcd takes objects of 1.5 MiB */

/* Zero-initialise; json_lines_deinit when done. */
struct json_lines {
	char *bytes;      /* owned; the beginning of a line whose end has not come */
	size_t len_bytes; /* bytes that have come of it */
	size_t cap_bytes; /* memory */
};

/* Called for each line, which has a NUL in place of its end. Returns false to end. */
typedef bool json_line_fn(void *user, char *line, size_t len_bytes);

/* Adds bytes, and calls each for every line that they end; empty lines are left out. Returns false
 * if each did, or a line is longer than JSON_LINE_MAX, or there is no memory: the stream is of no
 * use then. */
bool json_lines_add(struct json_lines *lines, const char *bytes, size_t len_bytes,
	json_line_fn *each, void *user);
/* Forgets the line that has not ended. */
void json_lines_reset(struct json_lines *lines);
void json_lines_deinit(struct json_lines *lines);

#endif
