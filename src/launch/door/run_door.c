/* The files by which ranks join an elastic run: see run_door.h. */
#include "launch/door/run_door.h"

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

/* Opens the directory of a file. NFS believes that a name does not exist, or still leads to an
 * older file, until somebody opens the directory (docs/nfs.md). */
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

static void parse(struct run_door *door, const char *text)
{
	size_t name_len = strcspn(text, " \n");
	const char *at = text + name_len;
	char *end;

	door->state = RUN_DOOR_OPEN;
	if (name_len == strlen(OVER) && strncmp(text, OVER, name_len) == 0) {
		door->state = RUN_DOOR_OVER;
		door->status = (int)strtoul(at, NULL, 10);
		return;
	}
	while (door->n < RUN_DOOR_RANKS_MAX) {
		uint32_t number = (uint32_t)strtoul(at, &end, 10);

		if (end == at) {
			break;
		}
		door->numbers[door->n++] = number;
		at = end;
	}
}

void run_door_read(struct run_door *door, const char *path)
{
	FILE *file;
	struct stat st;
	char *text = NULL;
	size_t cap_bytes = 0;

	errno = ENOENT;
	file = open_file(path);
	*door = (struct run_door){.state = RUN_DOOR_DARK};
	if (file == NULL) {
		door->state = errno == ENOENT ? RUN_DOOR_NONE : RUN_DOOR_DARK;
		return;
	}
	if (fstat(fileno(file), &st) == 0 && getline(&text, &cap_bytes, file) > 0) {
		door->written_ns = st.st_mtim.tv_sec * NS_PER_S + st.st_mtim.tv_nsec;
		parse(door, text);
	}
	free(text);
	fclose(file);
}

bool run_door_lists(const struct run_door *door, uint32_t number)
{
	for (uint32_t i = 0; i < door->n; i++) {
		if (door->numbers[i] == number) {
			return true;
		}
	}
	return false;
}

uint32_t run_door_ranks(const struct run_door *door, uint32_t launcher)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < door->n; i++) {
		n += door->numbers[i] / RUN_DOOR_LAUNCHER == launcher;
	}
	return n;
}

bool run_door_has_others(const struct run_door *door, uint32_t launcher)
{
	return run_door_ranks(door, launcher) < door->n;
}

void run_door_close(const char *path, int status)
{
	struct run_door door;
	char text[32];
	int len;

	run_door_read(&door, path);
	if (path[0] == '\0' || (status != 0 && door.state == RUN_DOOR_OVER)) {
		return;
	}
	len = status != 0 ? snprintf(text, sizeof(text), OVER " %d\n", status)
			  : snprintf(text, sizeof(text), OVER "\n");
	file_put(path, text, (size_t)len, 0600, false, NULL); /* on failure the old text stays */
}

static void name_imports(const char *path, char *imports, size_t cap_bytes)
{
	snprintf(imports, cap_bytes, "%s" RUN_DOOR_IMPORTS, path);
}

char *run_door_imports(const char *path)
{
	char imports[PATH_MAX + sizeof(RUN_DOOR_IMPORTS)] = "";
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

void run_door_remove(const char *path)
{
	char imports[PATH_MAX + sizeof(RUN_DOOR_IMPORTS)];

	if (path[0] != '\0') {
		name_imports(path, imports, sizeof(imports));
		unlink(imports);
		unlink(path);
	}
}

/* ---- living ranks ---- */

static void name_alive(const char *path, uint32_t launcher, char *alive, size_t cap_bytes)
{
	snprintf(alive, cap_bytes, "%s" RUN_DOOR_ALIVE "%" PRIu32, path, launcher);
}

void run_door_read_alive(struct run_door_alive *alive, const char *path, uint32_t launcher)
{
	char name[PATH_MAX];
	uint64_t beat;
	uint64_t ranks;
	FILE *file;

	*alive = (struct run_door_alive){0};
	name_alive(path, launcher, name, sizeof(name));
	file = fopen(name, "re");
	if (file == NULL) {
		return;
	}
	if (fscanf(file, "%" SCNu64 " %" SCNx64, &beat, &ranks) == 2) {
		*alive = (struct run_door_alive){beat, ranks};
	}
	fclose(file);
}

int run_door_tell_alive(const struct run_door_alive *alive, const char *path, uint32_t launcher,
	struct pawl_err *err)
{
	char name[PATH_MAX];
	char text[64];
	int len;

	name_alive(path, launcher, name, sizeof(name));
	if (alive->ranks == 0) {
		return unlink(name) == 0 || errno == ENOENT ? 0
							    : pawl_err_sys(err, "remove %s", name);
	}
	len = snprintf(text, sizeof(text), "%" PRIu64 " %" PRIx64 "\n", alive->beat, alive->ranks);
	return file_put(name, text, (size_t)len, 0600, false, err);
}

void run_door_remove_alive(const char *path)
{
	const char *slash = strrchr(path, '/');
	char prefix[PATH_MAX];
	DIR *folder = path[0] != '\0' ? open_folder(path) : NULL;
	struct dirent *entry;

	if (folder == NULL) {
		return;
	}
	snprintf(prefix, sizeof(prefix), "%s" RUN_DOOR_ALIVE, slash != NULL ? slash + 1 : path);
	while ((entry = readdir(folder)) != NULL) {
		if (strncmp(entry->d_name, prefix, strlen(prefix)) == 0) {
			unlinkat(dirfd(folder), entry->d_name, 0);
		}
	}
	closedir(folder);
}
