/* Folders of a test's own, with files in them. */
#ifndef TEST_FOLDER_H
#define TEST_FOLDER_H

#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#define FOLDER_PATH_MAX 256u

static char folder[FOLDER_PATH_MAX]; /* "": there is none */

static inline void folder_make(void)
{
	snprintf(folder, sizeof(folder), "/tmp/pawl-test-XXXXXX");
	assert_non_null(mkdtemp(folder));
}

/* Fits nftw. */
static inline int folder_remove_one(const char *path, const struct stat *st, int kind,
	struct FTW *ftw)
{
	return remove(path);
}

/* Removes any folder with all that is in it. Returns 0, or nonzero if something is left. */
static inline int folder_remove_tree(const char *path)
{
	return nftw(path, folder_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static inline void folder_remove(void)
{
	assert_int_equal(folder_remove_tree(folder), 0);
	folder[0] = '\0';
}

/* Returns the path of a name in the folder; valid until the next call. */
static inline const char *folder_path(const char *name)
{
	static char path[2 * FOLDER_PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return path;
}

/* Makes a file anew, another one than one of that name. */
static inline void folder_write(const char *name, const char *text, mode_t mode)
{
	FILE *file;

	unlink(folder_path(name));
	file = fopen(folder_path(name), "w");
	assert_non_null(file);
	fputs(text, file);
	assert_int_equal(fclose(file), 0);
	assert_int_equal(chmod(folder_path(name), mode), 0);
}

/* Reads a file of less than cap_bytes. Returns text. */
static inline const char *folder_read(const char *name, char *text, size_t cap_bytes)
{
	FILE *file = fopen(folder_path(name), "r");
	size_t n;

	assert_non_null(file);
	n = fread(text, 1, cap_bytes - 1, file);
	text[n] = '\0';
	fclose(file);
	return text;
}

#endif
