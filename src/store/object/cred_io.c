/* What credentials need from outside: see cred_io.h. */
#include "store/object/cred_io.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/log.h"
#include "io/command.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define COMMAND_TEXT_MAX (64u << 10)     /* bytes that a command may print */
#define COMMAND_NS       (10 * NS_PER_S) /* how long it may take */
#define ANSWER_TEXT_MAX  (64u << 10)

static const char *get_env(void *user, const char *name)
{
	return getenv(name);
}

static int read_file(void *user, const char *path, size_t max_bytes, char **text,
	struct pawl_err *err)
{
	struct cred_net *net = user;
	int fd = FAULT_SYS("cred.open", open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
	struct stat st;
	int rv;

	if (fd < 0) {
		return pawl_err_sys(err, "open %s", path);
	}
	if (!net->warned && fstat(fd, &st) == 0 && (st.st_mode & S_IROTH) != 0) {
		net->warned = true;
		log_line(LOG_WARNING, "%s can be read by every user of this machine: chmod 600 it",
			path);
	}
	rv = command_collect(fd, max_bytes, INT64_MAX, text, err);
	close(fd);
	return rv == 0 ? 0 : pawl_err_prefix(err, rv, "%s", path);
}

static int run(void *user, const char *command, char **text, struct pawl_err *err)
{
	const char *const argv[] = {"/bin/sh", "-c", command, NULL};
	const struct command shell = {argv, NULL, COMMAND_NS, COMMAND_TEXT_MAX};
	int rv = command_run(&shell, text, err);

	return rv == 0 ? 0 : pawl_err_prefix(err, rv, "credential_process");
}

/* The body of a request. */
static size_t read_body(void *user, uint64_t off, void *bytes, size_t size)
{
	const char *body = user;

	memcpy(bytes, body + off, size);
	return size;
}

static int fetch(void *user, const struct http_request *request, const char *body, int timeout_ms,
	int *status, char **text, struct pawl_err *err)
{
	struct cred_net *net = user;
	struct http_call call = {.request = request, .text_max = ANSWER_TEXT_MAX, .patient = true};
	int rv;

	if (body != NULL && body[0] != '\0') {
		call.body_bytes = strlen(body);
		call.read = read_body;
		call.user = (void *)body;
	}
	rv = http_begin(net->http, &call, err);
	if (rv != 0) {
		return rv;
	}
	if (http_reap(net->http, timeout_ms) == NULL) {
		http_cancel(net->http, &call);
		return pawl_err_set(err, PAWL_ETIMEDOUT, "no answer within %d ms", timeout_ms);
	}
	if (call.rv != 0) {
		if (call.text != NULL) {
			explicit_bzero(call.text, call.text_bytes);
		}
		free(call.text);
		return pawl_err_set(err, call.rv == PAWL_ETIMEDOUT ? call.rv : PAWL_EIO, "%s",
			call.why);
	}
	*status = call.status;
	*text = call.text != NULL ? call.text : FAULT_MEM("cred.text", calloc(1, 1));
	return *text != NULL ? 0 : pawl_err_set(err, PAWL_ENOMEM, "no memory for an answer");
}

int cred_net_open(struct cred_net *net, const struct http_options *options, struct cred_io *io,
	struct pawl_err *err)
{
	*io = (struct cred_io){net, get_env, read_file, run, fetch};
	return http_pool_open(options, &net->http, err);
}

void cred_net_close(struct cred_net *net)
{
	http_pool_close(net->http);
	net->http = NULL;
}
