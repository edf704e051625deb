/* Our end of a test's warm interpreter: see run_warm.h. */
#include "launch/run_warm.h"

#include "base/log.h"
#include "base/times.h"
#include "base/wire.h"
#include "launch/run_spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define VARIABLE      "PAWL_TEST_SPAWNER"
#define ANSWER_MAX    256u /* bytes of an answer, terminator included */
#define PATH_BYTES    4096u
#define TARGETS_BYTES 16u /* "0,1,2,3,4" and its NUL */

_Static_assert(sizeof("0,1,2,3,4") == 2 * RUN_SPAWN_FDS, "put_request numbers all descriptors");

static int warm_fd = -1; /* socket to the interpreter; -1: there is none */

void run_warm_take(void)
{
	const char *text = getenv(VARIABLE);

	if (text != NULL && text[0] != '\0') {
		warm_fd = (int)strtol(text, NULL, 10);
		fcntl(warm_fd, F_SETFD, FD_CLOEXEC);
		prctl(PR_SET_CHILD_SUBREAPER, 1);
	}
	unsetenv(VARIABLE);
}

static void put_strings(struct wire_out *out, char *const *strings)
{
	for (; *strings != NULL; strings++) {
		wire_put_text(out, "%s", *strings);
	}
}

static void put_request(struct wire_out *out, const struct run_program *program, const char *cwd)
{
	char targets[TARGETS_BYTES] = "0,1,2,3,4";
	int n = 0;

	while (program->argv[n] != NULL) {
		n++;
	}
	targets[2 * program->fds_n - 1] = '\0';
	wire_put_text(out, "gd%s", program->nice ? "n" : "");
	wire_put_text(out, "%s", ""); /* our own namespaces */
	wire_put_text(out, "%s", targets);
	wire_put_text(out, "%s", cwd);
	wire_put_text(out, "%d", n);
	put_strings(out, program->argv);
	put_strings(out, program->env);
}

static bool send_request(const struct wire_out *request, const struct run_program *program)
{
	size_t fds_bytes = sizeof(int) * (size_t)program->fds_n;
	union {
		char bytes[CMSG_SPACE(sizeof(program->fds))];
		struct cmsghdr align;
	} control = {{0}};
	struct iovec part = {request->bytes, request->len_bytes};
	struct msghdr message = {.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = control.bytes,
		.msg_controllen = CMSG_SPACE(fds_bytes)};
	struct cmsghdr *rights = CMSG_FIRSTHDR(&message);

	rights->cmsg_level = SOL_SOCKET;
	rights->cmsg_type = SCM_RIGHTS;
	rights->cmsg_len = CMSG_LEN(fds_bytes);
	memcpy(CMSG_DATA(rights), program->fds, fds_bytes);
	return sendmsg(warm_fd, &message, MSG_NOSIGNAL) == (ssize_t)request->len_bytes;
}

/* Returns the pid; 0 if the interpreter cannot start this program, or is gone. */
static pid_t read_answer(void)
{
	const struct timeval limit = times_timeval(TIME_WARM_ANSWER);
	char answer[ANSWER_MAX] = "";
	ssize_t len;

	setsockopt(warm_fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	do {
		len = recv(warm_fd, answer, sizeof(answer) - 1, 0);
	} while (len < 0 && errno == EINTR);
	return len > 0 ? (pid_t)strtol(answer, NULL, 10) : 0; /* 0 if it is no number */
}

bool run_warm_spawn(const struct run_program *program, pid_t *pid)
{
	struct wire_out request = {NULL};
	char cwd[PATH_BYTES];
	pid_t started = 0;

	if (warm_fd < 0 || getcwd(cwd, sizeof(cwd)) == NULL) {
		return false;
	}
	put_request(&request, program, cwd);
	if (!request.failed && send_request(&request, program)) {
		started = read_answer();
	}
	wire_out_deinit(&request);
	if (started <= 0) {
		log_line(LOG_DEBUG, "the warm interpreter cannot start %s", program->path);
		return false;
	}
	*pid = started;
	return true;
}
