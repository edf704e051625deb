/* Checks the free space in the store of a root: see persist_space.h. */
#include "agent/persist/persist_space.h"

#include "base/err.h"
#include "base/fault.h"
#include "base/text.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

static bool find_free(const char *root, uint64_t *free_bytes)
{
	struct statvfs disk;

	if (FAULT_SYS("room.free", statvfs(root, &disk)) != 0) {
		return false;
	}
	*free_bytes = (uint64_t)disk.f_bavail * disk.f_frsize;
	return true;
}

int persist_space_check(const char *root, uint64_t need_bytes, struct pawl_err *err)
{
	char need[TEXT_SIZE_MAX];
	char rest[TEXT_SIZE_MAX];
	uint64_t free_bytes;
	int rv;

	if (FAULT_SYS("room.access", access(root, W_OK)) != 0 && errno != ENOENT) {
		return pawl_err_sys(err, "write to it");
	}
	if (!find_free(root, &free_bytes) || free_bytes >= need_bytes) {
		return 0;
	}
	rv = pawl_err_set(err, PAWL_ENOSPC, "it needs %s, and %s are free",
		text_size(need, need_bytes), text_size(rest, free_bytes));
	if (err) {
		err->sys = ENOSPC;
	}
	return rv;
}

void persist_space_explain(const char *root, uint64_t need_bytes, struct pawl_err *err)
{
	size_t len = strlen(err->msg);
	char need[TEXT_SIZE_MAX];
	char rest[TEXT_SIZE_MAX];
	uint64_t free_bytes;

	if (find_free(root, &free_bytes)) {
		snprintf(err->msg + len, sizeof(err->msg) - len, "; it needs %s, and %s are free%s",
			text_size(need, need_bytes), text_size(rest, free_bytes),
			free_bytes >= need_bytes
				? ": a quota, or the number of files, may be used up"
				: "");
	}
}
