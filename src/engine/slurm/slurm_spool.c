/* Files that are renamed into place: see slurm_spool.h. */
#include "engine/slurm/slurm_spool.h"

#include "base/err.h"
#include "base/file.h"
#include "engine/slurm/slurm_form.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define NUMBER_CHARS 16u /* hexadecimal digits of a number in a name */

/* The script that sbatch starts on a node. It executes its arguments, which no shell interprets. */
static const char script[] = "#!/bin/sh\nexec \"$@\"\n";

static bool fits(char *path, const char *directory, const char *name)
{
	return (size_t)snprintf(path, SLURM_PATH_MAX, "%s/%s", directory, name) < SLURM_PATH_MAX;
}

int slurm_spool_put(const char *directory, const char *name, const struct wire_out *out,
	struct pawl_err *err)
{
	char path[SLURM_PATH_MAX];

	if (out->failed) {
		return pawl_err_set(err, PAWL_ENOMEM, "write %s/%s: out of memory", directory,
			name);
	}
	return fits(path, directory, name)
		? file_put(path, out->bytes, out->len_bytes, 0600, true, err)
		: pawl_err_set(err, PAWL_EINVAL, "%s/%s: path too long", directory, name);
}

/* ---- numbered files ---- */

static bool read_number(const char *name, const char *kind, uint64_t *number)
{
	size_t len = strlen(kind);
	const char *digits = name + len + 1;

	if (strncmp(name, kind, len) != 0 || name[len] != '.' || strlen(digits) != NUMBER_CHARS ||
		strspn(digits, "0123456789abcdef") != NUMBER_CHARS) {
		return false;
	}
	*number = strtoull(digits, NULL, 16);
	return true;
}

static void numbered(char *name, size_t cap_bytes, const char *kind, uint64_t number)
{
	snprintf(name, cap_bytes, "%s.%016llx", kind, (unsigned long long)number);
}

int slurm_spool_put_newer(const char *directory, const char *kind, uint64_t number,
	const struct wire_out *out, struct pawl_err *err)
{
	char path[SLURM_PATH_MAX];
	char name[32];
	int rv;

	numbered(name, sizeof(name), kind, number);
	rv = slurm_spool_put(directory, name, out, err);
	for (uint64_t old = number; rv == 0 && old > 1 && old > number - 2; old--) {
		numbered(name, sizeof(name), kind, old - 1); /* or left by a crash */
		if (fits(path, directory, name)) {
			unlink(path);
		}
	}
	return rv;
}

int slurm_spool_renew(const char *directory, const char *kind, uint64_t number,
	struct pawl_err *err)
{
	char old[SLURM_PATH_MAX];
	char path[SLURM_PATH_MAX];
	char name[32];
	bool good;

	numbered(name, sizeof(name), kind, number);
	good = fits(old, directory, name);
	numbered(name, sizeof(name), kind, number + 1);
	good = good && fits(path, directory, name);
	return good && rename(old, path) == 0 ? 0
					      : pawl_err_sys(err, "rename %s/%s", directory, name);
}

int slurm_spool_list(const char *directory, bool (*seen)(void *user, const char *name), void *user,
	struct pawl_err *err)
{
	DIR *all = opendir(directory);
	struct dirent *entry;
	bool more = true;

	if (!all) {
		return pawl_err_sys(err, "list %s", directory);
	}
	errno = 0;
	while (more && (entry = readdir(all)) != NULL) {
		more = entry->d_name[0] == '.' || seen(user, entry->d_name);
	}
	if (more && errno != 0) {
		int rv = pawl_err_sys(err, "list %s", directory);

		closedir(all);
		return rv;
	}
	closedir(all);
	return 0;
}

struct newest {
	const char *kind;
	uint64_t number;
};

static bool see_number(void *user, const char *name)
{
	struct newest *newest = user;
	uint64_t number;

	if (read_number(name, newest->kind, &number) && number > newest->number) {
		newest->number = number;
	}
	return true;
}

int slurm_spool_newest(const char *directory, const char *kind, uint64_t *number,
	struct pawl_err *err)
{
	struct newest newest = {.kind = kind};
	int rv = slurm_spool_list(directory, see_number, &newest, err);

	*number = newest.number;
	return rv;
}

int slurm_spool_get(const char *directory, const char *name, uint8_t **bytes, size_t *len_bytes,
	struct pawl_err *err)
{
	char path[SLURM_PATH_MAX];
	struct stat st;
	size_t at = 0;
	ssize_t n = 1;
	int rv = 0;
	int fd;

	if (!fits(path, directory, name)) {
		return pawl_err_set(err, PAWL_EINVAL, "%s/%s: path too long", directory, name);
	}
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0) {
		return pawl_err_sys(err, "read %s", path);
	}
	*bytes = NULL;
	if (fstat(fd, &st) != 0) {
		rv = pawl_err_sys(err, "read %s", path);
	} else if (st.st_size > SLURM_FILE_MAX) {
		rv = pawl_err_set(err, PAWL_ELIMIT, "read %s: the file is too large", path);
	} else {
		*bytes = malloc((size_t)st.st_size + 1);
		rv = *bytes ? 0 : pawl_err_set(err, PAWL_ENOMEM, "read %s: out of memory", path);
	}
	while (rv == 0 && n > 0 && at < (size_t)st.st_size) {
		n = read(fd, *bytes + at, (size_t)st.st_size - at);
		at += n > 0 ? (size_t)n : 0;
		rv = n < 0 ? pawl_err_sys(err, "read %s", path) : 0;
	}
	close(fd);
	if (rv != 0) {
		free(*bytes);
		return rv;
	}
	*len_bytes = at;
	return 0;
}

/* ---- the directory ---- */

static int make_directory(const char *path, struct pawl_err *err)
{
	if (mkdir(path, 0700) != 0 && errno != EEXIST) {
		return pawl_err_sys(err, "make %s", path);
	}
	return 0;
}

static int check_owner(const char *spool, struct pawl_err *err)
{
	struct stat st;

	if (stat(spool, &st) != 0) {
		return pawl_err_sys(err, "%s", spool);
	}
	if (st.st_uid != geteuid() || (st.st_mode & 077) != 0) {
		return pawl_err_set(err, PAWL_EINVAL,
			"%s: its contents are executed, so it must be yours and have mode 0700 "
			"(chmod 700)",
			spool);
	}
	return 0;
}

static int make_id(const char *spool, char *id, struct pawl_err *err)
{
	struct wire_out out = {0};
	uint8_t *bytes;
	size_t len_bytes;
	uint32_t random;
	int rv = slurm_spool_get(spool, "id", &bytes, &len_bytes, err);

	if (rv == 0) {
		bool good = len_bytes == SLURM_ID_CHARS &&
			strspn((char *)bytes, "0123456789abcdef") >= SLURM_ID_CHARS;

		if (good) {
			snprintf(id, SLURM_ID_CHARS + 1, "%.*s", (int)SLURM_ID_CHARS,
				(char *)bytes);
		}
		free(bytes);
		return good ? 0 : pawl_err_set(err, PAWL_ECORRUPT, "%s/id is damaged", spool);
	}
	if (rv != PAWL_ENOENT) {
		return rv;
	}
	if (getrandom(&random, sizeof(random), 0) != (ssize_t)sizeof(random)) {
		return pawl_err_sys(err, "random bytes");
	}
	snprintf(id, SLURM_ID_CHARS + 1, "%08x", random);
	wire_put_raw(&out, id, SLURM_ID_CHARS);
	rv = slurm_spool_put(spool, "id", &out, err);
	wire_out_deinit(&out);
	return rv;
}

static int put_script(const char *spool, struct pawl_err *err)
{
	struct wire_out out = {0};
	int rv;

	wire_put_raw(&out, script, sizeof(script) - 1);
	rv = slurm_spool_put(spool, "pilot.sh", &out, err);
	wire_out_deinit(&out);
	return rv;
}

int slurm_spool_open(const char *spool, char *id, struct pawl_err *err)
{
	static const char *const inside[] = {"jobs", "pilots", "log"};
	char path[SLURM_PATH_MAX];
	int rv;

	if (spool[0] != '/' || strlen(spool) >= SLURM_SPOOL_MAX || strpbrk(spool, "%\\\n")) {
		return pawl_err_set(err, PAWL_EINVAL,
			"%s: the spool must be an absolute path without %% and \\, of a directory "
			"that all nodes see",
			spool);
	}
	rv = make_directory(spool, err);
	rv = rv == 0 ? check_owner(spool, err) : rv;
	for (size_t i = 0; rv == 0 && i < sizeof(inside) / sizeof(inside[0]); i++) {
		fits(path, spool, inside[i]);
		rv = make_directory(path, err);
	}
	rv = rv == 0 ? put_script(spool, err) : rv;
	return rv == 0 ? make_id(spool, id, err) : rv;
}

static bool remove_file(void *user, const char *name)
{
	char path[SLURM_PATH_MAX];

	if (fits(path, user, name)) {
		unlink(path);
	}
	return true;
}

void slurm_spool_remove(const char *directory)
{
	char path[SLURM_PATH_MAX];

	snprintf(path, sizeof(path), "%s", directory);
	slurm_spool_list(path, remove_file, path, NULL);
	rmdir(path);
}
