/* Small files that are whole under their name, or not there. From any thread. */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct pawl_err;

/*
 * Puts a file in place: PATH.new is made, with mode as umask leaves it, and renamed. lasts: it is
 * durable on return. On error the file that was there is; or, if lasts and only the last step
 * failed, the new one. One caller at a time for a path. PAWL_EIO and its like.
 */
int file_put(const char *path, const void *bytes, size_t len_bytes, mode_t mode, bool lasts,
	struct pawl_err *err);

/* Makes the names in a directory outlive a loss of power. */
int file_sync_dir(const char *directory, struct pawl_err *err);

#endif
