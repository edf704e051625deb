/*
 * The client of a bucket: see object.h.
 *
 * An operation is queued, in flight, or ended. Each attempt is built and signed anew when it is
 * sent: a signature is valid for minutes, an operation may be tried for longer. An endpoint that
 * asks for less gets less (object_retry.h). What fails otherwise is tried again after a short
 * delay. When the operation's patience is over, the last answer is its error.
 *
 * Credentials are fetched while a request is being built, which waits for them: without them
 * nothing can be sent.
 */
#include "store/object/object.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/log.h"
#include "store/object/auth.h"
#include "store/object/cred_io.h"
#include "store/object/dialect.h"
#include "store/object/object_retry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REFUSALS_MAX                                                                               \
	3u /* answers about credentials, clock, region or checksums, in one operation */
#define EXPIRED_WAIT_NS (1 * NS_PER_S)    /* before new credentials are asked for again */
#define STOP_ASK_NS     (100 * NS_PER_MS) /* between two questions whether all is to end */

struct object_client {
	struct object_place place;
	const struct object_dialect *dialect;
	struct object_options options;
	char endpoint[OBJECT_ENDPOINT_MAX]; /* endpoint as it was set; "": the service's own */
	struct object_auth *auth;           /* owned */
	struct cred_net net;                /* connections that auth uses */
	struct http_pool *http;
	struct object_window window;
	int64_t skew_s;           /* seconds that the service's clock is ahead of ours */
	struct object_op *queued; /* in order of submission */
	struct object_op *ended;  /* in order of their ends */
	struct object_op *flying; /* sent, and not answered yet */
	uint32_t in_flight;
	int64_t failing_ns;        /* since when the endpoint takes nothing; 0: it does */
	bool (*stops)(void *user); /* see object_on_stop; NULL: never */
	void *stops_user;
	int64_t ask_ns; /* when stops is asked next */
};

static const struct service {
	const char *scheme; /* addresses of the service begin with it */
	const struct object_dialect *dialect;
	int (*auth_open)(const struct object_url *url, const struct cred_io *io,
		struct object_auth **auth, struct pawl_err *err);
} services[] = {
	[OBJECT_S3] = {"s3", &s3_dialect, auth_aws_open},
	[OBJECT_GCS] = {"gs", &gs_dialect, auth_google_open},
	[OBJECT_AZURE] = {"azure", &azure_dialect, auth_azure_open},
};

/* ---- opening ---- */

static int locate(struct object_client *client, const char *region, struct pawl_err *err)
{
	const struct object_url *url = &client->place.url;

	if (region[0] == '\0') {
		region = url->region[0] != '\0' ? url->region
						: client->auth->ops->region(client->auth);
	}
	return client->dialect->locate(&client->place, region, client->endpoint, err);
}

static int open_parts(struct object_client *client, struct pawl_err *err)
{
	const struct object_url *url = &client->place.url;
	struct cred_io io;
	struct http_options http = {.ca_file = getenv("AWS_CA_BUNDLE"),
		.connect_ns = client->options.connect_ns,
		.stall_ns = client->options.stall_ns,
		.connections = client->options.connections};
	int rv = http_pool_open(&http, &client->http, err);

	if (rv == 0) {
		rv = cred_net_open(&client->net, &http, &io, err);
	}
	if (rv == 0) {
		rv = services[url->service].auth_open(url, &io, &client->auth, err);
	}
	if (rv != 0) {
		return rv;
	}
	snprintf(client->endpoint, sizeof(client->endpoint), "%s",
		url->endpoint[0] != '\0' ? url->endpoint
					 : client->auth->ops->endpoint(client->auth));
	return locate(client, "", err);
}

int object_open(const struct object_url *url, const struct object_options *options,
	struct object_client **client, struct pawl_err *err)
{
	struct object_client *c;
	int rv;

	c = FAULT_MEM("object.open", calloc(1, sizeof(*c)));
	if (c == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory to open a bucket");
	}
	c->place.url = *url;
	c->dialect = services[url->service].dialect;
	c->options = *options;
	window_init(&c->window, options->connections, (uint64_t)clock_mono_ns());
	rv = open_parts(c, err);
	if (rv != 0) {
		object_close(c);
		return rv;
	}
	*client = c;
	return 0;
}

/* Frees what an operation holds while it is in flight. */
static void release(struct object_op *op)
{
	free(op->request);
	free(op->body_text);
	op->request = NULL;
	op->body_text = NULL;
}

void object_close(struct object_client *client)
{
	if (client == NULL) {
		return;
	}
	http_pool_close(client->http);
	if (client->auth != NULL) {
		client->auth->ops->close(client->auth);
	}
	cred_net_close(&client->net);
	free(client);
}

void object_use_bare_etags(struct object_client *client)
{
	client->place.bare_etags = true;
}

/* ---- queues ---- */

static void append(struct object_op **list, struct object_op *op)
{
	while (*list != NULL) {
		list = &(*list)->next;
	}
	op->next = NULL;
	*list = op;
}

/* Takes an operation out of a list. Returns false if it is not in it. */
static bool take_out(struct object_op **list, struct object_op *op)
{
	while (*list != NULL && *list != op) {
		list = &(*list)->next;
	}
	if (*list == NULL) {
		return false;
	}
	*list = op->next;
	op->next = NULL;
	return true;
}

static void end_op(struct object_client *client, struct object_op *op, int rv)
{
	release(op);
	op->rv = rv;
	append(&client->ended, op);
}

/* ---- one attempt ---- */

/* Gives the body of COMPLETE, which the dialect has written. */
static size_t read_text(void *user, uint64_t off, void *bytes, size_t size)
{
	struct object_op *op = user;

	memcpy(bytes, op->body_text + off, size);
	return size;
}

static size_t read_body(void *user, uint64_t off, void *bytes, size_t size)
{
	struct object_op *op = user;

	return op->read(op->user, off, bytes, size);
}

/* Refuses bytes behind the range: the answer is another one than was asked for. */
static bool write_got(void *user, const void *bytes, size_t len_bytes)
{
	struct object_op *op = user;
	uint64_t off = op->got_bytes;

	if (op->len_bytes > 0 && len_bytes > op->len_bytes - off) {
		return false;
	}
	op->got_bytes += len_bytes;
	return op->write(op->user, off, bytes, len_bytes);
}

static void prepare_call(struct object_op *op)
{
	bool has_text = op->body_text != NULL;

	op->call = (struct http_call){.request = op->request,
		.body_bytes = op->body_bytes,
		.user = op,
		.text_max = op->text_max,
		.patient = op->verb == OBJECT_COMPLETE};
	if (op->body_bytes > 0) {
		op->call.read = has_text ? read_text : read_body;
	}
	op->call.write = op->verb == OBJECT_GET && op->write != NULL ? write_got : NULL;
	op->got_bytes = 0;
}

static int sign(struct object_client *client, struct object_op *op)
{
	int64_t now_s = clock_wall_ns() / NS_PER_S + client->skew_s;

	return client->auth->ops->sign(client->auth, op->request, client->place.region,
		op->body_bytes, now_s, &op->err);
}

/* Builds, signs and sends an attempt. Returns BUILD_DONE if there is nothing to send. */
static int begin_attempt(struct object_client *client, struct object_op *op)
{
	int rv = 0;

	release(op);
	op->request = FAULT_MEM("object.request", malloc(sizeof(*op->request)));
	if (op->request == NULL) {
		rv = pawl_err_set(&op->err, PAWL_ENOMEM, "no memory for a request");
	}
	if (rv == 0) {
		rv = client->dialect->build(&client->place, op, op->request, &op->err);
	}
	if (rv == 0) {
		rv = sign(client, op);
	}
	if (rv == 0) {
		prepare_call(op);
		rv = http_begin(client->http, &op->call, &op->err);
	}
	op->began_ns = clock_mono_ns();
	op->attempts++;
	return rv;
}

/* ---- what an attempt came to ---- */

static const char *name_verb(enum object_verb verb)
{
	static const char *const names[] = {[OBJECT_PUT] = "put",
		[OBJECT_GET] = "get",
		[OBJECT_HEAD] = "look at",
		[OBJECT_REMOVE] = "remove",
		[OBJECT_LIST] = "list",
		[OBJECT_BEGIN] = "begin to upload",
		[OBJECT_PART] = "upload a part of",
		[OBJECT_COMPLETE] = "complete",
		[OBJECT_ABORT] = "drop the upload of",
		[OBJECT_UPLOADS] = "list uploads of",
		[OBJECT_PARTS] = "list parts of"};

	return names[verb];
}

/* Prefixes the error of an operation with what was being done to what. */
static int name_error(const struct object_client *client, struct object_op *op, int rv)
{
	return pawl_err_prefix(&op->err, rv, "%s %s://%s%s%s/%s", name_verb(op->verb),
		services[client->place.url.service].scheme, client->place.url.account,
		client->place.url.account[0] != '\0' ? "/" : "", client->place.url.bucket, op->key);
}

/* Returns whether the bucket itself is missing. */
static bool has_no_bucket(const struct object_op *op)
{
	static const char *const codes[] = {"NoSuchBucket", "ContainerNotFound",
		"FilesystemNotFound", "ResourceNotFound"};

	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
		if (strcmp(op->code, codes[i]) == 0) {
			return true;
		}
	}
	return false;
}

/* Returns the code of an operation that has failed for good. */
static int final_code(const struct object_op *op, const struct object_answer *answer)
{
	int rv = answer->rv != 0 ? answer->rv : object_answer_code(answer);

	if (rv == PAWL_ENOENT && has_no_bucket(op)) {
		return PAWL_EIO; /* not an empty one */
	}
	if (rv == PAWL_ENOENT && op->verb == OBJECT_PUT && op->match != NULL &&
		op->match[0] != '\0') {
		return PAWL_EMISMATCH; /* the object is gone */
	}
	if (rv == PAWL_EEXIST && op->match == NULL) {
		return PAWL_EIO;
	}
	if (rv == PAWL_EEXIST && op->verb == OBJECT_GET) {
		return PAWL_ECORRUPT; /* another object has the key by now */
	}
	return rv == PAWL_EEXIST && op->match[0] != '\0' ? PAWL_EMISMATCH : rv;
}

/* Says what an answer that is no success was. */
static void describe(struct object_op *op, int rv, const char *message)
{
	double spent_s = (double)(clock_mono_ns() - op->submitted_ns) / 1e9;
	char tries[64] = "";

	if (op->attempts > 1) {
		snprintf(tries, sizeof(tries), " (%u attempts in %.1f s)", op->attempts, spent_s);
	}
	if (op->call.rv != 0) {
		pawl_err_set(&op->err, rv, "%s%s", op->call.why, tries);
		return;
	}
	pawl_err_set(&op->err, rv, "HTTP %d%s%s%s%s%s", op->call.status,
		op->code[0] != '\0' ? ", " : "", op->code, message[0] != '\0' ? ": " : "", message,
		tries);
}

/* Reads an attempt's answer. Returns what it means; op->err says what was wrong. */
static enum object_verdict read_attempt(struct object_client *client, struct object_op *op,
	struct object_answer *answer, char *region)
{
	int64_t now_s = clock_wall_ns() / NS_PER_S + client->skew_s;
	const char *date = http_header(&op->call, "date");
	const char *retry = http_header(&op->call, "retry-after");
	char message[OBJECT_MESSAGE_MAX] = "";
	int rv = op->call.rv;
	enum object_verdict verdict;

	op->code[0] = '\0';
	region[0] = '\0';
	if (rv == PAWL_ELIMIT && (op->verb != OBJECT_GET || op->write != NULL)) {
		rv = PAWL_EIO; /* not the object is too long, but the answer is another one */
	}
	if (rv == 0 && op->call.status / 100 == 2) {
		rv = client->dialect->read(op, &op->err);
		if (rv == 0) {
			return VERDICT_OK;
		}
		*answer = (struct object_answer){rv, op->call.status, op->code, 0, -1};
		answer->rv = op->code[0] != '\0' ? 0 : rv;
		return object_judge(answer, now_s);
	}
	if (rv == 0) {
		client->dialect->read_error(op, message, region);
	}
	*answer = (struct object_answer){rv, op->call.status, op->code,
		date != NULL ? object_date_s(date) : 0,
		retry != NULL ? object_retry_after_s(retry, now_s) : -1};
	verdict = object_judge(answer, now_s);
	describe(op, final_code(op, answer), message);
	return verdict;
}

/* Adopts the clock of the service. Returns false if the answer does not tell it. */
static bool adopt_clock(struct object_client *client, const struct object_answer *answer)
{
	int64_t skew_s = answer->date_s - clock_wall_ns() / NS_PER_S;

	if (answer->date_s == 0) {
		return false;
	}
	log_line(LOG_INFO, "the clock of %s differs by %lld s: requests are signed by its clock",
		client->place.endpoint, (long long)skew_s);
	client->skew_s = skew_s;
	return true;
}

/* Returns whether an answer says that the bucket is in another region. That of a HEAD has no text,
 * and may look like refused credentials. */
static bool is_elsewhere(const struct object_client *client, const struct object_op *op,
	const char *region)
{
	return (op->call.status / 100 == 3 || op->call.status == 400) && region[0] != '\0' &&
		strcmp(region, client->place.region) != 0;
}

/* Sends no checksums from now on, and says so once. */
static void leave_sums_out(struct object_client *client)
{
	if (!client->place.bare_bodies) {
		log_line(LOG_WARNING,
			"%s takes no checksums of what is sent: only readers check it",
			client->place.endpoint);
		client->place.bare_bodies = true;
	}
}

/* Does what makes another attempt worth while. Returns false if none is. */
static bool mend(struct object_client *client, struct object_op *op, enum object_verdict verdict,
	const struct object_answer *answer, const char *region)
{
	bool expired = strstr(op->code, "Expired") != NULL;

	switch (verdict) {
	case VERDICT_KEY:
		client->auth->ops->refused(client->auth);
		return expired || ++op->refusals < REFUSALS_MAX;
	case VERDICT_CLOCK:
		return ++op->refusals < REFUSALS_MAX && adopt_clock(client, answer);
	case VERDICT_REGION:
		return ++op->refusals < REFUSALS_MAX && region[0] != '\0' &&
			strcmp(region, client->place.region) != 0 &&
			locate(client, region, NULL) == 0;
	case VERDICT_PLAIN:
		leave_sums_out(client);
		return ++op->refusals < REFUSALS_MAX;
	case VERDICT_AGAIN:
	case VERDICT_SLOWER:
		return true;
	default:
		return false;
	}
}

/* Queues an operation for another attempt, or ends it. */
static void try_again(struct object_client *client, struct object_op *op,
	enum object_verdict verdict, int rv)
{
	int64_t now_ns = clock_mono_ns();
	int64_t wait_ns = 0;

	if (verdict == VERDICT_KEY) {
		wait_ns = op->refusals <= 1 && op->attempts <= 1 ? 0 : EXPIRED_WAIT_NS;
	} else if (verdict == VERDICT_AGAIN) {
		wait_ns = retry_delay_ns(&client->window, op->attempts);
	}
	op->not_before_ns = now_ns + wait_ns;
	if (op->not_before_ns - op->submitted_ns > client->options.patience_ns) {
		end_op(client, op, name_error(client, op, rv));
		return;
	}
	append(&client->queued, op);
}

/* Keeps in mind since when the endpoint takes nothing. */
static void watch_window(struct object_client *client, int64_t now_ns)
{
	if (client->window.failures == 0) {
		client->failing_ns = 0;
	} else if (client->failing_ns == 0) {
		client->failing_ns = now_ns;
	}
}

static void finish_attempt(struct object_client *client, struct object_op *op)
{
	struct object_answer answer = {.retry_after_s = -1};
	char region[OBJECT_NAME_MAX];
	enum object_verdict verdict = read_attempt(client, op, &answer, region);
	int rv = verdict == VERDICT_OK ? 0 : final_code(op, &answer);

	verdict = is_elsewhere(client, op, region) ? VERDICT_REGION : verdict;
	take_out(&client->flying, op);
	client->in_flight--;
	op->attempts += op->call.resent;
	window_end(&client->window, verdict, answer.retry_after_s, op->began_ns, clock_mono_ns());
	watch_window(client, clock_mono_ns());
	if (verdict == VERDICT_OK && op->verb == OBJECT_GET && op->write == NULL) {
		op->text = op->call.text;
		op->text_bytes = op->call.text_bytes;
		op->call.text = NULL;
	}
	free(op->call.text);
	op->call.text = NULL;
	if (verdict == VERDICT_OK ||
		(rv == PAWL_ENOENT && (op->verb == OBJECT_REMOVE || op->verb == OBJECT_ABORT))) {
		end_op(client, op, 0);
	} else if (!op->once && mend(client, op, verdict, &answer, region)) {
		try_again(client, op, verdict, rv);
	} else {
		end_op(client, op, name_error(client, op, rv));
	}
}

/* ---- driving ---- */

/* Ends operations whose turn does not come: an endpoint that takes nothing is asked by one
 * operation at a time, so that a long queue would outlast its patience many times. */
static void end_hopeless(struct object_client *client)
{
	int64_t now_ns = clock_mono_ns();
	struct object_op *op = client->queued;

	while (op != NULL && client->failing_ns != 0) {
		struct object_op *next = op->next;
		int64_t since_ns = client->failing_ns > op->submitted_ns ? client->failing_ns
									 : op->submitted_ns;

		if (now_ns - since_ns > client->options.patience_ns) {
			take_out(&client->queued, op);
			if (op->attempts == 0) {
				pawl_err_set(&op->err, PAWL_ETIMEDOUT,
					"the service takes no requests");
			}
			end_op(client, op, name_error(client, op, op->err.code));
		}
		op = next;
	}
}

/* Sends what may be sent now. Returns how long until more may be, in ns; -1: when one ends. */
static int64_t send_queued(struct object_client *client)
{
	int64_t soonest_ns = -1;
	struct object_op *op;

	end_hopeless(client);
	op = client->queued;
	while (op != NULL) {
		struct object_op *next = op->next;
		int64_t now_ns = clock_mono_ns();
		int64_t wait_ns = op->not_before_ns - now_ns;
		int rv;

		if (wait_ns <= 0 && !window_may_begin(&client->window, now_ns, &wait_ns)) {
			return wait_ns >= 0 && (soonest_ns < 0 || wait_ns < soonest_ns)
				? wait_ns
				: soonest_ns;
		}
		if (wait_ns > 0) {
			soonest_ns = soonest_ns < 0 || wait_ns < soonest_ns ? wait_ns : soonest_ns;
			op = next;
			continue;
		}
		take_out(&client->queued, op);
		rv = begin_attempt(client, op);
		if (rv == 0) {
			window_begin(&client->window);
			append(&client->flying, op);
			client->in_flight++;
		} else if (rv == BUILD_DONE) {
			end_op(client, op, 0);
		} else if (rv == PAWL_EIO || rv == PAWL_ETIMEDOUT) {
			try_again(client, op, VERDICT_AGAIN, rv); /* credentials' source failed */
			return 0;
		} else {
			end_op(client, op, name_error(client, op, rv));
		}
		op = next;
	}
	return soonest_ns;
}

void object_submit(struct object_client *client, struct object_op *op)
{
	ASSERT(op->body_bytes == 0 || op->read != NULL);
	op->attempts = 0;
	op->refusals = 0;
	op->request = NULL;
	op->body_text = NULL;
	op->text = NULL;
	op->submitted_ns = clock_mono_ns();
	op->not_before_ns = op->submitted_ns;
	append(&client->queued, op);
}

void object_pump(struct object_client *client)
{
	send_queued(client);
	http_pump(client->http);
}

bool object_is_busy(const struct object_client *client)
{
	return client->queued != NULL || client->ended != NULL || client->in_flight > 0;
}

/* Gives up the request of an operation that is in flight. */
static void recall(struct object_client *client, struct object_op *op)
{
	http_cancel(client->http, &op->call);
	window_end(&client->window, VERDICT_FAIL, -1, op->began_ns, clock_mono_ns());
	take_out(&client->flying, op);
	client->in_flight--;
}

/* Ends all operations, if the owner wants none any more. */
static void stop_if_asked(struct object_client *client)
{
	int64_t now_ns = clock_mono_ns();
	struct object_op *op;

	if (client->stops == NULL || now_ns < client->ask_ns) {
		return;
	}
	client->ask_ns = now_ns + STOP_ASK_NS;
	if (!client->stops(client->stops_user)) {
		return;
	}
	while ((op = client->flying) != NULL) {
		recall(client, op);
		append(&client->queued, op);
	}
	while ((op = client->queued) != NULL) {
		take_out(&client->queued, op);
		pawl_err_set(&op->err, PAWL_ECANCELED, "it is not wanted any more");
		end_op(client, op, name_error(client, op, op->err.code));
	}
}

/* Sleeps until an operation may be sent, while no request is in flight. */
static void sleep_ns(int64_t ns)
{
	struct timespec time = {ns / NS_PER_S, ns % NS_PER_S};

	nanosleep(&time, NULL);
}

static int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

struct object_op *object_reap(struct object_client *client, int timeout_ms)
{
	int64_t end_ns =
		timeout_ms < 0 ? INT64_MAX : clock_add_ns(clock_mono_ns(), timeout_ms * NS_PER_MS);

	while (object_is_busy(client)) {
		struct object_op *op = client->ended;
		int64_t wait_ns, left_ns;
		struct http_call *call;

		if (op != NULL) {
			take_out(&client->ended, op);
			return op;
		}
		stop_if_asked(client);
		wait_ns = send_queued(client);
		if (client->ended != NULL) {
			continue;
		}
		left_ns = end_ns - clock_mono_ns();
		left_ns = left_ns > 0 ? left_ns : 0;
		wait_ns = least(wait_ns < 0 ? left_ns : least(wait_ns, left_ns),
			client->stops != NULL ? STOP_ASK_NS : NS_PER_S);
		if (client->in_flight > 0) {
			call = http_reap(client->http,
				(int)((wait_ns + NS_PER_MS - 1) / NS_PER_MS));
		} else {
			sleep_ns(wait_ns);
			call = NULL;
		}
		if (call != NULL) {
			finish_attempt(client, call->user);
		} else if (left_ns == 0) {
			return NULL;
		}
	}
	return NULL;
}

int object_do(struct object_client *client, struct object_op *op, struct pawl_err *err)
{
	struct object_op *others = NULL;
	struct object_op *ended;

	object_submit(client, op);
	while ((ended = object_reap(client, -1)) != op) {
		ASSERT(ended != NULL);
		append(&others, ended);
	}
	while (others != NULL) {
		struct object_op *other = others;

		take_out(&others, other);
		append(&client->ended, other);
	}
	if (op->rv != 0 && err != NULL) {
		*err = op->err;
	}
	return op->rv;
}

void object_cancel(struct object_client *client, struct object_op *op)
{
	if (!take_out(&client->queued, op) && !take_out(&client->ended, op)) {
		recall(client, op);
	}
	release(op);
}

void object_on_stop(struct object_client *client, bool (*stops)(void *user), void *user)
{
	client->stops = stops;
	client->stops_user = user;
}
