/* Reads /proc (proc(5)).
 */
#include "base/proc.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool proc_look(uint32_t pid, char *state, uint32_t *parent)
{
	char path[32];
	char text[256]; /* "pid (name) state parent …"; a name has 15 bytes at most, any of them */
	const char *after;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%u/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
	if (fd >= 0) {
		close(fd);
	}
	text[n > 0 ? n : 0] = '\0';
	after = strrchr(text, ')');
	return after != NULL && sscanf(after + 1, " %c %10u", state, parent) == 2;
}

bool proc_is_stopped(uint32_t pid)
{
	uint32_t parent;
	char state;

	return proc_look(pid, &state, &parent) && state == 'T';
}

bool proc_boot_id(char id[PROC_BOOT_ID])
{
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, id, PROC_BOOT_ID - 1) : -1;

	if (fd >= 0) {
		close(fd);
	}
	id[n > 0 ? n : 0] = '\0';
	id[strcspn(id, "\n")] = '\0';
	return id[0] != '\0';
}
