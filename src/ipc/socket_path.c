/* Finds where the agent of a job listens. See socket_path.h. */
#include "ipc/socket_path.h"

#include "base/assert.h"
#include "base/crc.h"
#include "base/err.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define RUNTIME_MAX 64u /* bytes of $XDG_RUNTIME_DIR: a socket's path has 107 */
#define DIR_MAX     (RUNTIME_MAX + 32u)
#define DIRS        3

_Static_assert(RUNTIME_MAX + sizeof("/pawl/0123456789abcdef.sock") <=
		sizeof(((struct sockaddr_un *)NULL)->sun_path),
	"the socket's path fits its address");

/* Lists the directories that may hold sockets, the best first. Returns how many. */
static int list_dirs(char dirs[DIRS][DIR_MAX])
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	unsigned uid = (unsigned)getuid();
	int n = 0;

	if (runtime && runtime[0] == '/' && strlen(runtime) < RUNTIME_MAX) {
		snprintf(dirs[n++], DIR_MAX, "%s/pawl", runtime);
	}
	snprintf(dirs[n++], DIR_MAX, "/tmp/pawl-%u", uid);
	snprintf(dirs[n++], DIR_MAX, "/dev/shm/pawl-%u", uid);
	return n;
}

/* Makes dir unless it exists, and checks that no other user can access it. */
static int take_dir(const char *dir, struct pawl_err *err)
{
	struct stat st;

	if (mkdir(dir, 0700) != 0 && errno != EEXIST) {
		return pawl_err_sys(err, "%s", dir);
	}
	if (lstat(dir, &st) != 0) {
		return pawl_err_sys(err, "%s", dir);
	}
	if (!S_ISDIR(st.st_mode) || st.st_uid != getuid() || (st.st_mode & 077) != 0) {
		return pawl_err_set(err, PAWL_EBUSY,
			"%s: not a directory of mode 0700 that this user owns", dir);
	}
	return access(dir, W_OK | X_OK) == 0 ? 0 : pawl_err_sys(err, "%s", dir);
}

int agent_socket_path(const char *job, char *buf, size_t cap_bytes, struct pawl_err *err)
{
	char dirs[DIRS][DIR_MAX];
	struct pawl_err why[DIRS];
	int n = list_dirs(dirs);
	int i = 0;

	ASSERT(n >= 2 && n <= DIRS); /* the error below names two or three */
	while (i < n && take_dir(dirs[i], &why[i]) != 0) {
		i++;
	}
	if (i == n) {
		return pawl_err_set(err, PAWL_EBUSY,
			"no directory for the agent's socket: set XDG_RUNTIME_DIR to a directory "
			"of "
			"mode 0700 that you own (path under %u bytes). Tried %s; %s%s%s",
			RUNTIME_MAX, why[0].msg, why[1].msg, n > 2 ? "; " : "",
			n > 2 ? why[2].msg : "");
	}
	snprintf(buf, cap_bytes, "%s/%08x%08x.sock", dirs[i], crc32c(0, job, strlen(job)),
		crc32_zip(0, job, strlen(job)));
	return 0;
}
