/* Copies the output of a run's processes to the job's log: see shepherd_impl.h. */
#include "engine/local/shepherd_impl.h"

#include "base/assert.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define READS_TURN 16u   /* reads from one process per event, so that others get a turn */
#define READS_LAST 1024u /* reads at close: more than a pipe holds */

static void put_line(struct run_child *child)
{
	char mark[32];

	if (child->line_bytes > 0) {
		snprintf(mark, sizeof(mark), "[node%u] ", child->rank);
		job_log_write(child->shepherd->log, mark, strlen(mark));
		job_log_write(child->shepherd->log, child->line, child->line_bytes);
		if (child->line[child->line_bytes - 1] != '\n') {
			job_log_write(child->shepherd->log, "\n", 1);
		}
	}
	child->line_bytes = 0;
}

static void take(struct run_child *child, const char *bytes, size_t len_bytes)
{
	if (!child->prefixed) {
		job_log_write(child->shepherd->log, bytes, len_bytes);
		return;
	}
	ASSERT(child->line_bytes < sizeof(child->line)); /* else put_line has emptied it */
	for (size_t i = 0; i < len_bytes; i++) {
		child->line[child->line_bytes++] = bytes[i];
		if (bytes[i] == '\n' || child->line_bytes == sizeof(child->line)) {
			put_line(child);
		}
	}
}

/* Copies what is available, in at most reads_max reads. Returns false at the end of the output. */
static bool drain(struct run_child *child, unsigned reads_max)
{
	char bytes[CHILD_LINE_MAX];

	while (reads_max-- > 0) {
		ssize_t n = read(child->output.fd, bytes, sizeof(bytes));

		if (n <= 0) {
			return n < 0 && (errno == EAGAIN || errno == EINTR);
		}
		take(child, bytes, (size_t)n);
	}
	return true;
}

static void on_output(struct loop_source *source, uint32_t events)
{
	struct run_child *child = source->user;

	if (!drain(child, READS_TURN)) {
		shepherd_output_close(child);
	}
}

int shepherd_output_open(struct shepherd *s, struct run_child *child, int fd, struct pawl_err *err)
{
	int rv;

	fcntl(fd, F_SETFL, O_NONBLOCK);
	child->output = (struct loop_source){.fd = fd, .ready = on_output, .user = child};
	rv = loop_add(s->loop, &child->output, EPOLLIN, err);
	if (rv != 0) {
		close(fd);
		child->output.fd = -1;
	}
	return rv;
}

void shepherd_output_close(struct run_child *child)
{
	if (child->output.fd >= 0) {
		drain(child, READS_LAST);
		put_line(child);
		loop_remove(child->shepherd->loop, &child->output);
		close(child->output.fd);
		child->output.fd = -1;
	}
}
