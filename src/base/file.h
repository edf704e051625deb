/* Small files that are whole under their name, or not there; plain files under names where anybody
 * may have put anything; and the folders that files lie in. From any thread. */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include "base/beneath.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct pawl_err;
struct stat;

/*
 * Puts a file in place: PATH.new is made, with mode as umask leaves it, and renamed. lasts: it is
 * durable on return. On error the file that was there is; or, if lasts and only the last step
 * failed, the new one. One caller at a time for a path. PAWL_EIO and its like.
 */
int file_put(const char *path, const void *bytes, size_t len_bytes, mode_t mode, bool lasts,
	struct pawl_err *err);

/* Makes the names in a directory outlive a loss of power. */
int file_sync_dir(const char *directory, struct pawl_err *err);

/* ---- plain files, whatever may stand under their names ---- */

/*
 * Opens a plain file: nothing is waited for (a FIFO's other end), no terminal becomes ours, the
 * descriptor ends with exec. path is relative to dir_fd (AT_FDCWD). flags are those of open(2);
 * mode is for O_CREAT. A link is followed by who only reads; whoever may write (anything but
 * O_RDONLY) never does so through one. Returns the descriptor, which has O_NONBLOCK, with st
 * filled; or -1 and errno, and then file_is_odd tells what else is there from all other failures.
 */
int file_open_plain(int dir_fd, const char *path, int flags, mode_t mode, struct stat *st);
/* Whether an errno of file_open_plain says that what has the name is no plain file. */
bool file_is_odd(int sys);
/*
 * One in a directory that other users may write to: opened as by beneath_open, so no link is
 * followed and nothing outside reached. O_TRUNC is not allowed, since what is there is known only
 * once it is open. dir: the directory's name, for errors. PAWL_ENOENT; PAWL_EINVAL: it is something
 * else, the error says what; PAWL_EIO and its like.
 */
int file_open_beneath(int dir_fd, const char *dir, const char *path, int flags, mode_t mode,
	enum beneath how, struct stat *st, struct pawl_err *err);
/* What has the name, for people: "a directory", "a FIFO", "a symbolic link that leads nowhere"; ""
 * if there is nothing, or it cannot be known. */
const char *file_kind(int dir_fd, const char *path);
/* What a file of that st_mode is, in such words. */
const char *file_mode_kind(mode_t mode);

/* ---- folders ---- */

/* Bytes of path that name the next folder which it lies in, from the top down: "a", then "a/b" of
 * "a/b/c". last_bytes is what was returned before, 0 to begin. 0: there is no more. */
size_t file_next_folder(const char *path, size_t last_bytes);
/* Makes all folders that path lies in, with mode as umask leaves it; what is there stays as it is.
 * path is relative to dir_fd (AT_FDCWD), or absolute. -1 and errno: what was made stays. */
int file_make_folders(int dir_fd, const char *path, mode_t mode);

#endif
