/*
 * The printing thread of `pawl run`: see run_output.h.
 *
 * The thread runs a loop of its own over the workers' pipes and the pipe that stands for our
 * stderr. Between reading a line of ours and printing it, the thread empties every worker's pipe.
 * At the end of our own pipe, it empties them once more, and returns.
 *
 * One read has the size of a pipe's capacity, and so takes all that was in the pipe. A stream whose
 * writers never stop cannot keep the thread from the others.
 *
 * Lock: added_mutex guards the list of streams handed over and not yet taken; nothing is called
 * under it.
 */
#include "launch/run_output.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "base/times.h"
#include "io/loop.h"
#include "launch/run_lines.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define READ_BYTES   (64u << 10) /* a pipe's capacity */
#define BUFFER_BYTES (64u << 10) /* text gathered for one write */

/* A descriptor of ours that text goes to. */
struct target {
	struct run_text text;      /* lines go to put_text, with the target as user */
	int fd;                    /* not ours to close */
	size_t used_bytes;         /* bytes used in buffer */
	char buffer[BUFFER_BYTES]; /* text gathered, not yet written */
};

/* One pipe being read. */
struct stream {
	struct loop_source source; /* read end of the pipe, owned */
	struct loop_timer timer;   /* active while an unfinished line waits to be shown */
	struct run_output *output; /* the output that owns this stream */
	struct target *target;     /* target that lines go to */
	struct stream *next;       /* in output->streams, or output->added */
	char *log_path;            /* owned; NULL: no log file wanted */
	int log_fd;                /* -1: none, or it failed */
	struct run_lines lines;    /* text not yet printed */
};

/* Everything that the printing thread works on. */
struct run_output {
	pthread_t thread;            /* the printing thread */
	struct loop *loop;           /* the thread's loop; anybody may call loop_wake */
	pthread_mutex_t added_mutex; /* guards added; a leaf */
	struct stream *added;        /* streams not yet taken by the thread */
	struct stream *streams;      /* streams being read; the thread's */
	struct stream *own;          /* the pipe that is our stderr */
	struct target targets[2];    /* the thread's: stdout, stderr */
	/* stdout and stderr are one file: only the first target is used, so that lines stay
	 * whole. */
	bool one_target;
	int stderr_fd;              /* our real stderr */
	char bytes[READ_BYTES];     /* one read of a worker's pipe; the thread's */
	char own_bytes[READ_BYTES]; /* one read of our own pipe; the thread's */
};

/* Writes all, however long it takes. A target that is gone (EPIPE, EIO) swallows the rest. */
static int write_all(int fd, const char *bytes, size_t len_bytes)
{
	while (len_bytes > 0) {
		ssize_t done = FAULT_SYS("run.write", write(fd, bytes, len_bytes));
		struct pollfd room = {.fd = fd, .events = POLLOUT};

		if (done < 0 && errno == EAGAIN) {
			poll(&room, 1, -1); /* somebody made it non-blocking */
		} else if (done < 0 && errno != EINTR) {
			return -1;
		} else if (done > 0) {
			bytes += done;
			len_bytes -= (size_t)done;
		}
	}
	return 0;
}

static void write_target(struct target *target)
{
	/* There is nowhere to report an error. */
	(void)write_all(target->fd, target->buffer, target->used_bytes);
	target->used_bytes = 0;
}

static void put_text(void *user, const char *bytes, size_t len_bytes)
{
	struct target *target = user;

	while (len_bytes > 0) {
		size_t room = BUFFER_BYTES - target->used_bytes;
		size_t take = len_bytes < room ? len_bytes : room;

		ASSERT(target->used_bytes < BUFFER_BYTES); /* a full buffer is written at once */
		memcpy(target->buffer + target->used_bytes, bytes, take);
		target->used_bytes += take;
		bytes += take;
		len_bytes -= take;
		if (target->used_bytes == BUFFER_BYTES) {
			write_target(target);
		}
	}
}

/* Makes the directories above path and opens it for appending. */
static int open_log(const char *path)
{
	file_make_folders(AT_FDCWD, path, 0777); /* if it fails, open says why */
	return FAULT_SYS("run.log", open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
}

static void fail_log(struct stream *stream)
{
	log_line(LOG_WARNING, "log %s: %s; going on without it", stream->log_path, strerror(errno));
	if (stream->log_fd >= 0) {
		close(stream->log_fd);
	}
	stream->log_fd = -1;
}

static void close_stream(struct stream *stream)
{
	struct stream **at = &stream->output->streams;

	while (*at != NULL && *at != stream) {
		at = &(*at)->next;
	}
	if (*at == stream) {
		*at = stream->next;
	}
	if (stream->target != NULL) {
		run_lines_end(&stream->lines, &stream->target->text);
		write_target(stream->target);
	}
	loop_timer_cancel(stream->output->loop, &stream->timer);
	loop_remove(stream->output->loop, &stream->source);
	close(stream->source.fd);
	if (stream->log_fd >= 0) {
		close(stream->log_fd);
	}
	free(stream->log_path);
	free(stream);
}

/* Reads all that waits in a pipe, at once. Returns the bytes, 0 if nothing waits, or -1 if the
 * stream has ended. */
static ssize_t read_pipe(const struct stream *stream, char *bytes)
{
	ssize_t len = FAULT_SYS("run.read", read(stream->source.fd, bytes, READ_BYTES));

	if (len < 0 && (errno == EAGAIN || errno == EINTR)) {
		return 0;
	}
	return len > 0 ? len : -1;
}

static void print_bytes(struct stream *stream, const char *bytes, size_t len_bytes)
{
	run_lines_feed(&stream->lines, &stream->target->text, bytes, len_bytes);
	write_target(stream->target);
	if (stream->log_fd >= 0 && write_all(stream->log_fd, bytes, len_bytes) != 0) {
		fail_log(stream);
	}
	if (stream->lines.pending_bytes > 0 && !stream->timer.active) {
		loop_timer_start(stream->output->loop, &stream->timer,
			clock_mono_ns() + times_ns(TIME_RUN_FLUSH));
	}
}

/* Prints what is in a worker's pipe, and closes the stream at its end, so that the lines of the
 * next attempt come after it. */
static void pass_on(struct stream *stream)
{
	char *bytes = stream->output->bytes;
	ssize_t len = 1;

	for (int i = 0; i < 2 && len > 0; i++) {
		len = read_pipe(stream, bytes);
		if (len > 0) {
			print_bytes(stream, bytes, (size_t)len);
		}
	}
	if (len < 0) {
		close_stream(stream);
	}
}

static void on_flush(struct loop_timer *timer)
{
	struct stream *stream = timer->user;

	run_lines_flush(&stream->lines, &stream->target->text);
	write_target(stream->target);
}

static void on_worker_bytes(struct loop_source *source, uint32_t events)
{
	pass_on(source->user);
}

/* Adds a stream behind the others: the lines of the oldest stream are printed first. */
static void append(struct stream **list, struct stream *stream)
{
	while (*list != NULL) {
		list = &(*list)->next;
	}
	stream->next = NULL;
	*list = stream;
}

static void start_stream(struct run_output *output, struct stream *stream)
{
	struct pawl_err err;

	append(&output->streams, stream);
	if (stream->log_path != NULL) {
		stream->log_fd = open_log(stream->log_path);
		if (stream->log_fd < 0) {
			fail_log(stream);
		}
	}
	if (loop_add(output->loop, &stream->source, EPOLLIN, &err) != 0) {
		log_line(LOG_ERROR, "%s: the output of a worker is lost", err.msg);
		close_stream(stream);
	}
}

static void on_added(void *user)
{
	struct run_output *output = user;
	struct stream *added;

	pthread_mutex_lock(&output->added_mutex);
	added = output->added;
	output->added = NULL;
	pthread_mutex_unlock(&output->added_mutex);
	while (added != NULL) {
		struct stream *next = added->next;

		start_stream(output, added);
		added = next;
	}
}

static void pass_on_all(struct run_output *output)
{
	struct stream *next;

	on_added(output);
	for (struct stream *stream = output->streams; stream != NULL; stream = next) {
		next = stream->next;
		pass_on(stream);
	}
}

/* Reads our own pipe first, then prints the workers' lines, and then ours: a log line about a
 * worker was written after the worker's own output. */
static void on_own_bytes(struct loop_source *source, uint32_t events)
{
	struct stream *own = source->user;
	struct run_output *output = own->output;
	ssize_t len = read_pipe(own, output->own_bytes);

	pass_on_all(output);
	if (len >= 0) {
		print_bytes(own, output->own_bytes, (size_t)len);
		return;
	}
	while (output->streams != NULL) {
		close_stream(output->streams);
	}
	close_stream(own);
	loop_stop(output->loop);
}

static void *print_all(void *user)
{
	struct run_output *output = user;

	(void)loop_run(output->loop, NULL); /* epoll itself failed: there is nothing to print to */
	return NULL;
}

/* The message of an assertion is in the pipe: the thread needs a moment to print it. The table of
 * times was filled long ago, so this only reads. */
static void on_abort(int number)
{
	poll(NULL, 0, times_ms(TIME_RUN_ABORT));
}

static void catch_abort(void (*handler)(int))
{
	struct sigaction action = {.sa_handler = handler};

	sigaction(SIGABRT, &action, NULL); /* cannot fail for this signal */
}

/* Makes a stream from pipe fd to target. Returns NULL and closes fd on failure; errno says why. */
static struct stream *make_stream(struct run_output *output, int fd, struct target *target)
{
	struct stream *stream = FAULT_MEM("run.stream", calloc(1, sizeof(*stream)));

	if (stream == NULL) {
		close(fd);
		errno = ENOMEM;
		return NULL;
	}
	stream->source = (struct loop_source){fd, on_worker_bytes, stream};
	stream->timer = (struct loop_timer){.fired = on_flush, .user = stream};
	stream->output = output;
	stream->target = target;
	stream->log_fd = -1;
	return stream;
}

static void open_targets(struct run_output *output)
{
	struct stat out;
	struct stat err;

	output->one_target = fstat(STDOUT_FILENO, &out) == 0 &&
		fstat(output->stderr_fd, &err) == 0 && out.st_dev == err.st_dev &&
		out.st_ino == err.st_ino;
	output->targets[0].fd = STDOUT_FILENO;
	output->targets[1].fd = output->stderr_fd;
	for (int i = 0; i < 2; i++) {
		output->targets[i].text.put = put_text;
		output->targets[i].text.user = &output->targets[i];
	}
}

static struct target *find_target(struct run_output *output, bool is_stderr)
{
	return &output->targets[is_stderr && !output->one_target ? 1 : 0];
}

/* Opens the pipe that stands for our stderr from now on. */
static int open_own(struct run_output *output, struct pawl_err *err)
{
	int ends[2];
	int rv;

	if (FAULT_SYS("run.pipe", pipe2(ends, O_CLOEXEC | O_NONBLOCK)) != 0) {
		return pawl_err_sys(err, "output: make a pipe");
	}
	output->own = make_stream(output, ends[0], find_target(output, true));
	if (output->own == NULL) {
		rv = pawl_err_sys(err, "output");
		goto close_end;
	}
	output->own->source.ready = on_own_bytes;
	rv = loop_add(output->loop, &output->own->source, EPOLLIN, err);
	if (rv == 0 && dup2(ends[1], STDERR_FILENO) < 0) {
		rv = pawl_err_sys(err, "output: replace stderr");
	}
	if (rv != 0) {
		close_stream(output->own);
	}
close_end:
	close(ends[1]);
	return rv;
}

static int start_thread(struct run_output *output, struct pawl_err *err)
{
	sigset_t all;
	sigset_t before;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are the main thread's */
	errno = pthread_create(&output->thread, NULL, print_all, output);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return errno != 0 ? pawl_err_sys(err, "output: start a thread") : 0;
}

int run_output_open(struct run_output **output, struct pawl_err *err)
{
	struct run_output *o = FAULT_MEM("run.output", calloc(1, sizeof(*o)));
	int rv;

	if (o == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "output: out of memory");
	}
	pthread_mutex_init(&o->added_mutex, NULL);
	o->stderr_fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	if (o->stderr_fd < 0) {
		rv = pawl_err_sys(err, "output: keep stderr");
		goto free_output;
	}
	open_targets(o);
	rv = loop_open(&o->loop, err);
	if (rv != 0) {
		goto close_stderr;
	}
	loop_on_wake(o->loop, on_added, o);
	rv = open_own(o, err);
	if (rv != 0) {
		goto close_loop;
	}
	rv = start_thread(o, err);
	if (rv == 0) {
		catch_abort(on_abort);
		*output = o;
		return 0;
	}
	dup2(o->stderr_fd, STDERR_FILENO);
	close_stream(o->own);
close_loop:
	loop_close(o->loop);
close_stderr:
	close(o->stderr_fd);
free_output:
	pthread_mutex_destroy(&o->added_mutex);
	free(o);
	return rv;
}

int run_output_add(struct run_output *output, const struct run_stream *from, struct pawl_err *err)
{
	struct stream *stream = make_stream(output, from->fd, find_target(output, from->is_stderr));

	if (stream == NULL) {
		return pawl_err_sys(err, "output of rank %u", from->rank);
	}
	fcntl(from->fd, F_SETFL, O_NONBLOCK); /* never fails on a pipe */
	snprintf(stream->lines.prefix, sizeof(stream->lines.prefix), "[rank%u] ", from->rank);
	if (from->log != NULL) {
		stream->log_path = strdup(from->log);
		if (stream->log_path == NULL) {
			close(from->fd);
			free(stream);
			return pawl_err_set(err, PAWL_ENOMEM, "output of rank %u", from->rank);
		}
	}
	pthread_mutex_lock(&output->added_mutex);
	append(&output->added, stream);
	pthread_mutex_unlock(&output->added_mutex);
	loop_wake(output->loop);
	return 0;
}

void run_output_close(struct run_output *output)
{
	struct timespec until;

	if (output == NULL) {
		return;
	}
	dup2(output->stderr_fd, STDERR_FILENO); /* the end of our pipe, see on_own_bytes */
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += times_s(TIME_RUN_OUTPUT);
	if (pthread_timedjoin_np(output->thread, NULL, &until) != 0) {
		return; /* The thread is stuck in a write; both end with the process. */
	}
	catch_abort(SIG_DFL);
	while (output->added != NULL) { /* added after the thread had ended */
		struct stream *next = output->added->next;

		close_stream(output->added);
		output->added = next;
	}
	loop_close(output->loop);
	close(output->stderr_fd);
	pthread_mutex_destroy(&output->added_mutex);
	free(output);
}
