/* Exchanges a job's membership files with those of other launchers: see run_relay.h. */
#include "launch/run_relay.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "base/times.h"
#include "io/http.h"
#include "io/http_request.h"
#include "launch/membership/membership.h"
#include "launch/run.h"
#include "launch/run_fence.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TEXT_MAX     (48u << 10) /* bytes of a file, terminator included */
#define ENDPOINT_MAX 512u
#define ERROR_MAX    200 /* bytes of a refusal that are shown, terminator included */
#define ANSWER_MAX                                                                                 \
	(256u << 10) /* bytes of an answer: a membership, and what 1,024 launchers show */

struct run_relay {
	char path[PATH_MAX]; /* path of the membership file */
	char endpoint[ENDPOINT_MAX];
	char url_path[REQUEST_PATH_MAX]; /* encoded, as in the URL */
	char *token;                     /* owned */
	uint32_t launcher;
	struct run_fence fence;
	pthread_t thread;
	bool started;
	atomic_bool stopping;

	/* The thread's, once it runs. */
	struct http_pool *http;
	struct http_request request;
	bool begins;                   /* the next exchange says that the job begins */
	uint64_t instance, version;    /* as in the last answer; instance 0: none came */
	bool restates;                 /* a scheduler that began anew is sent what is known */
	char *known;                   /* membership that the scheduler has; owned */
	char *sent;                    /* membership here when the exchange began; owned */
	bool unsure;                   /* a membership was sent, and has not been answered */
	char *alive;                   /* text of this launcher's own file, as sent last; owned */
	bool company;                  /* there are other launchers */
	bool shown[RUN_LAUNCHERS_MAX]; /* launchers that have a file here */
	int64_t answered_ns;           /* time of the last answer that was taken, monotonic */
	bool ending;                   /* the thread has ended: the end is reported */
	bool lost;                     /* the log has a line that nobody answers */
};

/* What an exchange has led to. */
enum outcome {
	EXCHANGED,
	CHANGED, /* something here has changed meanwhile: once more, at once */
	FAILED,  /* no answer, or none that makes sense: err says why */
	REFUSED, /* another try is in vain */
	STOPPED, /* the relay is to end */
};

/* ---- the URL ---- */

bool run_relay_is_url(const char *address)
{
	return strncmp(address, "http://", 7) == 0 || strncmp(address, "https://", 8) == 0;
}

static int split_url(struct run_relay *r, const char *url, struct pawl_err *err)
{
	const char *host = strstr(url, "://") + 3;
	size_t host_bytes = strcspn(host, "/");
	size_t endpoint_bytes = (size_t)(host - url) + host_bytes;
	bool here = strncmp(host, "127.", 4) == 0 || strncmp(host, "localhost", 9) == 0 ||
		strncmp(host, "[::1]", 5) == 0;

	if (host_bytes == 0 || host[host_bytes] == '\0' || endpoint_bytes >= sizeof(r->endpoint) ||
		strlen(host + host_bytes) >= sizeof(r->url_path) ||
		strpbrk(host, " ?#@\"<>\\^`{|}") != NULL) {
		return pawl_err_set(err, PAWL_EINVAL,
			"--door %.200s: http[s]://HOST[:PORT]/PATH is needed, as the scheduler "
			"gives it",
			url);
	}
	snprintf(r->endpoint, sizeof(r->endpoint), "%.*s", (int)endpoint_bytes, url);
	snprintf(r->url_path, sizeof(r->url_path), "%s", host + host_bytes);
	if (url[4] == ':' && !here) {
		log_line(LOG_WARNING,
			"--door %s: without https, others on the network can read the key of the "
			"job's ranks",
			r->endpoint);
	}
	return 0;
}

static int look_ms(void)
{
	return (int)(times_ns(TIME_RELAY_LOOK) / NS_PER_MS);
}

/* ---- the files here ---- */

/* Reads a file: "" if there is none. NULL: no memory, or an error; the caller frees it. */
static char *read_file(const char *path)
{
	FILE *file = fopen(path, "re");
	bool missing = file == NULL && errno == ENOENT;
	char *text = FAULT_MEM("run_relay", malloc(TEXT_MAX));
	size_t n = 0;

	if (file != NULL && text != NULL) {
		n = fread(text, 1, TEXT_MAX - 1, file);
	}
	if (file != NULL) {
		fclose(file);
	}
	if (text == NULL || (n == 0 && !missing)) {
		free(text);
		return NULL;
	}
	text[n] = '\0';
	return text;
}

static void name_alive(const struct run_relay *r, uint32_t launcher, char name[PATH_MAX])
{
	snprintf(name, PATH_MAX, "%.*s" MEMBERSHIP_ALIVE_SUFFIX "%" PRIu32, PATH_MAX - 32, r->path,
		launcher);
}

/* Returns whether the membership here differs from that text. */
static bool differs(const struct run_relay *r, const char *text)
{
	char *now = read_file(r->path);
	bool other = now != NULL && strcmp(now, text) != 0;

	free(now);
	return other;
}

/* Returns whether ranks of this launcher live, or leave, that was not reported yet. A new heartbeat
 * alone is reported with what comes next. */
static bool shows_news(const struct run_relay *r)
{
	char name[PATH_MAX];
	char *now;
	bool other;

	name_alive(r, r->launcher, name);
	now = read_file(name);
	other = now != NULL &&
		strcmp(now + strcspn(now, " "), r->alive + strcspn(r->alive, " ")) != 0;
	free(now);
	return other;
}

/* Takes the scheduler's membership as the one here, unless a rank has just written another one,
 * which the next exchange sends. Returns false if there is no memory, or the file cannot be
 * written. */
static bool take_membership(struct run_relay *r, const char *text, struct pawl_err *err)
{
	char *copy;

	if (strcmp(text, r->known) == 0 || differs(r, r->known)) {
		return true;
	}
	copy = FAULT_MEM("run_relay", strdup(text));
	if (copy == NULL) {
		pawl_err_set(err, PAWL_ENOMEM, "no memory for the membership");
		return false;
	}
	if (text[0] == '\0') {
		unlink(r->path);
	} else if (file_put(r->path, text, strlen(text), 0600, false, err) != 0) {
		free(copy);
		return false;
	}
	free(r->known);
	r->known = copy;
	return true;
}

/* Writes what other launchers show, and removes the files of those that show nothing any more. */
static void take_alive(struct run_relay *r, const json_t *alive)
{
	bool shown[RUN_LAUNCHERS_MAX] = {false};
	char name[PATH_MAX];
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)alive, key, value)
	{
		unsigned long launcher = strtoul(key, NULL, 10);
		const char *text = json_string_value(value);

		if (launcher >= RUN_LAUNCHERS_MAX || launcher == r->launcher || text == NULL) {
			continue;
		}
		name_alive(r, (uint32_t)launcher, name);
		shown[launcher] = file_put(name, text, strlen(text), 0600, false, NULL) == 0;
	}
	r->company = false;
	for (uint32_t i = 0; i < RUN_LAUNCHERS_MAX; i++) {
		if (r->shown[i] && !shown[i]) {
			name_alive(r, i, name);
			unlink(name);
		}
		r->shown[i] = shown[i];
		r->company = r->company || shown[i];
	}
}

/* ---- exchanges ---- */

/* Makes the report of an exchange. *carries: it has a membership. NULL: no memory. */
static char *make_body(const struct run_relay *r, bool *carries)
{
	/* A membership whose answer was lost may have arrived: what is true now follows it. */
	bool changed = r->unsure || strcmp(r->sent, r->known) != 0;
	char instance[17];
	json_t *all;
	char *text;

	snprintf(instance, sizeof(instance), "%" PRIx64, r->instance);
	all = json_pack("{s:i, s:s, s:I, s:s}", "launcher", (int)r->launcher, "instance", instance,
		"version", (json_int_t)r->version, "alive", r->alive);
	*carries = changed || r->restates;
	if (r->begins) {
		json_object_set_new(all, "fresh", json_true());
	}
	if (*carries) {
		json_object_set_new(all, "membership", json_string(r->sent));
	}
	if (!changed && r->restates) {
		json_object_set_new(all, "restates", json_true());
	}
	text = all != NULL ? FAULT_MEM("run_relay", json_dumps(all, JSON_COMPACT)) : NULL;
	json_decref(all);
	return text;
}

/* Fits read of struct http_call. */
static size_t give_body(void *user, uint64_t off, void *bytes, size_t size)
{
	const char *text = user;
	size_t left = strlen(text) - off;
	size_t n = left < size ? left : size;

	memcpy(bytes, text + off, n);
	return n;
}

/* Takes the scheduler's answer. Returns false if it makes no sense, or cannot be taken. */
static bool take_answer(struct run_relay *r, const char *text, struct pawl_err *err)
{
	json_t *all = json_loads(text != NULL ? text : "", 0, NULL);
	const char *instance_text = json_string_value(json_object_get(all, "instance"));
	const char *membership = json_string_value(json_object_get(all, "membership"));
	const json_t *version = json_object_get(all, "version");
	uint64_t instance = instance_text != NULL ? strtoull(instance_text, NULL, 16) : 0;
	bool fine = instance != 0 && membership != NULL && json_is_integer(version);

	if (!fine) {
		pawl_err_set(err, PAWL_EIO, "the answer makes no sense");
	} else if (r->instance != 0 && instance != r->instance && !r->restates &&
		r->known[0] != '\0') {
		r->restates = true; /* the scheduler has lost what it knew */
	} else {
		/* The scheduler has what was sent, unless somebody else has changed it. */
		char *was = r->known;

		r->known = r->sent;
		r->sent = was;
		r->begins = false;
		r->restates = false;
		r->unsure = false;
		r->answered_ns = clock_mono_ns();
		r->instance = instance;
		take_alive(r, json_object_get(all, "alive"));
		fine = take_membership(r, membership, err);
		/* What could not be taken is asked for again. */
		r->version = fine ? (uint64_t)json_integer_value(version) : 0;
	}
	json_decref(all);
	return fine;
}

/* Explains an answer that is no success. */
static enum outcome explain(const struct run_relay *r, const struct http_call *call,
	struct pawl_err *err)
{
	json_t *all = json_loads(call->text != NULL ? call->text : "", 0, NULL);
	const char *error = json_string_value(json_object_get(all, "error"));
	bool refused = call->rv == PAWL_EINVAL ||
		(call->rv == 0 && call->status / 100 == 4 && call->status != 408 &&
			call->status != 429);
	char text[ERROR_MAX] = "";

	if (error != NULL) {
		snprintf(text, sizeof(text), ": %s", error);
	}
	if (call->rv != 0) {
		pawl_err_set(err, call->rv, "%s: %s", r->endpoint, call->why);
	} else {
		pawl_err_set(err, PAWL_EIO, "%s: HTTP %d%s", r->endpoint, call->status, text);
	}
	json_decref(all);
	return refused ? REFUSED : FAILED;
}

/* Whether somebody wants this process to end, before its loop takes signals. */
static bool is_signaled(void)
{
	sigset_t set;

	sigpending(&set);
	return sigismember(&set, SIGTERM) == 1 || sigismember(&set, SIGINT) == 1 ||
		sigismember(&set, SIGHUP) == 1;
}

/* Waits for an answer; or, if carries is not set, until there is something else to report. */
static enum outcome await(struct run_relay *r, struct http_call *call, bool carries,
	struct pawl_err *err)
{
	while (http_reap(r->http, look_ms()) == NULL) {
		if ((atomic_load(&r->stopping) && !r->ending) || (!r->started && is_signaled())) {
			http_cancel(r->http, call);
			return STOPPED;
		}
		/* A call with a membership is not cut off: it could arrive behind the next one. */
		if (!carries && (differs(r, r->sent) || shows_news(r))) {
			http_cancel(r->http, call);
			return CHANGED;
		}
	}
	if (call->status != 0) {
		run_fence_reached(&r->fence);
	}
	if (call->rv != 0 || call->status != 200) {
		return explain(r, call, err);
	}
	return take_answer(r, call->text, err) ? EXCHANGED : FAILED;
}

/* Returns how late an answer may come. Within the fence's time, a scheduler that does not answer is
 * given up, and the witness is asked. */
static int64_t choose_patience(const struct run_relay *r)
{
	return run_fence_limit(&r->fence, times_ns(r->ending ? TIME_RELAY_END : TIME_RELAY_STALL));
}

/* Reports what is new here, and waits up to wait_ns for what is new elsewhere. */
static enum outcome exchange(struct run_relay *r, int64_t wait_ns, struct pawl_err *err)
{
	struct http_call call = {.request = &r->request,
		.read = give_body,
		.patient = true,
		.text_max = ANSWER_MAX};
	enum outcome outcome = FAILED;
	bool carries = false;
	char name[PATH_MAX];
	char seconds[16];
	char *body;

	name_alive(r, r->launcher, name);
	free(r->sent);
	free(r->alive);
	r->sent = read_file(r->path);
	r->alive = read_file(name);
	body = r->sent != NULL && r->alive != NULL ? make_body(r, &carries) : NULL;
	pawl_err_set(err, PAWL_EIO, "%s cannot be read", r->path);
	if (body != NULL) {
		wait_ns = carries ? 0 : wait_ns;
		call.stall_ns = wait_ns + choose_patience(r);
		request_init(&r->request, "POST", r->endpoint);
		snprintf(r->request.path, sizeof(r->request.path), "%s", r->url_path);
		snprintf(seconds, sizeof(seconds), "%lld", (long long)(wait_ns / NS_PER_S));
		request_add_query(&r->request, "wait", seconds);
		if (r->token[0] != '\0') {
			request_add_header(&r->request, "authorization", "Bearer %s", r->token);
		}
		call.user = body;
		call.body_bytes = strlen(body);
		if (r->request.full) {
			pawl_err_set(err, PAWL_EINVAL, "%s: the token cannot be sent", r->endpoint);
			outcome = REFUSED;
		} else if (http_begin(r->http, &call, err) == 0) {
			r->unsure = r->unsure || carries;
			outcome = await(r, &call, carries, err);
			free(call.text);
		}
	}
	free(body);
	return outcome;
}

/* ---- the thread ---- */

static void rest(void)
{
	int64_t ns = times_ns(TIME_RELAY_LOOK);
	const struct timespec pause = {ns / NS_PER_S, ns % NS_PER_S};

	nanosleep(&pause, NULL);
}

static void pause_for(const struct run_relay *r, int64_t ns)
{
	int64_t end_ns = clock_mono_ns() + ns;

	while (!atomic_load(&r->stopping) && clock_mono_ns() < end_ns) {
		rest();
	}
}

/* Logs once that there is no answer, and once that there is one again. */
static void log_outcome(struct run_relay *r, enum outcome outcome, const struct pawl_err *err)
{
	bool silent = clock_mono_ns() - r->answered_ns > times_ns(TIME_RELAY_STALL);

	if (outcome == EXCHANGED && r->lost) {
		log_line(LOG_INFO, "%s answers again", r->endpoint);
		r->lost = false;
	} else if (outcome == REFUSED && !r->lost) {
		log_line(LOG_WARNING, "--door: %s: nobody can join any more", err->msg);
		r->lost = true;
	} else if (outcome == FAILED && !r->lost && silent) {
		log_line(LOG_WARNING, "no answer from --door (%s): nobody can join meanwhile",
			err->msg);
		if (r->fence.ns > 0) {
			log_line(LOG_WARNING,
				"without an answer%s, all ranks here end %lld s after the last one",
				r->fence.http != NULL ? ", or one of Kubernetes' API server" : "",
				(long long)(r->fence.ns / NS_PER_S));
		}
		r->lost = true;
	}
}

/* Returns how long the scheduler may let this launcher wait for news. */
static int64_t choose_wait(const struct run_relay *r)
{
	return run_fence_limit(&r->fence,
		times_ns(r->company ? TIME_RELAY_HEARTBEAT : TIME_RELAY_ALONE));
}

/* Waits until that time unless there is something to report: the scheduler had no place for this
 * launcher to wait. */
static void wait_here(const struct run_relay *r, int64_t end_ns)
{
	while (!atomic_load(&r->stopping) && clock_mono_ns() < end_ns && !differs(r, r->known) &&
		!shows_news(r)) {
		rest();
	}
}

static void *run_thread(void *user)
{
	struct run_relay *r = user;
	int64_t pause_ns = times_ns(TIME_RELAY_LOOK);
	struct pawl_err err;

	while (!atomic_load(&r->stopping)) {
		uint64_t instance = r->instance, version = r->version;
		int64_t begin_ns = clock_mono_ns();
		enum outcome outcome = exchange(r, choose_wait(r), &err);

		if (outcome == EXCHANGED) {
			log_outcome(r, outcome, &err);
			pause_ns = times_ns(TIME_RELAY_LOOK);
			if (r->instance == instance && r->version == version && !r->restates) {
				wait_here(r, begin_ns + choose_wait(r));
			}
		} else if (outcome == FAILED || outcome == REFUSED) {
			log_outcome(r, outcome, &err);
			run_fence_ask(&r->fence, &r->stopping);
			pause_for(r, pause_ns);
			pause_ns = 2 * pause_ns < times_ns(TIME_RELAY_RETRY)
				? 2 * pause_ns
				: times_ns(TIME_RELAY_RETRY);
		}
	}
	return NULL;
}

/* ---- opening and closing ---- */

/* Exchanges for the first time. */
static int begin(struct run_relay *r, struct pawl_err *err)
{
	int64_t end_ns = clock_mono_ns() + times_ns(TIME_RELAY_BEGIN);
	bool logged = false;

	for (;;) {
		enum outcome outcome = exchange(r, 0, err);

		if (outcome == EXCHANGED) {
			return 0;
		}
		if (outcome == STOPPED || is_signaled()) {
			return pawl_err_set(err, PAWL_ECANCELED, "stopped before %s has answered",
				r->endpoint);
		}
		if (outcome == REFUSED) {
			return pawl_err_prefix(err, PAWL_EINVAL, "--door");
		}
		if (clock_mono_ns() >= end_ns) {
			return pawl_err_prefix(err, PAWL_EBUSY, "--door");
		}
		if (!logged) {
			log_line(LOG_INFO, "no answer from --door yet (%s): it is tried again",
				err->msg);
			logged = true;
		}
		pause_for(r, times_ns(TIME_RELAY_RETRY) / 10);
	}
}

static int open_pool(struct run_relay *r, struct pawl_err *err)
{
	const struct http_options options = {.ca_file = getenv("PAWL_DOOR_CA"),
		.connect_ns = times_ns(TIME_RELAY_STALL),
		.stall_ns = times_ns(TIME_RELAY_STALL),
		.connections = 1};

	return http_pool_open(&options, &r->http, err);
}

static int start(struct run_relay *r, struct pawl_err *err)
{
	run_fence_arm(&r->fence);
	r->started = true; /* the thread reads it */
	errno = pthread_create(&r->thread, NULL, run_thread, r);
	if (errno != 0) {
		r->started = false;
		return pawl_err_sys(err, "start a thread");
	}
	return 0;
}

int run_relay_open(struct run_relay **relay, const struct run_relay_options *o,
	struct pawl_err *err)
{
	struct run_relay *r = FAULT_MEM("run_relay", calloc(1, sizeof(*r)));
	int rv;

	if (r == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for the relay");
	}
	*relay = r;
	snprintf(r->path, sizeof(r->path), "%s", o->path);
	r->launcher = o->launcher;
	r->begins = o->begins;
	r->token = FAULT_MEM("run_relay", strdup(o->token));
	r->known = FAULT_MEM("run_relay", strdup(""));
	membership_remove(r->path);
	membership_remove_alive(r->path);
	rv = r->token != NULL && r->known != NULL
		? split_url(r, o->url, err)
		: pawl_err_set(err, PAWL_ENOMEM, "no memory for the relay");
	rv = rv == 0 ? open_pool(r, err) : rv;
	rv = rv == 0 ? run_fence_open(&r->fence, o->fence_ns, err) : rv;
	rv = rv == 0 ? begin(r, err) : rv;
	rv = rv == 0 ? start(r, err) : rv;
	if (rv != 0) {
		run_relay_close(r);
		*relay = NULL;
	}
	return rv;
}

/* Reports the last news, for a short while: nobody may answer any more. */
static void report_end(struct run_relay *r)
{
	int64_t end_ns = clock_mono_ns() + times_ns(TIME_RELAY_END);
	struct pawl_err err;

	while (clock_mono_ns() < end_ns) {
		enum outcome outcome = exchange(r, 0, &err);

		if (outcome == EXCHANGED || outcome == REFUSED) {
			return;
		}
		rest();
	}
}

void run_relay_close(struct run_relay *r)
{
	if (r == NULL) {
		return;
	}
	if (r->started) {
		atomic_store(&r->stopping, true);
		http_pool_wake(r->http);
		pthread_join(r->thread, NULL);
		r->ending = true;
		report_end(r);
	}
	run_fence_close(&r->fence);
	http_pool_close(r->http);
	membership_remove(r->path);
	membership_remove_alive(r->path);
	free(r->token);
	free(r->known);
	free(r->sent);
	free(r->alive);
	free(r);
}
