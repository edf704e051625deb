/* Small files that are written whole or not at all; plain files under names that others may have
 * given to something else; and the folders of files. From any thread. */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include "base/beneath.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct pawl_err;
struct stat;

/*
 * Puts a file in place: makes PATH.new, with mode less the umask, and renames it. lasts: the file
 * is durable on return. On error the file that was there remains; or, if lasts and only the last
 * step failed, the new one is there. One caller at a time for a path. PAWL_EIO and the like.
 */
int file_put(const char *path, const void *bytes, size_t len_bytes, mode_t mode, bool lasts,
	struct pawl_err *err);

/* Makes the names in a directory durable. */
int file_sync_dir(const char *directory, struct pawl_err *err);

/* ---- plain files, whatever else may have their names ---- */

/*
 * Opens a plain file: waits for nothing (such as a FIFO's other end), takes no controlling
 * terminal, and sets close-on-exec. path is relative to dir_fd (AT_FDCWD). flags are those of
 * open(2); mode is for O_CREAT. O_RDONLY follows a link; any other access never does. Returns the
 * descriptor, which has O_NONBLOCK, and fills st; or -1 and errno, and file_is_special then tells
 * whether something else has the name.
 */
int file_open_plain(int dir_fd, const char *path, int flags, mode_t mode, struct stat *st);
/* Whether an errno of file_open_plain means that something other than a plain file has the name. */
bool file_is_special(int sys);
/*
 * Opens a plain file in a directory that other users may write to, as beneath_open does: no link is
 * followed and nothing outside is reached. O_TRUNC is not allowed, since only the open tells what
 * is there. dir is the directory's name, for errors. PAWL_ENOENT; PAWL_EINVAL: something else has
 * the name, and the error says what; PAWL_EIO and the like.
 */
int file_open_beneath(int dir_fd, const char *dir, const char *path, int flags, mode_t mode,
	enum beneath how, struct stat *st, struct pawl_err *err);
/* Describes what has the name, for messages: "a directory", "a FIFO", "a symbolic link that leads
 * nowhere"; "" if nothing has it, or it cannot be known. */
const char *file_kind(int dir_fd, const char *path);
/* Describes a file of that st_mode, with the same texts as file_kind. */
const char *file_mode_kind(mode_t mode);

/* ---- folders ---- */

/* Returns how many bytes of path name the next folder on the way to the file, from the top down:
 * "a", then "a/b" for "a/b/c". last_bytes is the previous result, 0 at first. 0: there are no more
 * folders. */
size_t file_next_folder(const char *path, size_t last_bytes);
/* Makes all folders on the way to path, with mode less the umask; existing ones stay as they are.
 * path is relative to dir_fd (AT_FDCWD), or absolute. Returns -1 and errno on failure; folders made
 * by then stay. */
int file_make_folders(int dir_fd, const char *path, mode_t mode);

#endif
