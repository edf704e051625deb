/* Reads the first page of an SQLite file, by its file format: see database_header.h. */
#include "sched/database/database_header.h"

#include "base/err.h"
#include "base/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define HEADER_BYTES       100u
#define APPLICATION_OFFSET 68u /* offset of the application id, big endian */

int database_header_refuse(const char *path, struct pawl_err *err)
{
	return pawl_err_set(err, PAWL_EINVAL, "%s: it is a database, but not a scheduler's", path);
}

int database_header_check(const char *path, struct pawl_err *err)
{
	static const char magic[] = "SQLite format 3";
	uint8_t header[HEADER_BYTES] = {0};
	uint32_t application;
	char log[PATH_MAX];
	ssize_t n;
	int fd = FAULT_SYS("sched.database", open(path, O_RDONLY | O_CLOEXEC));

	if (fd < 0) {
		return errno == ENOENT ? pawl_err_set(err, PAWL_ENOENT, "%s does not exist", path)
				       : pawl_err_sys(err, "%s", path);
	}
	n = read(fd, header, sizeof(header));
	close(fd);
	if (n < 0) {
		return pawl_err_sys(err, "%s", path);
	}
	if (n == 0) {
		return pawl_err_set(err, PAWL_ENOENT, "%s is empty", path);
	}
	if (memcmp(header, magic, sizeof(magic)) != 0) {
		return pawl_err_set(err, PAWL_ECORRUPT,
			"%s: it is not a database; " DATABASE_REMEDY, path);
	}
	application = (uint32_t)header[APPLICATION_OFFSET] << 24 |
		header[APPLICATION_OFFSET + 1] << 16 | header[APPLICATION_OFFSET + 2] << 8 |
		header[APPLICATION_OFFSET + 3];
	snprintf(log, sizeof(log), "%s-wal", path);
	if (application == DATABASE_APPLICATION || (application == 0 && access(log, F_OK) == 0)) {
		return 0; /* the WAL file may have the first page */
	}
	return database_header_refuse(path, err);
}
