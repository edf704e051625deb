/* The output of `pawl run` is in order, complete, and blocks nobody. A pipe that nobody reads holds
 * up the thread, so that everything comes at once. */
#include "launch/run_output.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/times.h"
#include "within.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define PIPE_BYTES 4096
#define LINE_BYTES 8000 /* bytes of a worker's line: more than the pipe holds */
#define TEXT_MAX   (1u << 20)

static struct run_output *output;
static int real_out, real_err;
static int out_fd;     /* read end of the output */
static int workers[2]; /* write ends of two ranks' stderr */

static int add_worker(uint32_t rank, const char *log)
{
	struct run_stream stream = {.rank = rank, .is_stderr = true, .log = log};
	int ends[2];

	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	stream.fd = ends[0];
	assert_int_equal(run_output_add(output, &stream, NULL), 0);
	return ends[1];
}

/* Makes stdout and stderr one small pipe. */
static int setup(void **state)
{
	int ends[2];

	fflush(NULL);
	real_out = dup(STDOUT_FILENO);
	real_err = dup(STDERR_FILENO);
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	fcntl(ends[1], F_SETPIPE_SZ, PIPE_BYTES);
	dup2(ends[1], STDOUT_FILENO);
	dup2(ends[1], STDERR_FILENO);
	close(ends[1]);
	out_fd = ends[0];
	return run_output_open(&output, NULL);
}

static void restore(void)
{
	fflush(NULL);
	dup2(real_out, STDOUT_FILENO);
	dup2(real_err, STDERR_FILENO);
	close(real_out);
	close(real_err);
}

/* Waits until the thread cannot write any more. */
static void wait_full(void)
{
	struct within within = within_begin(WITHIN_LONG_S);
	int queued_bytes = 0;

	while (ioctl(out_fd, FIONREAD, &queued_bytes) == 0 && queued_bytes < PIPE_BYTES) {
		if (within_over(&within)) {
			restore(); /* Otherwise nobody would read it. */
			within_late("a full pipe", within.seconds, __FILE__, __LINE__);
		}
		within_pace(0.001);
	}
	within_pace(0.02); /* a write that filled it may still be going on */
}

static size_t read_some(char *text, size_t used, size_t len_bytes)
{
	while (len_bytes > 0) {
		ssize_t len = read(out_fd, text + used, len_bytes);

		if (len <= 0) {
			break;
		}
		used += (size_t)len;
		len_bytes -= (size_t)len;
	}
	text[used] = '\0';
	return used;
}

/* Reads until the text holds what, too. */
static size_t read_until(char *text, size_t used, const char *what)
{
	while (!strstr(text, what)) {
		size_t before = used;

		used = read_some(text, used, 1);
		if (used == before) {
			break; /* nothing more comes */
		}
	}
	return used;
}

static void print_line(int fd, char letter)
{
	char line[LINE_BYTES];

	memset(line, letter, sizeof(line));
	line[sizeof(line) - 1] = '\n';
	assert_int_equal(write(fd, line, sizeof(line)), sizeof(line));
}

/* The output of a rank before a log line of ours stands above that line, however late it is
 * read. */
static void output_stands_above_its_log_line(void **state)
{
	static char text[TEXT_MAX];
	size_t used;

	workers[0] = add_worker(0, NULL);
	workers[1] = add_worker(1, NULL);
	print_line(workers[1], 'x');
	wait_full();                 /* the thread writes x */
	log_line(LOG_INFO, "first"); /* ready before the worker's pipe is … */
	print_line(workers[0], 'a');
	used = read_some(text, 0, LINE_BYTES + strlen("[rank1] "));
	wait_full(); /* the thread writes a; both are looked at in that order */
	print_line(workers[0], 'b');
	log_line(LOG_INFO, "second"); /* … and now after it */
	used = read_some(text, used,
		2 * (LINE_BYTES + strlen("[rank0] ")) + strlen("pawl: first\n"));
	read_some(text, used, strlen("pawl: second\n"));
	close(workers[0]);
	close(workers[1]);
	run_output_close(output);
	restore();
	close(out_fd);
	assert_non_null(strstr(text, "[rank0] bbb"));
	assert_non_null(strstr(text, "pawl: second\n"));
	assert_true(strstr(text, "[rank0] aaa") < strstr(text, "[rank0] bbb"));
	assert_true(strstr(text, "[rank0] bbb") < strstr(text, "pawl: second\n"));
	assert_true(strstr(text, "pawl: first\n") < strstr(text, "pawl: second\n"));
}

/* A rank is started again while lines of the attempt before wait, the last one without an end:
 * those lines come first. */
static void attempts_stand_in_their_order(void **state)
{
	static char text[TEXT_MAX];
	char what[32];
	size_t used;

	workers[1] = add_worker(1, NULL);
	print_line(workers[1], 'x');
	wait_full(); /* the thread writes x */
	for (int attempt = 0; attempt < 4; attempt++) {
		int fd = add_worker(0, NULL);

		dprintf(fd, "begin %d\nend %d", attempt, attempt);
		close(fd);
		log_line(LOG_INFO, "attempt %d", attempt);
	}
	close(workers[1]);
	used = read_until(text, 0, "end 3\n");
	run_output_close(output);
	restore();
	fcntl(out_fd, F_SETFL, O_NONBLOCK);
	read_some(text, used, TEXT_MAX - 1 - used);
	close(out_fd);
	for (int attempt = 0; attempt < 4; attempt++) {
		snprintf(what, sizeof(what), "begin %d\n[rank0] end %d\n", attempt, attempt);
		assert_non_null(strstr(text, what));
		snprintf(what, sizeof(what), "begin %d\n", attempt + 1);
		assert_true(attempt == 3 || strstr(text, "end 0\n") < strstr(text, what));
	}
}

/* Logs more than a pipe holds, and closes, while nobody reads. Returns the seconds that closing
 * took. */
static double close_stuck(void)
{
	int64_t began_ns;

	for (int i = 0; i < 2000; i++) {
		log_line(LOG_INFO, "more lines than a pipe holds: the rest is dropped, %d", i);
	}
	began_ns = clock_mono_ns();
	run_output_close(output);
	return (double)(clock_mono_ns() - began_ns) / NS_PER_S;
}

/* A stuck reader stops neither callers that log, which would be for good, nor the end. The test
 * runs in a process of its own, since the thread stays in its write. */
static void nobody_waits_for_a_stuck_reader(void **state)
{
	pid_t child = fork();

	if (child == 0) {
		setup(NULL);
		workers[0] = add_worker(0, NULL);
		print_line(workers[0], 'x');
		wait_full();
		_exit(close_stuck() > times_s(TIME_RUN_OUTPUT) - 1 ? 0 : 1);
	}
	assert_int_equal(WITHIN_CHILD(child), 0);
}

/* A log that cannot be written is reported once, and the rank goes on. */
static void a_lost_log_file_stops_nothing(void **state)
{
	static char text[TEXT_MAX];
	size_t used;

	workers[0] = add_worker(0, "/dev/null/no/such.err");
	workers[1] = add_worker(1, "/dev/full");
	assert_int_equal(write(workers[0], "one\n", 4), 4);
	assert_int_equal(write(workers[1], "two\n", 4), 4);
	used = read_until(text, 0, "[rank1] two\n");
	assert_int_equal(write(workers[1], "three\n", 6), 6);
	used = read_until(text, used, "[rank1] three\n");
	used = read_until(text, used, "[rank0] one\n");
	used = read_until(text, used, "Not a directory");
	used = read_until(text, used, "No space left");
	close(workers[0]);
	close(workers[1]);
	run_output_close(output);
	restore();
	/* On a busy machine the thread may still hold the pipe. */
	fcntl(out_fd, F_SETFL, O_NONBLOCK);
	read_some(text, used, TEXT_MAX - 1 - used);
	close(out_fd);
	assert_non_null(strstr(text, "[rank0] one\n"));
	assert_non_null(strstr(text, "[rank1] two\n"));
	assert_non_null(strstr(text, "[rank1] three\n"));
	assert_non_null(strstr(text, "log /dev/null/no/such.err: Not a directory"));
	assert_non_null(strstr(text, "log /dev/full: No space left"));
	assert_null(strstr(strstr(text, "log /dev/full") + 1, "log /dev/full"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(output_stands_above_its_log_line, setup),
		cmocka_unit_test_setup(attempts_stand_in_their_order, setup),
		cmocka_unit_test_setup(a_lost_log_file_stops_nothing, setup),
		cmocka_unit_test(nobody_waits_for_a_stuck_reader),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
