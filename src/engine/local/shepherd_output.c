/* Copies the pipes of a job's processes to its log: see shepherd_impl.h. */
#include "engine/local/shepherd_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define READS_TURN 16u   /* reads from one process, before others have their turn */
#define READS_LAST 1024u /* reads once a process has ended: more than a pipe holds */

static void put_line(struct run_child *one)
{
	char mark[32];

	if (one->line_bytes > 0) {
		snprintf(mark, sizeof(mark), "[node%u] ", one->rank);
		job_log_write(one->shepherd->log, mark, strlen(mark));
		job_log_write(one->shepherd->log, one->line, one->line_bytes);
		if (one->line[one->line_bytes - 1] != '\n') {
			job_log_write(one->shepherd->log, "\n", 1);
		}
	}
	one->line_bytes = 0;
}

static void take(struct run_child *one, const char *bytes, size_t len_bytes)
{
	if (!one->prefixed) {
		job_log_write(one->shepherd->log, bytes, len_bytes);
		return;
	}
	for (size_t i = 0; i < len_bytes; i++) {
		one->line[one->line_bytes++] = bytes[i];
		if (bytes[i] == '\n' || one->line_bytes == sizeof(one->line)) {
			put_line(one);
		}
	}
}

/* Copies what is there now, or much of it; false: nothing will come any more. */
static bool drain(struct run_child *one, unsigned reads_max)
{
	char bytes[CHILD_LINE_MAX];

	while (reads_max-- > 0) {
		ssize_t n = read(one->output.fd, bytes, sizeof(bytes));

		if (n <= 0) {
			return n < 0 && (errno == EAGAIN || errno == EINTR);
		}
		take(one, bytes, (size_t)n);
	}
	return true;
}

static void on_output(struct loop_source *source, uint32_t events)
{
	struct run_child *one = source->user;

	if (!drain(one, READS_TURN)) {
		shepherd_output_close(one);
	}
}

int shepherd_output_open(struct shepherd *s, struct run_child *one, int fd, struct pawl_err *err)
{
	int rv;

	fcntl(fd, F_SETFL, O_NONBLOCK);
	one->output = (struct loop_source){.fd = fd, .ready = on_output, .user = one};
	rv = loop_add(s->loop, &one->output, EPOLLIN, err);
	if (rv != 0) {
		close(fd);
		one->output.fd = -1;
	}
	return rv;
}

void shepherd_output_close(struct run_child *one)
{
	if (one->output.fd >= 0) {
		drain(one, READS_LAST);
		put_line(one);
		loop_remove(one->shepherd->loop, &one->output);
		close(one->output.fd);
		one->output.fd = -1;
	}
}
