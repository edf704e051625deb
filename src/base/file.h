/* Small files that are whole under their name, or not there; and names under which anybody may have
 * put anything. From any thread. */
#ifndef BASE_FILE_H
#define BASE_FILE_H

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

/*
 * Opens a plain file, whatever may stand under its name: nothing is waited for (a FIFO's other
 * end), no terminal becomes ours, the descriptor ends with exec. path is relative to dir_fd
 * (AT_FDCWD). flags are those of open(2); mode is for O_CREAT. A link is followed by who only
 * reads; whoever may write (anything but O_RDONLY) never does so through one. Returns the
 * descriptor, which has O_NONBLOCK, with st filled; or -1 and errno, and then file_is_odd tells
 * what else is there from all other failures.
 */
int file_open_plain(int dir_fd, const char *path, int flags, mode_t mode, struct stat *st);
/* Whether an errno of file_open_plain says that what has the name is no plain file. */
bool file_is_odd(int sys);
/* What has the name, for people: "a directory", "a FIFO", "a symbolic link that leads nowhere"; ""
 * if there is nothing, or it cannot be known. */
const char *file_kind(int dir_fd, const char *path);

/* Makes the names in a directory outlive a loss of power. */
int file_sync_dir(const char *directory, struct pawl_err *err);

#endif
