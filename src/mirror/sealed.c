/* Records of units that were whole: see sealed.h. */
#include "mirror/sealed.h"

#include "base/crc.h"
#include "base/file.h"
#include "base/log.h"
#include "base/wire.h"
#include "ckpt/format/manifest.h"
#include "mirror/inspect_unit.h"
#include "mirror/walk.h"
#include "mirror/workdir.h"
#include "pawl/err.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define RECORD_MAX (64u << 20) /* bytes of a record, at most */

static void record_path(char path[CKPT_TAG_MAX + 16], const char *tag)
{
	snprintf(path, CKPT_TAG_MAX + 16, "sealed/%s", tag);
}

void sealed_put(const struct workdir *work, const char *tag, const uint64_t *files, uint32_t n)
{
	struct wire_out out = {NULL};
	char path[PATH_MAX + CKPT_TAG_MAX];
	struct pawl_err err;

	snprintf(path, sizeof(path), "%s/sealed/%s", work->path, tag);
	wire_put_u32(&out, 0);
	for (uint32_t i = 0; i < n; i++) {
		wire_put_u64(&out, files[i]);
	}
	if (!out.failed) {
		wire_patch_u32(&out, 0, crc32c(0, out.bytes + 4, out.len_bytes - 4));
		if (file_put(path, out.bytes, out.len_bytes, 0600, false, &err) != 0) {
			log_line(LOG_WARNING, "record that %s is whole: %s", tag, err.msg);
		}
	}
	wire_out_deinit(&out);
}

/* Compares n sorted numbers with those of a record. */
static enum sealed compare(struct wire_in *in, const uint64_t *files, uint32_t n)
{
	bool missing = false;
	uint32_t i = 0;

	while (wire_in_left(in) > 0 && !in->failed) {
		uint64_t number = wire_get_u64(in);

		if (i < n && files[i] == number) {
			i++;
		} else {
			missing = true;
		}
	}
	if (in->failed || i < n) {
		return SEALED_UNKNOWN;
	}
	return missing ? SEALED_SHRUNK : SEALED_WHOLE;
}

enum sealed sealed_look(const struct workdir *work, const char *tag, const uint64_t *files,
	uint32_t n)
{
	char path[CKPT_TAG_MAX + 16];
	enum sealed sealed = SEALED_UNKNOWN;
	struct wire_in in;
	size_t len_bytes = 0;
	char *bytes;

	record_path(path, tag);
	bytes = inspect_read(work->fd, path, RECORD_MAX, &len_bytes);
	if (bytes != NULL) {
		wire_in_init(&in, bytes, len_bytes);
		if (wire_get_u32(&in) == crc32c(0, in.at, wire_in_left(&in)) && !in.failed) {
			sealed = compare(&in, files, n);
		}
	}
	free(bytes);
	return sealed;
}

void sealed_remove(const struct workdir *work, const char *tag)
{
	char path[CKPT_TAG_MAX + 16];

	record_path(path, tag);
	unlinkat(work->fd, path, 0);
}

void sealed_clear(const struct workdir *work)
{
	walk_remove(work->fd, "sealed");
	mkdirat(work->fd, "sealed", 0700);
}
