/* Our end of the template process: see run_template.h. */
#include "launch/run_template.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/proc.h"
#include "base/wire.h"
#include "io/loop.h"
#include "launch/env/run_vars.h"
#include "launch/run_spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define MESSAGE_MAX 512u /* bytes of a message from the template, terminator included */

struct run_template {
	struct run_template_options options; /* as given */
	struct loop *loop;                   /* the caller's */
	struct loop_source source;           /* our end of the pair */
	pid_t pid;                           /* process id; the process leads a group of its own */
	bool nice;   /* the process runs at low priority until it is needed */
	bool ready;  /* the template has reported that it is ready */
	bool failed; /* the template has failed for good */
};

static void put_line(struct wire_out *plan, const char *word, const char *text, size_t len_bytes)
{
	wire_put_raw(plan, word, strlen(word));
	wire_put_raw(plan, text, len_bytes);
	wire_put_raw(plan, "\n", 1);
}

/* Writes the settings and imports of the template, as lines for its descriptor 4. */
static int write_plan(const char *imports, int *plan_fd, struct pawl_err *err)
{
	struct wire_out plan = {NULL};
	char pid[16];
	int rv = 0;
	int fd;

	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	put_line(&plan, "supervisor ", pid, strlen(pid));
	for (const char *const *name = run_vars_varying; *name != NULL; name++) {
		put_line(&plan, "varies ", *name, strlen(*name));
	}
	while (*imports != '\0') {
		size_t len = strcspn(imports, "\n");

		put_line(&plan, "import ", imports, len);
		imports += len + (imports[len] == '\n');
	}
	fd = FAULT_SYS("run.plan", memfd_create("pawl-template", MFD_CLOEXEC));
	if (plan.failed) {
		rv = pawl_err_set(err, PAWL_ENOMEM,
			"template: out of memory for the list of imports");
	} else if (fd < 0 || write(fd, plan.bytes, plan.len_bytes) != (ssize_t)plan.len_bytes) {
		rv = pawl_err_sys(err, "template: write the list of imports");
	}
	wire_out_deinit(&plan);
	if (rv == 0) {
		*plan_fd = fd;
	} else if (fd >= 0) {
		close(fd);
	}
	return rv;
}

/* Makes the command line: python -u -m pawl._template, then the arguments of a worker, so that ps
 * shows the script. */
static char **make_argv(const struct run_template_options *options)
{
	static const char *const fixed[] = {"-u", "-m", "pawl._template"};
	size_t fixed_n = sizeof(fixed) / sizeof(fixed[0]);
	size_t n = 0;
	char **argv;

	while (options->worker[n] != NULL) {
		n++;
	}
	argv = calloc(1 + fixed_n + n + 1, sizeof(*argv));
	if (argv == NULL) {
		return NULL;
	}
	argv[0] = (char *)(uintptr_t)options->python;
	for (size_t i = 0; i < fixed_n; i++) {
		argv[1 + i] = (char *)(uintptr_t)fixed[i];
	}
	memcpy(argv + 1 + fixed_n, options->worker, n * sizeof(*argv));
	return argv;
}

/* Fails the template for good; its process may live on until the template is closed. */
static void fail(struct run_template *tmpl, const char *why)
{
	ASSERT(!tmpl->failed);
	log_line(LOG_DEBUG, "template: %s", why);
	tmpl->ready = false;
	tmpl->failed = true;
	loop_remove(tmpl->loop, &tmpl->source);
	tmpl->options.failed(tmpl->options.user, UINT32_MAX);
}

/* Handles the report of a started process. We will signal and reap that pid, and any imported
 * module can write to the socket. So this checks in /proc that the process is a descendant of ours.
 * PAWL_ENOENT: message is of another kind; PAWL_EINVAL: the process is not a descendant. */
static int handle_started(struct run_template *tmpl, const char *message)
{
	uint32_t rank;
	uint32_t pid;

	if (sscanf(message, "started %10u %10u", &rank, &pid) != 2) {
		return PAWL_ENOENT;
	}
	if (!proc_is_descendant(pid)) {
		return PAWL_EINVAL;
	}
	tmpl->options.started(tmpl->options.user, rank, (pid_t)pid);
	return 0;
}

/* Raises the template from low priority to ours. */
static void raise_priority(struct run_template *tmpl)
{
	if (tmpl->nice) {
		setpriority(PRIO_PROCESS, (id_t)tmpl->pid, getpriority(PRIO_PROCESS, 0));
		tmpl->nice = false;
	}
}

static void handle(struct run_template *tmpl, const char *message)
{
	uint32_t rank;
	int rv = handle_started(tmpl, message);

	if (rv == 0) {
		return;
	}
	if (rv == PAWL_EINVAL) {
		fail(tmpl, "the process that it reports is not a descendant of pawl run");
	} else if (strcmp(message, "ready") == 0) {
		tmpl->ready = true;
		raise_priority(tmpl);
		log_line(LOG_DEBUG, "template: ready");
	} else if (sscanf(message, "failed %u", &rank) == 1) {
		log_line(LOG_WARNING, "template: %s", message);
		tmpl->options.failed(tmpl->options.user, rank);
	} else {
		fail(tmpl, message);
	}
}

void run_template_poll(struct run_template *tmpl)
{
	char message[MESSAGE_MAX];

	while (tmpl != NULL && !tmpl->failed) {
		ssize_t len = recv(tmpl->source.fd, message, sizeof(message) - 1, MSG_DONTWAIT);

		if (len < 0 && (errno == EAGAIN || errno == EINTR)) {
			return;
		}
		if (len <= 0) {
			fail(tmpl, "its process has ended");
			return;
		}
		message[len] = '\0';
		handle(tmpl, message);
	}
}

static void on_message(struct loop_source *source, uint32_t events)
{
	run_template_poll(source->user);
}

static int spawn(struct run_template *tmpl, int plan_fd, int their_fd, struct pawl_err *err)
{
	const struct run_template_options *options = &tmpl->options;
	char **argv = make_argv(options);
	struct run_program program = {
		.path = options->python,
		.argv = argv,
		.env = options->env,
		.fds = {options->null_fd, options->null_fd, options->stderr_fd, their_fd, plan_fd},
		.fds_n = 5,
		.nice = tmpl->nice,
	};
	int rv;

	if (argv == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "template: out of memory");
	}
	rv = run_spawn(&program, &tmpl->pid, err);
	free(argv);
	return rv;
}

int run_template_open(struct run_template **tmpl, struct loop *loop,
	const struct run_template_options *options, struct pawl_err *err)
{
	struct run_template *t = FAULT_MEM("run.template", calloc(1, sizeof(*t)));
	int ends[2] = {-1, -1};
	int plan_fd;
	int rv;

	if (t == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "template: out of memory");
	}
	t->options = *options;
	t->loop = loop;
	t->nice = run_nice_can_return();
	rv = write_plan(options->imports, &plan_fd, err);
	if (rv != 0) {
		goto free_template;
	}
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
		rv = pawl_err_sys(err, "template: make a socket pair");
		goto close_plan;
	}
	t->source = (struct loop_source){ends[0], on_message, t};
	rv = loop_add(loop, &t->source, EPOLLIN, err);
	if (rv == 0) {
		rv = spawn(t, plan_fd, ends[1], err);
	}
	close(ends[1]);
	if (rv != 0) {
		loop_remove(loop, &t->source);
		close(ends[0]);
	}
close_plan:
	close(plan_fd);
free_template:
	if (rv != 0) {
		free(t);
		return rv;
	}
	*tmpl = t;
	return 0;
}

void run_template_close(struct run_template *tmpl)
{
	char message[MESSAGE_MAX];
	ssize_t len;

	if (tmpl == NULL) {
		return;
	}
	kill(-tmpl->pid, SIGKILL);
	/* From here on a worker cannot be reported, and ends itself; workers that were reported
	 * before are ours. */
	shutdown(tmpl->source.fd, SHUT_RD);
	while ((len = recv(tmpl->source.fd, message, sizeof(message) - 1, MSG_DONTWAIT)) > 0) {
		message[len] = '\0';
		handle_started(tmpl, message);
	}
	loop_remove(tmpl->loop, &tmpl->source);
	close(tmpl->source.fd);
	free(tmpl);
}

bool run_template_is_ready(const struct run_template *tmpl)
{
	return tmpl != NULL && tmpl->ready;
}

bool run_template_is_starting(const struct run_template *tmpl)
{
	return tmpl != NULL && !tmpl->ready && !tmpl->failed;
}

pid_t run_template_pid(const struct run_template *tmpl)
{
	return tmpl != NULL ? tmpl->pid : 0;
}

int run_template_start(struct run_template *tmpl, uint32_t rank, int out_fd, int err_fd,
	const struct wire_out *varying, struct pawl_err *err)
{
	const int fds[2] = {out_fd, err_fd};
	char text[16];
	struct iovec parts[2] = {{text, 0}, {varying->bytes, varying->len_bytes}};
	union {
		char bytes[CMSG_SPACE(sizeof(fds))];
		struct cmsghdr align;
	} control = {{0}};
	struct msghdr message = {.msg_iov = parts,
		.msg_iovlen = 2,
		.msg_control = control.bytes,
		.msg_controllen = sizeof(control.bytes)};
	struct cmsghdr *rights = CMSG_FIRSTHDR(&message);

	ASSERT(!tmpl->failed); /* the template is ready, or starting */
	if (varying->failed) {
		return pawl_err_set(err, PAWL_ENOMEM,
			"template: out of memory for the variables of rank %u", rank);
	}
	snprintf(text, sizeof(text), "%u", rank);
	parts[0].iov_len = strlen(text) + 1;
	rights->cmsg_level = SOL_SOCKET;
	rights->cmsg_type = SCM_RIGHTS;
	rights->cmsg_len = CMSG_LEN(sizeof(fds));
	memcpy(CMSG_DATA(rights), fds, sizeof(fds));
	raise_priority(tmpl);
	if (FAULT_SYS("run.template",
		    sendmsg(tmpl->source.fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL)) < 0) {
		return pawl_err_sys(err, "template: ask for rank %u", rank);
	}
	return 0;
}
