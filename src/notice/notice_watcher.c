/*
 * The thread that asks: see notice_watcher.h.
 *
 * The thread has the pool of connections and the notice_watch; nobody else touches them. Between
 * two questions it waits for `changed`. Events go through one slot under `lock`: the thread waits
 * until the loop has taken the event before it asks again. An eventfd wakes the loop.
 *
 * To stop: `stopping`, then `changed` and http_pool_wake, whichever of the two waits the thread is
 * in.
 *
 * Lock: `lock` guards stopping, event and deadline_ns; nothing is called under it.
 */
#include "notice/notice_watcher.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/times.h"
#include "io/http.h"
#include "io/http_request.h"
#include "io/loop.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define DMI_DIR "/sys/class/dmi/id"

struct notice_watcher {
	struct loop *loop;         /* the caller's */
	struct loop_source source; /* the eventfd, owned; fd -1: none */
	void (*took)(void *user, const struct notice_event *event, int64_t deadline_ns);
	void *user;
	pthread_t thread;       /* valid if started */
	bool started;           /* the thread runs */
	struct http_pool *http; /* the thread's */
	/* The thread's. */
	struct notice_watch watch;
	struct http_request request; /* the question in flight */

	pthread_mutex_t lock;
	pthread_cond_t changed;    /* with stopping, and when the loop has taken the event */
	bool stopping;             /* the thread is to end */
	struct notice_event event; /* for the loop; NOTICE_NOTHING: the slot is free */
	int64_t deadline_ns;       /* end of the event's left_ns, monotonic */
};

/* ---- the firmware ---- */

static void read_text(const char *dir, const char *name, char text[NOTICE_DMI_MAX])
{
	char path[256];
	struct stat st;
	ssize_t n = -1;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = file_open_plain(AT_FDCWD, path, O_RDONLY, 0, &st);
	if (fd >= 0) {
		n = read(fd, text, NOTICE_DMI_MAX - 1);
		close(fd);
	}
	text[n > 0 ? n : 0] = '\0';
	text[strcspn(text, "\n")] = '\0';
}

void notice_dmi_read(struct notice_dmi *dmi)
{
	const char *dir = getenv(NOTICE_DMI_ENV);

	dir = dir != NULL ? dir : DMI_DIR;
	read_text(dir, "sys_vendor", dmi->sys_vendor);
	read_text(dir, "board_vendor", dmi->board_vendor);
	read_text(dir, "chassis_asset_tag", dmi->chassis_asset_tag);
}

/* ---- the thread ---- */

/* Waits until the loop has taken the last event, and until until_ns. Returns false if the watcher
 * stops. */
static bool pause_until(struct notice_watcher *w, int64_t until_ns)
{
	const struct timespec until = {.tv_sec = until_ns / NS_PER_S,
		.tv_nsec = until_ns % NS_PER_S};
	bool goes_on;

	pthread_mutex_lock(&w->lock);
	while (!w->stopping && w->event.kind != NOTICE_NOTHING) {
		pthread_cond_wait(&w->changed, &w->lock);
	}
	while (!w->stopping && clock_mono_ns() < until_ns) {
		pthread_cond_timedwait(&w->changed, &w->lock, &until);
	}
	goes_on = !w->stopping;
	pthread_mutex_unlock(&w->lock);
	return goes_on;
}

static bool is_stopping(struct notice_watcher *w)
{
	bool stopping;

	pthread_mutex_lock(&w->lock);
	stopping = w->stopping;
	pthread_mutex_unlock(&w->lock);
	return stopping;
}

/* Waits for the answer, which is then in call, with call->rv for none. */
static void await(struct notice_watcher *w, struct http_call *call, int64_t until_ns)
{
	struct http_call *done = NULL;
	int64_t left_ns;

	do {
		left_ns = until_ns - clock_mono_ns();
		done = http_reap(w->http, left_ns > 0 ? (int)(left_ns / NS_PER_MS) + 1 : 0);
	} while (done == NULL && left_ns > 0 && !is_stopping(w));
	if (done == NULL) {
		http_cancel(w->http, call);
		call->rv = PAWL_ETIMEDOUT;
		snprintf(call->why, sizeof(call->why), "it does not answer");
	}
}

/* Hands an event to the loop. */
static void hand_over(struct notice_watcher *w, const struct notice_event *event)
{
	if (event->kind == NOTICE_NOTHING) {
		return;
	}
	pthread_mutex_lock(&w->lock);
	w->event = *event;
	w->deadline_ns = clock_add_ns(clock_mono_ns(), event->left_ns);
	pthread_mutex_unlock(&w->lock);
	eventfd_write(w->source.fd, 1);
}

/* Asks one question. Returns when the next one is to be asked; INT64_MAX: never. */
static int64_t ask(struct notice_watcher *w)
{
	int64_t began_ns = clock_mono_ns();
	struct http_call call = {.request = &w->request, .text_max = NOTICE_ANSWER_MAX};
	int64_t timeout_ns = notice_ask(&w->watch, &w->request);
	struct notice_answer answer;
	struct notice_event event;
	struct pawl_err err = {0};
	int64_t pause_ns;

	call.rv = http_begin(w->http, &call, &err);
	if (call.rv == 0) {
		await(w, &call, clock_add_ns(began_ns, timeout_ns));
	} else {
		snprintf(call.why, sizeof(call.why), "%.200s", err.msg);
	}
	answer = (struct notice_answer){.rv = call.rv,
		.why = call.why,
		.status = call.status,
		.text = call.text,
		.text_bytes = call.text_bytes,
		.etag = http_header(&call, "etag"),
		.flavor = http_header(&call, "metadata-flavor")};
	pause_ns = notice_take(&w->watch, &answer, clock_wall_ns() / NS_PER_S, &event);
	free(call.text);
	hand_over(w, &event);
	return event.kind == NOTICE_STOP ? INT64_MAX : clock_add_ns(began_ns, pause_ns);
}

static void *run(void *user)
{
	struct notice_watcher *w = user;
	int64_t next_ns = 0;

	while (next_ns != INT64_MAX && pause_until(w, next_ns)) {
		next_ns = ask(w);
	}
	return NULL;
}

/* ---- the loop's side ---- */

static void event_ready(struct loop_source *source, uint32_t events)
{
	struct notice_watcher *w = source->user;
	struct notice_event event;
	int64_t deadline_ns;
	eventfd_t count;

	eventfd_read(source->fd, &count);
	pthread_mutex_lock(&w->lock);
	event = w->event;
	deadline_ns = w->deadline_ns;
	w->event.kind = NOTICE_NOTHING;
	pthread_cond_signal(&w->changed);
	pthread_mutex_unlock(&w->lock);
	if (event.kind != NOTICE_NOTHING) {
		w->took(w->user, &event, deadline_ns);
	}
}

static struct notice_times read_times(void)
{
	return (struct notice_times){.aws_ns = times_ns(TIME_NOTICE_AWS),
		.azure_ns = times_ns(TIME_NOTICE_AZURE),
		.hold_ns = times_ns(TIME_NOTICE_HOLD),
		.answer_ns = times_ns(TIME_NOTICE_ANSWER),
		.first_ns = times_ns(TIME_NOTICE_FIRST),
		.again_ns = times_ns(TIME_NOTICE_AGAIN),
		.again_max_ns = times_ns(TIME_NOTICE_AGAIN_MAX)};
}

static int start_thread(struct notice_watcher *w, struct pawl_err *err)
{
	int sys = FAULT_SYS("notice.thread", pthread_create(&w->thread, NULL, run, w));

	w->started = sys == 0;
	if (sys > 0) { /* pthread_create returns its error; an injected fault sets errno */
		errno = sys;
	}
	return w->started ? 0 : pawl_err_sys(err, "start the thread that asks for notices");
}

int notice_watcher_start(struct notice_watcher **out, struct loop *loop,
	const struct notice_source *source,
	void (*took)(void *user, const struct notice_event *event, int64_t deadline_ns), void *user,
	struct pawl_err *err)
{
	const struct notice_times times = read_times();
	const struct http_options options = {.connect_ns = times.answer_ns,
		.stall_ns = clock_add_ns(times.hold_ns, times.first_ns), /* each has its own end */
		.connections = 1,
		.direct = true};
	struct notice_watcher *w = FAULT_MEM("notice.watcher", calloc(1, sizeof(*w)));
	int rv = 0;

	if (w == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory to ask for notices");
	}
	pthread_mutex_init(&w->lock, NULL);
	clock_cond_init(&w->changed);
	w->loop = loop;
	w->took = took;
	w->user = user;
	notice_watch_init(&w->watch, source, &times);
	w->source = (struct loop_source){
		.fd = FAULT_SYS("notice.eventfd", eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
		.ready = event_ready,
		.user = w};
	if (w->source.fd < 0) {
		rv = pawl_err_sys(err, "ask for notices: eventfd");
	} else {
		rv = loop_add(loop, &w->source, EPOLLIN, err);
	}
	rv = rv == 0 ? http_pool_open(&options, &w->http, err) : rv;
	if (rv == 0) {
		rv = start_thread(w, err);
	}
	if (rv != 0) {
		notice_watcher_stop(w);
		return rv;
	}
	*out = w;
	return 0;
}

void notice_watcher_stop(struct notice_watcher *w)
{
	if (w == NULL) {
		return;
	}
	pthread_mutex_lock(&w->lock);
	w->stopping = true;
	pthread_cond_signal(&w->changed);
	pthread_mutex_unlock(&w->lock);
	if (w->started) {
		http_pool_wake(w->http);
		pthread_join(w->thread, NULL);
	}
	http_pool_close(w->http);
	if (w->source.fd >= 0) {
		loop_remove(w->loop, &w->source);
		close(w->source.fd);
	}
	pthread_cond_destroy(&w->changed);
	pthread_mutex_destroy(&w->lock);
	free(w);
}
