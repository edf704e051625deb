/* See json_lines.h. A line is copied once, also if it comes in one piece: it needs a NUL. */
#include "engine/k8s/json_lines.h"

#include "base/fault.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_BYTES 4096u

/* Has room for more bytes and a NUL. */
static bool reserve(struct json_lines *lines, size_t more_bytes)
{
	size_t cap = lines->cap_bytes > 0 ? lines->cap_bytes : FIRST_BYTES;
	size_t need;
	char *bytes;

	if (more_bytes > JSON_LINE_MAX - lines->len_bytes) {
		return false;
	}
	need = lines->len_bytes + more_bytes + 1;
	if (need <= lines->cap_bytes) {
		return true;
	}
	while (cap < need) {
		cap *= 2;
	}
	bytes = FAULT_MEM("json_lines", realloc(lines->bytes, cap));
	if (bytes == NULL) {
		return false;
	}
	lines->bytes = bytes;
	lines->cap_bytes = cap;
	return true;
}

bool json_lines_add(struct json_lines *lines, const char *bytes, size_t len_bytes,
	json_line_fn *each, void *user)
{
	while (len_bytes > 0) {
		const char *end = memchr(bytes, '\n', len_bytes);
		size_t n = end != NULL ? (size_t)(end - bytes) : len_bytes;

		if (!reserve(lines, n)) {
			return false;
		}
		memcpy(lines->bytes + lines->len_bytes, bytes, n);
		lines->len_bytes += n;
		if (end == NULL) {
			return true;
		}
		bytes += n + 1;
		len_bytes -= n + 1;
		n = lines->len_bytes;
		lines->bytes[n] = '\0';
		lines->len_bytes = 0;
		if (n > 0 && !each(user, lines->bytes, n)) {
			return false;
		}
	}
	return true;
}

void json_lines_reset(struct json_lines *lines)
{
	lines->len_bytes = 0;
}

void json_lines_deinit(struct json_lines *lines)
{
	free(lines->bytes);
	*lines = (struct json_lines){.bytes = NULL};
}
