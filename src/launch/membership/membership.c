/* The membership files of an elastic run: see membership.h. */
#include "launch/membership/membership.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define IMPORTS_MAX (256u << 10) /* bytes of module names; a longer file is ignored */
#define OVER        "over"

/* Opens the directory of a file. Until a directory is opened, NFS may not show a new file in it, or
 * may show an older one under the name (docs/nfs.md). */
static DIR *open_folder(const char *path)
{
	char folder[PATH_MAX];
	const char *slash = strrchr(path, '/');

	if (slash == NULL) {
		return opendir(".");
	}
	snprintf(folder, sizeof(folder), "%.*s", slash == path ? 1 : (int)(slash - path), path);
	return opendir(folder);
}

static void refresh(const char *path)
{
	DIR *folder = open_folder(path);

	if (folder != NULL) {
		closedir(folder);
	}
}

static FILE *open_file(const char *path)
{
	if (path[0] == '\0') {
		return NULL;
	}
	refresh(path);
	return fopen(path, "re");
}

static void parse(struct membership *membership, const char *text)
{
	size_t name_len = strcspn(text, " \n");
	const char *at = text + name_len;
	char *end;

	membership->state = MEMBERSHIP_OPEN;
	if (name_len == strlen(OVER) && strncmp(text, OVER, name_len) == 0) {
		membership->state = MEMBERSHIP_CLOSED;
		membership->status = (int)strtoul(at, NULL, 10);
		return;
	}
	while (membership->n < MEMBERSHIP_RANKS_MAX) {
		uint32_t number = (uint32_t)strtoul(at, &end, 10);

		if (end == at) {
			break;
		}
		membership->numbers[membership->n++] = number;
		at = end;
	}
}

void membership_read(struct membership *membership, const char *path)
{
	FILE *file;
	struct stat st;
	char *text = NULL;
	size_t cap_bytes = 0;

	errno = ENOENT;
	file = open_file(path);
	*membership = (struct membership){.state = MEMBERSHIP_UNREADABLE};
	if (file == NULL) {
		membership->state = errno == ENOENT ? MEMBERSHIP_NONE : MEMBERSHIP_UNREADABLE;
		return;
	}
	if (fstat(fileno(file), &st) == 0 && getline(&text, &cap_bytes, file) > 0) {
		membership->written_ns = st.st_mtim.tv_sec * NS_PER_S + st.st_mtim.tv_nsec;
		parse(membership, text);
	}
	free(text);
	fclose(file);
}

bool membership_has(const struct membership *membership, uint32_t number)
{
	for (uint32_t i = 0; i < membership->n; i++) {
		if (membership->numbers[i] == number) {
			return true;
		}
	}
	return false;
}

uint32_t membership_count_ranks(const struct membership *membership, uint32_t launcher)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < membership->n; i++) {
		n += membership->numbers[i] / MEMBERSHIP_LAUNCHER_RANKS == launcher;
	}
	return n;
}

bool membership_has_others(const struct membership *membership, uint32_t launcher)
{
	return membership_count_ranks(membership, launcher) < membership->n;
}

void membership_close(const char *path, int status)
{
	struct membership membership;
	char text[32];
	int len;

	membership_read(&membership, path);
	if (path[0] == '\0' || (status != 0 && membership.state == MEMBERSHIP_CLOSED)) {
		return;
	}
	len = status != 0 ? snprintf(text, sizeof(text), OVER " %d\n", status)
			  : snprintf(text, sizeof(text), OVER "\n");
	file_put(path, text, (size_t)len, 0600, false, NULL); /* on failure the old text stays */
}

static void name_imports(const char *path, char *imports, size_t cap_bytes)
{
	snprintf(imports, cap_bytes, "%s" MEMBERSHIP_IMPORTS_SUFFIX, path);
}

char *membership_read_imports(const char *path)
{
	char imports[PATH_MAX + sizeof(MEMBERSHIP_IMPORTS_SUFFIX)] = "";
	char *text;
	size_t len = 0;
	FILE *file;

	if (path[0] != '\0') {
		name_imports(path, imports, sizeof(imports));
	}
	file = open_file(imports);
	if (file == NULL) {
		return NULL;
	}
	text = malloc(IMPORTS_MAX + 1);
	if (text != NULL) {
		len = fread(text, 1, IMPORTS_MAX + 1, file);
	}
	fclose(file);
	if (len == 0 || len > IMPORTS_MAX) {
		free(text);
		return NULL;
	}
	text[len] = '\0';
	return text;
}

void membership_remove(const char *path)
{
	char imports[PATH_MAX + sizeof(MEMBERSHIP_IMPORTS_SUFFIX)];

	if (path[0] != '\0') {
		name_imports(path, imports, sizeof(imports));
		unlink(imports);
		unlink(path);
	}
}

/* ---- living ranks ---- */

static void name_alive(const char *path, uint32_t launcher, char *alive, size_t cap_bytes)
{
	snprintf(alive, cap_bytes, "%s" MEMBERSHIP_ALIVE_SUFFIX "%" PRIu32, path, launcher);
}

void membership_read_alive(struct membership_alive *alive, const char *path, uint32_t launcher)
{
	char name[PATH_MAX];
	uint64_t heartbeat;
	uint64_t ranks;
	int leaves = 0;
	FILE *file;

	*alive = (struct membership_alive){0};
	name_alive(path, launcher, name, sizeof(name));
	file = fopen(name, "re");
	if (file == NULL) {
		return;
	}
	if (fscanf(file, "%" SCNu64 " %" SCNx64 " %d", &heartbeat, &ranks, &leaves) >= 2) {
		*alive = (struct membership_alive){heartbeat, ranks, leaves != 0};
	}
	fclose(file);
}

int membership_write_alive(const struct membership_alive *alive, const char *path,
	uint32_t launcher, struct pawl_err *err)
{
	char name[PATH_MAX];
	char text[64];
	int len;

	name_alive(path, launcher, name, sizeof(name));
	if (alive->ranks == 0) {
		return unlink(name) == 0 || errno == ENOENT ? 0
							    : pawl_err_sys(err, "remove %s", name);
	}
	len = snprintf(text, sizeof(text), "%" PRIu64 " %" PRIx64 " %d\n", alive->heartbeat,
		alive->ranks, alive->leaves);
	return file_put(name, text, (size_t)len, 0600, false, err);
}

void membership_remove_alive(const char *path)
{
	const char *slash = strrchr(path, '/');
	char prefix[PATH_MAX];
	DIR *folder = path[0] != '\0' ? open_folder(path) : NULL;
	struct dirent *entry;

	if (folder == NULL) {
		return;
	}
	snprintf(prefix, sizeof(prefix), "%s" MEMBERSHIP_ALIVE_SUFFIX,
		slash != NULL ? slash + 1 : path);
	while ((entry = readdir(folder)) != NULL) {
		if (strncmp(entry->d_name, prefix, strlen(prefix)) == 0) {
			unlinkat(dirfd(folder), entry->d_name, 0);
		}
	}
	closedir(folder);
}
