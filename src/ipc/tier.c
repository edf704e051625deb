/* The memory tier: arenas and their budget. See tier.h. */
#include "ipc/tier.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/pages.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define DIR_BYTES 1100 /* bytes of a cgroup's directory */

static uint64_t next_id = 1; /* the agent's loop thread only */

uint64_t arena_round(uint64_t need_bytes)
{
	return (need_bytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
}

int arena_ensure(struct arena *arena, uint64_t need_bytes, struct pawl_err *err)
{
	uint64_t size = arena_round(need_bytes ? need_bytes : 1);
	bool fresh = arena->size_bytes == 0;
	int fd = arena->fd;

	ASSERT(arena->size_bytes % ARENA_ALIGN == 0 && (arena->map == NULL || !fresh));
	if (arena->size_bytes >= size) {
		arena->empty = false;
		return 0;
	}
	if (fresh) {
		fd = FAULT_SYS("tier.create", memfd_create("pawl-arena", MFD_CLOEXEC));
	}
	if (fd < 0) {
		return pawl_err_sys(err, "memory tier: create an arena");
	}
	if (FAULT_SYS("tier.size", ftruncate(fd, (off_t)size)) != 0) {
		int rv = pawl_err_sys(err, "memory tier: size an arena of %llu bytes",
			(unsigned long long)size);

		if (fresh) {
			close(fd);
		}
		return rv;
	}
	arena_unmap(arena->map, arena->size_bytes);
	*arena = (struct arena){.fd = fd, .size_bytes = size, .id = next_id++};
	return 0;
}

void arena_empty(struct arena *arena)
{
	if (arena->size_bytes > 0 && !arena->empty) {
		arena->empty = fallocate(arena->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
				       (off_t)arena->size_bytes) == 0;
	}
}

uint64_t arena_used_bytes(const struct arena *arena)
{
	return arena->empty ? 0 : arena->size_bytes;
}

uint8_t *arena_map_fd(int fd, uint64_t size_bytes)
{
	return FAULT_MEM("tier.map", pages_map(fd, size_bytes));
}

void arena_unmap(uint8_t *map, uint64_t size_bytes)
{
	pages_unmap(map, size_bytes);
}

int arena_map(struct arena *arena, struct pawl_err *err)
{
	if (arena->map) {
		return 0;
	}
	arena->map = arena_map_fd(arena->fd, arena->size_bytes);
	if (!arena->map) {
		return pawl_err_sys(err, "memory tier: map an arena of %llu bytes",
			(unsigned long long)arena->size_bytes);
	}
	return 0;
}

void arena_deinit(struct arena *arena)
{
	if (arena->size_bytes > 0) {
		arena_unmap(arena->map, arena->size_bytes);
		close(arena->fd);
	}
	*arena = (struct arena){0};
}

uint64_t tier_budget(const struct tier_limits *limits)
{
	uint64_t most = limits->available / 2;

	if (limits->cgroup != UINT64_MAX && limits->cgroup / 2 < most) {
		most = limits->cgroup / 2;
	}
	return limits->asked && limits->asked < most ? limits->asked : most;
}

/* Returns the number in a file, or UINT64_MAX ("max", absent, unreadable). */
static uint64_t read_number(const char *path)
{
	char text[32];
	char *end;
	ssize_t n;
	uint64_t value;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0) {
		return UINT64_MAX;
	}
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0) {
		return UINT64_MAX;
	}
	text[n] = '\0';
	value = strtoull(text, &end, 10);
	return end == text ? UINT64_MAX : value;
}

static void tighten(struct tier_limits *limits, const char *dir, const char *max_name,
	const char *now_name)
{
	char path[DIR_BYTES + 32];
	uint64_t max;
	uint64_t now;

	snprintf(path, sizeof(path), "%s/%s", dir, max_name);
	max = read_number(path);
	if (max >= (1ULL << 62)) {
		return; /* in version 1 a huge number means no limit */
	}
	snprintf(path, sizeof(path), "%s/%s", dir, now_name);
	now = read_number(path);
	now = now == UINT64_MAX ? 0 : now;
	if ((now < max ? max - now : 0) < limits->cgroup) {
		limits->cgroup = now < max ? max - now : 0;
	}
}

/* Walks from the process's own cgroup up to the mount: any level may hold the limit. */
static void walk_up(struct tier_limits *limits, const char *mount, char *path, bool v2)
{
	char dir[DIR_BYTES];

	for (;;) {
		snprintf(dir, sizeof(dir), "%s%s", mount, path);
		tighten(limits, dir, v2 ? "memory.max" : "memory.limit_in_bytes",
			v2 ? "memory.current" : "memory.usage_in_bytes");
		if (path[0] == '\0' || strcmp(path, "/") == 0) {
			return;
		}
		*strrchr(path, '/') = '\0';
	}
}

static void read_cgroups(struct tier_limits *limits)
{
	FILE *f = fopen("/proc/self/cgroup", "re");
	char line[1024];

	while (f && fgets(line, sizeof(line), f)) {
		char *controllers = strchr(line, ':');
		char *path = controllers ? strchr(controllers + 1, ':') : NULL;

		if (!path) {
			continue;
		}
		*path++ = '\0';
		path[strcspn(path, "\n")] = '\0';
		if (path[0] != '/') {
			continue;
		}
		if (controllers[1] == '\0') {
			walk_up(limits, "/sys/fs/cgroup", path, true);
		} else if (strcmp(controllers + 1, "memory") == 0) {
			walk_up(limits, "/sys/fs/cgroup/memory", path, false);
		}
	}
	if (f) {
		fclose(f);
	}
}

void tier_limits_read(struct tier_limits *limits)
{
	FILE *f = fopen("/proc/meminfo", "re");
	char line[128];
	unsigned long long kib;

	limits->available = 0;
	limits->cgroup = UINT64_MAX;
	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1) {
			limits->available = (uint64_t)kib * 1024;
		}
	}
	if (f) {
		fclose(f);
	}
	read_cgroups(limits);
}
