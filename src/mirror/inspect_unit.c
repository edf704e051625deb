/* Looks into the small files of a unit: see inspect_unit.h. */
#include "mirror/inspect_unit.h"

#include "base/fault.h"
#include "base/file.h"
#include "mirror/scan.h"
#include "mirror/walk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define INDEX_BYTES_MAX  (64u << 20) /* an index of a model, at most */
#define STATE_BYTES_MAX  (64u << 20) /* trainer_state.json, which has the history of a run */
#define LATEST_BYTES_MAX 4096u

char *inspect_read(int dir_fd, const char *path, size_t max_bytes, size_t *len_bytes)
{
	struct stat st;
	int fd = file_open_beneath(dir_fd, "", path, O_RDONLY, 0, BENEATH_ANY, &st, NULL);
	char *text = NULL;
	size_t done = 0;
	ssize_t n = 0;

	if (fd < 0) {
		return NULL;
	}
	if ((uint64_t)st.st_size <= max_bytes) {
		text = FAULT_MEM("mirror.inspect", malloc((size_t)st.st_size + 1));
	}
	while (text != NULL && done < (size_t)st.st_size &&
		((n = read(fd, text + done, (size_t)st.st_size - done)) > 0 ||
			(n < 0 && errno == EINTR))) {
		done += n > 0 ? (size_t)n : 0;
	}
	close(fd);
	if (text != NULL && n < 0) {
		free(text);
		return NULL;
	}
	if (text != NULL) {
		text[done] = '\0';
		*len_bytes = done;
	}
	return text;
}

/* Returns whether an index of the unit names files that are missing. */
static bool misses_shard(int dir_fd, const struct core_seen *seen, const struct scan_unit *unit,
	char why[UNIT_WHY_MAX])
{
	for (uint32_t i = 0; i < unit->names_n; i++) {
		char path[WALK_PATH_MAX * 2];
		size_t len_bytes;
		bool missing;
		char *text;

		if (!unit_is_index(unit->names[i])) {
			continue;
		}
		snprintf(path, sizeof(path), "%s/%s", seen->path, unit->names[i]);
		text = inspect_read(dir_fd, path, INDEX_BYTES_MAX, &len_bytes);
		if (text == NULL) {
			snprintf(why, UNIT_WHY_MAX, "%.120s cannot be read", unit->names[i]);
			return true;
		}
		missing = unit_missing_shard(unit->names[i], text, len_bytes, unit->names,
			unit->names_n, why);
		free(text);
		if (missing) {
			return true;
		}
	}
	return false;
}

static char *read_latest(int dir_fd, const char *unit)
{
	char path[WALK_PATH_MAX];
	int folder = (int)(unit_base(unit) - unit);
	size_t len_bytes;

	snprintf(path, sizeof(path), "%.*slatest", folder, unit);
	return inspect_read(dir_fd, path, LATEST_BYTES_MAX, &len_bytes);
}

static void read_best(int dir_fd, const char *unit, char best[CKPT_TAG_MAX])
{
	char path[WALK_PATH_MAX];
	size_t len_bytes;
	char *text;

	best[0] = '\0';
	snprintf(path, sizeof(path), "%.*s/trainer_state.json", (int)CKPT_TAG_MAX, unit);
	text = inspect_read(dir_fd, path, STATE_BYTES_MAX, &len_bytes);
	if (text != NULL && !unit_best(text, len_bytes, best)) {
		best[0] = '\0';
	}
	free(text);
}

bool inspect_unit(void *user, const struct core_seen *seen, enum unit_kind *kind,
	char best[CKPT_TAG_MAX], bool *never, char why[UNIT_WHY_MAX])
{
	const struct scan_unit *unit = seen->user;
	int dir_fd = *(const int *)user;
	char tag[CKPT_TAG_MAX];
	char *latest = NULL;
	bool whole;

	*kind = unit_kind_of(seen->path, unit->names, unit->names_n);
	*never = unit->bad != NULL || !unit_tag(seen->path, tag);
	why[0] = '\0';
	best[0] = '\0';
	if (*never) {
		snprintf(why, UNIT_WHY_MAX, "it cannot be mirrored: %.80s: %.80s",
			unit->bad != NULL ? unit->bad_name : "its name",
			unit->bad != NULL ? unit->bad : "no tag can have it");
		return false;
	}
	if (*kind == UNIT_DEEPSPEED) {
		latest = read_latest(dir_fd, seen->path);
	}
	whole = !unit_missing_mark(*kind, seen->path, unit->names, unit->names_n, latest, why) &&
		!misses_shard(dir_fd, seen, unit, why);
	free(latest);
	if (whole && *kind == UNIT_TRAINER) {
		read_best(dir_fd, seen->path, best);
	}
	return whole;
}
