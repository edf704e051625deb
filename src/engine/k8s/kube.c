/* See kube.h and kube_impl.h: the loop's side, the thread, and requests. Watches are in
 * kube_watch.c. */
#include "engine/k8s/kube_impl.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/times.h"
#include "engine/k8s/kube_access.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define TEXT_MAX     (64u << 20) /* bytes of an answer */
#define DELAY_NS     (200 * NS_PER_MS)
#define DELAY_MAX_NS (10 * NS_PER_S)
#define ASKED_MAX_NS (60 * NS_PER_S) /* a Retry-After that is longer is cut */
#define NEVER        INT64_MAX
#define CONNECT_NS   (10 * NS_PER_S)
#define STALL_NS     (30 * NS_PER_S)

/* ---- events ---- */

void kube_post(struct kube *kube, struct kube_event *event)
{
	event->next = NULL;
	pthread_mutex_lock(&kube->lock);
	*kube->outbox_end = event;
	kube->outbox_end = &event->next;
	pthread_mutex_unlock(&kube->lock);
	eventfd_write(kube->source.fd, 1);
}

bool kube_report(struct kube_watch *watch, enum kube_event_kind kind, json_t *object)
{
	struct kube_event *event = FAULT_MEM("kube.event", calloc(1, sizeof(*event)));

	if (event == NULL) {
		json_decref(object);
		return false;
	}
	event->kind = kind;
	event->watch = watch;
	event->object = object;
	kube_post(watch->kube, event);
	return true;
}

static void free_call(struct kube_call *call)
{
	json_decref(call->answer);
	free(call->body);
	free(call);
}

/* Hands an answer to whoever has asked. */
static void give_answer(struct kube_call *call)
{
	const struct kube_answer answer = {call->rv, call->status, call->reason, call->why,
		call->answer};

	if (!call->unwanted) {
		call->done(call->user, &answer);
	}
	free_call(call);
}

static void give_event(struct kube_event *event)
{
	const struct kube_watch_options *options = &event->watch->options;

	switch (event->kind) {
	case KUBE_SEEN:
		options->seen(options->user, event->object);
		break;
	case KUBE_GONE:
		options->gone(options->user, event->object);
		break;
	case KUBE_LISTED:
		options->listed(options->user);
		break;
	case KUBE_FAILED:
		if (options->failed != NULL) {
			options->failed(options->user, event->why);
		}
		break;
	default:
		ASSERT(false);
	}
}

/* Gives one event to whom it concerns, and frees it. */
static void dispatch(struct kube_event *event)
{
	if (event->kind == KUBE_ANSWERED) {
		give_answer(event->call); /* the event is a part of it */
		return;
	}
	if (event->kind == KUBE_ENDED) {
		free(event->watch);
		return;
	}
	if (!event->watch->unwanted) {
		give_event(event);
	}
	json_decref(event->object);
	free(event);
}

static struct kube_event *take_outbox(struct kube *kube)
{
	struct kube_event *first;

	pthread_mutex_lock(&kube->lock);
	first = kube->outbox;
	kube->outbox = NULL;
	kube->outbox_end = &kube->outbox;
	pthread_mutex_unlock(&kube->lock);
	return first;
}

/* Fits ready of struct loop_source. */
static void take_events(struct loop_source *source, uint32_t events)
{
	struct kube *kube = source->user;
	struct kube_event *event;
	eventfd_t count;

	eventfd_read(source->fd, &count);
	event = take_outbox(kube);
	while (event != NULL) {
		struct kube_event *next = event->next;

		dispatch(event);
		event = next;
	}
}

/* ---- the loop's calls ---- */

/* Lets the thread look. The caller holds the lock, so that the pool is not being replaced. */
static void poke(struct kube *kube)
{
	kube->poked = true;
	pthread_cond_signal(&kube->changed);
	if (kube->http != NULL) {
		http_pool_wake(kube->http);
	}
}

struct kube_call *kube_send(struct kube *kube, const struct kube_ask *ask)
{
	struct kube_call *call = FAULT_MEM("kube.call", calloc(1, sizeof(*call)));
	char *body = ask->body != NULL ? FAULT_MEM("kube.body", json_dumps(ask->body, JSON_COMPACT))
				       : NULL;

	if (call == NULL || (ask->body != NULL && body == NULL)) {
		json_decref(ask->body);
		free(body);
		free(call);
		return NULL;
	}
	json_decref(ask->body);
	ASSERT(strlen(ask->path) < sizeof(call->path));
	call->kube = kube;
	call->verb = ask->verb;
	call->body = body;
	call->patience_ns = ask->patience_ns;
	call->done = ask->done;
	call->user = ask->user;
	snprintf(call->path, sizeof(call->path), "%s", ask->path);
	snprintf(call->query, sizeof(call->query), "%s", ask->query != NULL ? ask->query : "");
	pthread_mutex_lock(&kube->lock);
	call->next = kube->inbox;
	kube->inbox = call;
	poke(kube);
	pthread_mutex_unlock(&kube->lock);
	return call;
}

void kube_cancel(struct kube_call *call)
{
	call->unwanted = true;
}

struct kube_watch *kube_watch(struct kube *kube, const struct kube_watch_options *options)
{
	struct kube_watch *watch = FAULT_MEM("kube.watch", calloc(1, sizeof(*watch)));

	if (watch == NULL) {
		return NULL;
	}
	ASSERT(strlen(options->path) < sizeof(watch->path));
	watch->kube = kube;
	watch->options = *options;
	watch->lists_next = true;
	snprintf(watch->path, sizeof(watch->path), "%s", options->path);
	snprintf(watch->selector, sizeof(watch->selector), "%s",
		options->selector != NULL ? options->selector : "");
	pthread_mutex_lock(&kube->lock);
	watch->next = kube->new_watches;
	kube->new_watches = watch;
	poke(kube);
	pthread_mutex_unlock(&kube->lock);
	return watch;
}

void kube_unwatch(struct kube_watch *watch)
{
	struct kube *kube = watch->kube;

	watch->unwanted = true;
	pthread_mutex_lock(&kube->lock);
	watch->ending = true;
	poke(kube);
	pthread_mutex_unlock(&kube->lock);
}

/* ---- flights ---- */

struct kube_flight *kube_fly(struct kube *kube, const char *method, const char *path,
	const char *query, bool refused, struct pawl_err *err)
{
	struct kube_flight *flight = FAULT_MEM("kube.flight", calloc(1, sizeof(*flight)));
	const char *prefix = kube_access_path(kube->access);
	struct http_request *request;

	if (flight == NULL) {
		pawl_err_set(err, PAWL_ENOMEM, "no memory for a request");
		return NULL;
	}
	request = &flight->request;
	request_init(request, method, kube_access_endpoint(kube->access));
	if (prefix[0] == '/') {
		request_add_path(request, prefix + 1);
	}
	request_add_path(request, path + 1);
	request_set_query(request, query);
	request_add_header(request, "accept", "application/json");
	if (kube_access_authorize(kube->access, refused, request, err) != 0) {
		kube_land(kube, flight, true);
		return NULL;
	}
	flight->http.request = request;
	flight->http.text_max = TEXT_MAX;
	flight->http.patient = true;
	return flight;
}

void kube_land(struct kube *kube, struct kube_flight *flight, bool over)
{
	if (flight == NULL) {
		return;
	}
	if (!over) {
		http_cancel(kube->http, &flight->http);
	}
	free(flight->http.text);
	explicit_bzero(flight->request.text, sizeof(flight->request.text)); /* the token */
	free(flight);
}

void kube_explain(const char *what, const char *path, const struct http_call *http, char *reason,
	char *why)
{
	json_t *status = http->text != NULL
		? json_loadb(http->text, http->text_bytes, JSON_REJECT_DUPLICATES, NULL)
		: NULL;
	const char *message = json_string_value(json_object_get(status, "message"));
	const char *word = json_string_value(json_object_get(status, "reason"));

	snprintf(reason, KUBE_REASON_MAX, "%s", word != NULL ? word : "");
	if (http->rv != 0) {
		snprintf(why, KUBE_WHY_MAX, "%s %.200s: %s", what, path, http->why);
	} else {
		snprintf(why, KUBE_WHY_MAX, "%s %.200s: %d: %.250s", what, path, http->status,
			message != NULL        ? message
				: word != NULL ? word
					       : "no explanation");
	}
	json_decref(status);
}

int64_t kube_delay(struct kube *kube, unsigned failures, const struct http_call *http)
{
	const char *after = http != NULL ? http_header(http, "retry-after") : NULL;
	int64_t delay_ns = DELAY_NS;
	long asked_s = after != NULL ? strtol(after, NULL, 10) : 0;

	for (unsigned i = 1; i < failures && delay_ns < DELAY_MAX_NS; i++) {
		delay_ns *= 2;
	}
	delay_ns = delay_ns < DELAY_MAX_NS ? delay_ns : DELAY_MAX_NS;
	delay_ns = delay_ns / 2 + (int64_t)(rng_u64(&kube->rng) % (uint64_t)(delay_ns / 2));
	if (asked_s > 0) {
		int64_t asked_ns =
			asked_s < ASKED_MAX_NS / NS_PER_S ? asked_s * NS_PER_S : ASKED_MAX_NS;

		delay_ns += asked_ns;
	}
	return delay_ns;
}

/* ---- calls ---- */

static const char *method_of(enum kube_verb verb)
{
	static const char *const methods[] = {"GET", "POST", "PUT", "PATCH", "DELETE"};

	return methods[verb];
}

/* Fits read of struct http_call. */
static size_t read_body(void *user, uint64_t off, void *bytes, size_t size)
{
	const struct kube_flight *flight = user;

	memcpy(bytes, flight->call->body + off, size);
	return size;
}

/* Takes a call out of those that are under way, and hands its answer to the loop. */
static void answer_call(struct kube *kube, struct kube_call *call)
{
	struct kube_call **at = &kube->calls;

	while (*at != call) {
		ASSERT(*at != NULL);
		at = &(*at)->next;
	}
	*at = call->next;
	if (call->next == NULL) {
		kube->calls_end = at;
	}
	call->event = (struct kube_event){.kind = KUBE_ANSWERED, .call = call};
	kube_post(kube, &call->event);
}

static void fail_call(struct kube_call *call, const struct pawl_err *err)
{
	call->rv = err->code;
	snprintf(call->why, sizeof(call->why), "%s %.200s: %.250s", method_of(call->verb),
		call->path, err->msg);
	answer_call(call->kube, call);
}

/* Sends a call. If that is not possible, it is answered. */
static void begin_call(struct kube *kube, struct kube_call *call)
{
	struct pawl_err err = {.code = PAWL_EIO};
	struct kube_flight *flight =
		kube_fly(kube, method_of(call->verb), call->path, call->query, call->refused, &err);

	if (flight == NULL) {
		fail_call(call, &err);
		return;
	}
	flight->call = call;
	flight->http.user = flight;
	if (call->body != NULL) {
		request_add_header(&flight->request, "content-type",
			call->verb == KUBE_PATCH ? "application/merge-patch+json"
						 : "application/json");
		flight->http.body_bytes = strlen(call->body);
		flight->http.read = read_body;
	}
	if (flight->request.full || http_begin(kube->http, &flight->http, &err) != 0) {
		kube_land(kube, flight, true);
		err.code = err.code != 0 ? err.code : PAWL_EINVAL;
		fail_call(call, &err);
		return;
	}
	call->flight = flight;
	call->attempts++;
	kube->flights_n++;
}

/* Returns whether another attempt may do better. */
static bool may_retry(const struct http_call *http)
{
	if (http->rv != 0) {
		return http->rv != PAWL_EINVAL && http->rv != PAWL_ELIMIT;
	}
	return http->status == 401 || http->status == 429 || http->status >= 500;
}

static int code_of(const struct http_call *http, const char *reason)
{
	if (http->rv != 0) {
		return http->rv == PAWL_EINVAL || http->rv == PAWL_ELIMIT ? http->rv
									  : PAWL_ETIMEDOUT;
	}
	switch (http->status) {
	case 404:
	case 410:
		return PAWL_ENOENT;
	case 409:
		return strcmp(reason, "AlreadyExists") == 0 ? PAWL_EEXIST : PAWL_EBUSY;
	default:
		return may_retry(http) ? PAWL_ETIMEDOUT : PAWL_EINVAL;
	}
}

/* Sets what a call is answered with. */
static void read_answer(struct kube_call *call, const struct http_call *http)
{
	call->status = http->status;
	if (http->rv != 0 || http->status / 100 != 2) {
		kube_explain(method_of(call->verb), call->path, http, call->reason, call->why);
		call->rv = code_of(http, call->reason);
		return;
	}
	call->rv = 0;
	call->reason[0] = '\0';
	call->why[0] = '\0';
	if (http->text_bytes > 0) {
		call->answer = json_loadb(http->text, http->text_bytes, 0, NULL);
		if (call->answer == NULL) {
			call->rv = PAWL_EIO;
			snprintf(call->why, sizeof(call->why), "%s %.200s: the answer is no JSON",
				method_of(call->verb), call->path);
		}
	}
}

/* Handles the end of a call's request. */
static void land_call(struct kube *kube, struct kube_call *call)
{
	struct kube_flight *flight = call->flight;
	int64_t now_ns = clock_mono_ns();
	bool again = may_retry(&flight->http) && now_ns < call->end_ns;

	if (again) {
		/* Credentials may just have been replaced. */
		bool at_once = flight->http.status == 401 && !call->refused;

		call->begin_ns =
			now_ns + (at_once ? 0 : kube_delay(kube, call->attempts, &flight->http));
	}
	call->refused = flight->http.rv == 0 && flight->http.status == 401;
	read_answer(call, &flight->http);
	kube_land(kube, flight, true);
	call->flight = NULL;
	kube->flights_n--;
	if (!again) {
		answer_call(kube, call);
	}
}

/* ---- the thread ---- */

/* Takes what the loop has left. Returns false if the thread is to end. */
static bool take_inbox(struct kube *kube)
{
	struct kube_call *calls, *oldest = NULL;
	int64_t now_ns = clock_mono_ns();
	bool stopping;

	pthread_mutex_lock(&kube->lock);
	stopping = kube->stopping;
	calls = kube->inbox;
	kube->inbox = NULL;
	while (kube->new_watches != NULL) {
		struct kube_watch *watch = kube->new_watches;

		kube->new_watches = watch->next;
		watch->next = kube->watches;
		kube->watches = watch;
	}
	kube->poked = false;
	pthread_mutex_unlock(&kube->lock);
	while (calls != NULL) { /* the newest stands first */
		struct kube_call *next = calls->next;

		calls->next = oldest;
		oldest = calls;
		calls = next;
	}
	for (; oldest != NULL; oldest = *kube->calls_end) {
		oldest->end_ns = clock_add_ns(now_ns, oldest->patience_ns);
		oldest->begin_ns = now_ns;
		*kube->calls_end = oldest;
		kube->calls_end = &oldest->next;
	}
	return !stopping;
}

/* Ends the watches that the loop wants no more. */
static void end_watches(struct kube *kube)
{
	struct kube_watch **at = &kube->watches;

	while (*at != NULL) {
		struct kube_watch *watch = *at;
		bool ending;

		pthread_mutex_lock(&kube->lock);
		ending = watch->ending;
		pthread_mutex_unlock(&kube->lock);
		if (!ending) {
			at = &watch->next;
			continue;
		}
		*at = watch->next;
		kube_land(kube, watch->flight, false);
		watch->flight = NULL;
		kube_watch_clear(watch);
		watch->ended = (struct kube_event){.kind = KUBE_ENDED, .watch = watch};
		kube_post(kube, &watch->ended);
	}
}

static int open_pool(struct kube *kube, struct http_pool **http, struct pawl_err *err)
{
	struct http_options options = {.connect_ns = CONNECT_NS,
		.stall_ns = STALL_NS,
		.connections = KUBE_CONNECTIONS};

	kube_access_connect(kube->access, &options);
	kube->version = kube_access_version(kube->access);
	return http_pool_open(&options, http, err);
}

/* Makes a new pool where certificates have changed. What is in flight is sent again. */
static void renew_pool(struct kube *kube)
{
	struct http_pool *old = kube->http;
	struct http_pool *http;
	struct pawl_err err;

	if (kube->version == kube_access_version(kube->access)) {
		return;
	}
	for (struct kube_call *call = kube->calls; call != NULL; call = call->next) {
		kube_land(kube, call->flight, false);
		kube->flights_n -= call->flight != NULL;
		call->flight = NULL;
	}
	for (struct kube_watch *watch = kube->watches; watch != NULL; watch = watch->next) {
		kube_land(kube, watch->flight, false);
		watch->flight = NULL;
		watch->state = KUBE_WATCH_WAITS;
	}
	if (open_pool(kube, &http, &err) != 0) {
		kube->version--; /* tried again */
		return;
	}
	pthread_mutex_lock(&kube->lock);
	kube->http = http;
	pthread_mutex_unlock(&kube->lock);
	http_pool_close(old);
}

/* Begins what it is time for. Returns when there is more to be done. */
static int64_t step(struct kube *kube)
{
	int64_t now_ns = clock_mono_ns();
	int64_t due_ns = NEVER;
	struct kube_call *next;

	for (struct kube_call *call = kube->calls; call != NULL; call = next) {
		next = call->next;
		if (call->flight != NULL || kube->flights_n >= KUBE_CONNECTIONS) {
			continue;
		}
		if (call->begin_ns <= now_ns) {
			begin_call(kube, call);
		} else if (call->begin_ns < due_ns) {
			due_ns = call->begin_ns;
		}
	}
	for (struct kube_watch *watch = kube->watches; watch != NULL; watch = watch->next) {
		int64_t at_ns = kube_watch_step(watch, now_ns);

		due_ns = at_ns < due_ns ? at_ns : due_ns;
	}
	return due_ns;
}

/* Waits until due_ns, a request is over, or the loop has left something. */
static void await(struct kube *kube, int64_t due_ns)
{
	int64_t left_ns = due_ns == NEVER ? NEVER : due_ns - clock_mono_ns();
	int left_ms = left_ns > 3600 * NS_PER_S ? 3600 * 1000
		: left_ns > 0                   ? (int)(left_ns / NS_PER_MS) + 1
						: 0;
	struct http_call *done = http_reap(kube->http, left_ms);

	if (done != NULL) {
		struct kube_flight *flight =
			(struct kube_flight *)((char *)done - offsetof(struct kube_flight, http));

		if (flight->call != NULL) {
			land_call(kube, flight->call);
		} else {
			kube_watch_answered(flight->watch);
		}
		return;
	}
	if (kube->flights_n == 0) { /* perhaps nothing is in flight: http_reap has not waited */
		struct timespec until;
		int64_t until_ns = due_ns == NEVER ? clock_mono_ns() + 3600 * NS_PER_S : due_ns;

		for (const struct kube_watch *w = kube->watches; w != NULL; w = w->next) {
			if (w->flight != NULL) {
				return;
			}
		}
		until = (struct timespec){until_ns / NS_PER_S, until_ns % NS_PER_S};
		pthread_mutex_lock(&kube->lock);
		while (!kube->poked &&
			pthread_cond_timedwait(&kube->changed, &kube->lock, &until) == 0) {
		}
		pthread_mutex_unlock(&kube->lock);
	}
}

static void *run(void *user)
{
	struct kube *kube = user;

	while (take_inbox(kube)) {
		int64_t due_ns;

		end_watches(kube);
		due_ns = step(kube);
		if (kube->version != kube_access_version(kube->access)) {
			renew_pool(kube);
		} else {
			await(kube, due_ns);
		}
	}
	return NULL;
}

/* ---- life ---- */

int kube_open(struct loop *loop, struct kube_access *access, struct kube **out,
	struct pawl_err *err)
{
	struct kube *kube = FAULT_MEM("kube.open", calloc(1, sizeof(*kube)));
	int rv;

	if (kube == NULL) {
		kube_access_close(access);
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for a client of Kubernetes");
	}
	kube->loop = loop;
	kube->access = access;
	kube->outbox_end = &kube->outbox;
	kube->calls_end = &kube->calls;
	kube->rng = (struct rng){(uint64_t)clock_mono_ns()};
	pthread_mutex_init(&kube->lock, NULL);
	clock_cond_init(&kube->changed);
	kube->source = (struct loop_source){
		FAULT_SYS("kube.eventfd", eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), take_events,
		kube};
	rv = kube->source.fd >= 0 ? 0 : pawl_err_sys(err, "make an eventfd");
	rv = rv == 0 ? open_pool(kube, &kube->http, err) : rv;
	rv = rv == 0 ? loop_add(loop, &kube->source, EPOLLIN, err) : rv;
	if (rv == 0) {
		int sys = FAULT_SYS("kube.thread", pthread_create(&kube->thread, NULL, run, kube));

		kube->started = sys == 0;
		errno = sys > 0 ? sys : errno; /* pthread_create returns its error */
		rv = kube->started ? 0 : pawl_err_sys(err, "begin a thread");
		if (rv != 0) {
			loop_remove(loop, &kube->source);
		}
	}
	if (rv != 0) {
		kube_close(kube);
		return rv;
	}
	*out = kube;
	return 0;
}

/* Frees what the thread has left, without a callback. */
static void free_all(struct kube *kube)
{
	struct kube_event *event = take_outbox(kube);

	while (event != NULL) {
		struct kube_event *next = event->next;

		if (event->kind == KUBE_ANSWERED) {
			event->call->unwanted = true;
		} else {
			event->watch->unwanted = true;
		}
		dispatch(event);
		event = next;
	}
	while (kube->calls != NULL) {
		struct kube_call *call = kube->calls;

		kube->calls = call->next;
		kube_land(kube, call->flight, false);
		free_call(call);
	}
	while (kube->watches != NULL) {
		struct kube_watch *watch = kube->watches;

		kube->watches = watch->next;
		kube_land(kube, watch->flight, false);
		kube_watch_clear(watch);
		free(watch);
	}
}

void kube_close(struct kube *kube)
{
	if (kube == NULL) {
		return;
	}
	if (kube->started) {
		pthread_mutex_lock(&kube->lock);
		kube->stopping = true;
		poke(kube);
		pthread_mutex_unlock(&kube->lock);
		pthread_join(kube->thread, NULL);
		loop_remove(kube->loop, &kube->source);
	}
	take_inbox(kube);
	free_all(kube);
	http_pool_close(kube->http);
	if (kube->source.fd >= 0) {
		close(kube->source.fd);
	}
	kube_access_close(kube->access);
	pthread_cond_destroy(&kube->changed);
	pthread_mutex_destroy(&kube->lock);
	free(kube);
}

const char *kube_namespace(const struct kube *kube)
{
	return kube_access_namespace(kube->access);
}
