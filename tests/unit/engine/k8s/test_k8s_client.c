/* The client of an API server: what it does with answers, with failures of the server and of the
 * network, and with memory that is short. Whatever happens, what a watch has reported is what the
 * server has. */
#include "../lib/each_fault.h"
#include "../lib/expect.h"
#include "../lib/seed.h"
#include "../lib/within.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/rng.h"
#include "engine/k8s/kube.h"
#include "engine/k8s/kube_access.h"
#include "io/loop.h"

#include "kube_server.h"
#include "times.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "folder.h"

#define PODS    "/api/v1/namespaces/a/pods"
#define ALL     "/api/v1/pods"
#define PATIENT (60 * NS_PER_S)

static struct kube_server *server;
static struct loop *loop;
static struct kube *kube;
static struct pawl_err err;
static char path[2 * FOLDER_PATH_MAX]; /* path of the kubeconfig */

/* ---- a client ---- */

static void open_client(const char *user)
{
	const struct kube_access_options options = {.kubeconfig = path};
	struct kube_access *access;
	char text[1024];

	snprintf(text, sizeof(text),
		"current-context: t\n"
		"contexts: [{name: t, context: {cluster: t, user: t, namespace: a}}]\n"
		"clusters: [{name: t, cluster: {server: '%s'}}]\n"
		"users: [{name: t, user: {%s}}]\n",
		kube_server_url(server), user);
	folder_write("config", text, 0600);
	OK(kube_access_open(&options, &access, &err));
	OK(loop_open(&loop, &err));
	OK(kube_open(loop, access, &kube, &err));
}

static int begin(void **state)
{
	folder_make();
	snprintf(path, sizeof(path), "%s", folder_path("config"));
	server = kube_server_start();
	open_client("");
	return 0;
}

static int end(void **state)
{
	kube_close(kube);
	kube = NULL;
	loop_close(loop);
	kube_server_stop(server);
	folder_remove();
	return 0;
}

/* Fits fired of struct loop_timer. */
static void stop_loop(struct loop_timer *timer)
{
	loop_stop(loop);
}

/* Runs the loop until true(), which is asked every few milliseconds. */
static void run_until(bool (*true_now)(void), const char *what)
{
	struct within within = within_begin(WITHIN_LONG_S);
	struct loop_timer timer = {.fired = stop_loop};

	while (!true_now()) {
		loop_timer_start(loop, &timer, clock_mono_ns() + 2 * NS_PER_MS);
		OK(loop_run(loop, &err));
		within_check(&within, what, __FILE__, __LINE__);
	}
	loop_timer_cancel(loop, &timer);
}

/* ---- requests ---- */

static struct {
	bool done;
	int rv;
	int status;
	char reason[KUBE_REASON_MAX];
	char why[KUBE_WHY_MAX];
	json_t *body;
} got;

static void take_answer(void *user, const struct kube_answer *answer)
{
	got.done = true;
	got.rv = answer->rv;
	got.status = answer->status;
	snprintf(got.reason, sizeof(got.reason), "%s", answer->reason);
	snprintf(got.why, sizeof(got.why), "%s", answer->why);
	json_decref(got.body);
	got.body = json_incref((json_t *)answer->body);
}

static bool is_answered(void)
{
	return got.done;
}

static int ask(enum kube_verb verb, const char *at, json_t *body, int64_t patience_ns)
{
	got.done = false;
	assert_non_null(kube_send(kube,
		&(struct kube_ask){.verb = verb,
			.path = at,
			.body = body,
			.patience_ns = patience_ns,
			.done = take_answer}));
	run_until(is_answered, "an answer");
	return got.rv;
}

static json_t *make_pod(const char *name, const char *phase)
{
	return json_pack("{s:{s:s, s:{s:s}}, s:{s:s}}", "metadata", "name", name, "labels", "job",
		"j1", "status", "phase", phase);
}

static const char *phase_of(const json_t *pod)
{
	return json_string_value(json_object_get(json_object_get(pod, "status"), "phase"));
}

static void objects_are_made_changed_and_removed(void **state)
{
	assert_int_equal(ask(KUBE_POST, PODS, make_pod("p", "Pending"), 0), 0);
	assert_int_equal(got.status, 201);
	assert_int_equal(ask(KUBE_POST, PODS, make_pod("p", "Pending"), 0), PAWL_EEXIST);
	assert_string_equal(got.reason, "AlreadyExists");
	assert_non_null(strstr(got.why, "POST " PODS ": 409: pods \"p\" already exists"));
	assert_int_equal(ask(KUBE_PATCH, PODS "/p/status",
				 json_pack("{s:{s:s}}", "status", "phase", "Running"), 0),
		0);
	assert_string_equal(phase_of(got.body), "Running");
	assert_int_equal(ask(KUBE_PUT, PODS "/p",
				 json_pack("{s:{s:s, s:s}}", "metadata", "name", "p",
					 "resourceVersion", "1"),
				 0),
		PAWL_EBUSY);
	assert_int_equal(ask(KUBE_GET, PODS "/p", NULL, 0), 0);
	assert_string_equal(phase_of(got.body), "Running");
	assert_int_equal(
		ask(KUBE_DELETE, PODS "/p", json_pack("{s:i}", "gracePeriodSeconds", 0), 0), 0);
	assert_int_equal(ask(KUBE_GET, PODS "/p", NULL, 0), PAWL_ENOENT);
	assert_int_equal(ask(KUBE_POST, PODS, json_object(), PATIENT), PAWL_EINVAL);
	assert_non_null(strstr(got.why, "422: metadata.name: Required value"));
}

/* Requests that go wrong: those up to `until`, and how. */
static struct {
	unsigned until;
	struct kube_server_fault fault;
	const char *only; /* method; NULL: any */
	char token[64];   /* the one that is good; "": any */
} trouble;

/* Fits kube_server_hook. */
static void make_trouble(void *user, const struct kube_server_ask *about,
	struct kube_server_fault *fault)
{
	if (about->nth <= trouble.until &&
		(trouble.only == NULL || strcmp(trouble.only, about->method) == 0)) {
		*fault = trouble.fault;
	}
	if (trouble.token[0] != '\0' &&
		(about->authorization == NULL ||
			strcmp(about->authorization, trouble.token) != 0)) {
		*fault = (struct kube_server_fault){KUBE_ANSWER, 401, "Unauthorized", 0};
	}
}

static void trouble_with(unsigned until, struct kube_server_fault fault)
{
	trouble.until = until;
	trouble.fault = fault;
	trouble.only = NULL;
	trouble.token[0] = '\0';
	kube_server_set_hook(server, make_trouble, NULL);
}

static void a_server_that_is_away_is_asked_again(void **state)
{
	static const struct kube_server_fault faults[] = {{KUBE_DROP, 0, NULL, 0},
		{KUBE_ANSWER, 503, "ServiceUnavailable", 0}, {KUBE_ANSWER, 500, "", 0},
		{KUBE_ANSWER, 429, "TooManyRequests", 1}};

	kube_server_put(server, PODS "/p", make_pod("p", "Running"));
	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
		trouble_with(i == 3 ? 1 : 3, faults[i]);
		assert_int_equal(ask(KUBE_GET, PODS "/p", NULL, PATIENT), 0);
		assert_int_equal(kube_server_count(server), i == 3 ? 2 : 4);
		assert_string_equal(got.why, "");
	}
	trouble_with(1, faults[1]);
	assert_int_equal(ask(KUBE_GET, PODS "/p", NULL, 0), PAWL_ETIMEDOUT); /* no patience */
	assert_non_null(strstr(got.why, "GET " PODS "/p: 503: as asked"));
	trouble_with(1000, faults[0]);
	assert_int_equal(ask(KUBE_GET, PODS "/p", NULL, NS_PER_S), PAWL_ETIMEDOUT);
}

/* The first POST is carried out, and nobody hears of it. */
static void a_lost_answer_is_no_second_object(void **state)
{
	trouble_with(1, (struct kube_server_fault){KUBE_LOSE, 0, NULL, 0});
	assert_int_equal(ask(KUBE_POST, PODS, make_pod("p", "Pending"), PATIENT), PAWL_EEXIST);
}

static void what_is_forbidden_is_not_asked_again(void **state)
{
	trouble_with(1000, (struct kube_server_fault){KUBE_ANSWER, 403, "Forbidden", 0});
	assert_int_equal(ask(KUBE_GET, PODS "/p", NULL, PATIENT), PAWL_EINVAL);
	assert_string_equal(got.reason, "Forbidden");
	assert_int_equal(kube_server_count(server), 1);
}

static void a_token_that_is_replaced_is_read_again(void **state)
{
	char user[300];

	kube_close(kube);
	loop_close(loop);
	folder_write("token", "first\n", 0600);
	snprintf(user, sizeof(user), "tokenFile: %s/token", folder);
	open_client(user);
	kube_server_put(server, PODS "/p", make_pod("p", "Running"));
	trouble_with(0, (struct kube_server_fault){KUBE_FINE, 0, NULL, 0});
	snprintf(trouble.token, sizeof(trouble.token), "Bearer first");
	assert_int_equal(ask(KUBE_GET, PODS "/p", NULL, 0), 0);
	snprintf(trouble.token, sizeof(trouble.token), "Bearer second");
	folder_write("token", "second", 0600);
	assert_int_equal(ask(KUBE_GET, PODS "/p", NULL, PATIENT), 0);
	snprintf(trouble.token, sizeof(trouble.token), "Bearer third");
	assert_int_equal(ask(KUBE_GET, PODS "/p", NULL, 0), PAWL_ETIMEDOUT);
	assert_int_equal(got.status, 401);
}

static void never_called(void *user, const struct kube_answer *answer)
{
	fail_msg("it was canceled");
}

static void what_is_canceled_calls_nobody(void **state)
{
	struct kube_call *call;

	trouble_with(2, (struct kube_server_fault){KUBE_DROP, 0, NULL, 0});
	call = kube_send(kube,
		&(struct kube_ask){.verb = KUBE_GET,
			.path = PODS "/p",
			.patience_ns = PATIENT,
			.done = never_called});
	assert_non_null(call);
	kube_cancel(call);
	assert_int_equal(ask(KUBE_GET, PODS "/q", NULL, PATIENT), PAWL_ENOENT);
}

/* ---- watches ---- */

static struct {
	json_t *there; /* name: phase, as reported */
	unsigned listed, seen, gone, failed;
	char why[KUBE_WHY_MAX];
} watched;

static const char *name_of(const json_t *object)
{
	return json_string_value(json_object_get(json_object_get(object, "metadata"), "name"));
}

static void note_seen(void *user, const json_t *object)
{
	watched.seen++;
	json_object_set_new(watched.there, name_of(object), json_string(phase_of(object)));
}

static void note_gone(void *user, const json_t *object)
{
	watched.gone++;
	assert_int_equal(json_object_del(watched.there, name_of(object)), 0);
}

static void note_listed(void *user)
{
	watched.listed++;
}

static void note_failed(void *user, const char *why)
{
	watched.failed++;
	snprintf(watched.why, sizeof(watched.why), "%s", why);
}

static struct kube_watch *watch_all(const char *selector)
{
	struct kube_watch *watch;

	json_decref(watched.there);
	memset(&watched, 0, sizeof(watched));
	watched.there = json_object();
	watch = kube_watch(kube,
		&(struct kube_watch_options){ALL, selector, note_seen, note_gone, note_listed,
			note_failed, NULL});
	assert_non_null(watch);
	return watch;
}

static unsigned listed_before;

static bool is_listed(void)
{
	return watched.listed > listed_before;
}

static void put_pod(unsigned i, const char *phase)
{
	char at[128], name[32];

	snprintf(name, sizeof(name), "p%u", i);
	snprintf(at, sizeof(at), PODS "/%s", name);
	kube_server_put(server, at, make_pod(name, phase));
}

/* Returns whether what was reported is what the server has. */
static bool is_current(void)
{
	for (unsigned i = 0; i < 1500; i++) {
		char at[128], name[32];
		json_t *pod;
		const char *known;
		bool same;

		snprintf(name, sizeof(name), "p%u", i);
		snprintf(at, sizeof(at), PODS "/%s", name);
		known = json_string_value(json_object_get(watched.there, name));
		pod = kube_server_get(server, at);
		same = pod == NULL ? known == NULL
				   : known != NULL && strcmp(known, phase_of(pod)) == 0;
		json_decref(pod);
		if (!same) {
			return false;
		}
		if (i > 40 && pod == NULL && known == NULL &&
			json_object_size(watched.there) <= 41) {
			break; /* there are no more */
		}
	}
	return true;
}

static void a_watch_begins_with_what_is_there(void **state)
{
	for (unsigned i = 0; i < 1200; i++) {
		put_pod(i, "Pending");
	}
	listed_before = 0;
	watch_all(NULL);
	run_until(is_listed, "a list");
	assert_int_equal(watched.seen, 1200);
	assert_int_equal(json_object_size(watched.there), 1200);
	put_pod(7, "Running");
	put_pod(1300, "Pending");
	assert_true(kube_server_remove(server, PODS "/p8"));
	run_until(is_current, "changes");
	assert_int_equal(watched.seen, 1202);
	assert_int_equal(watched.gone, 1);
}

static void a_watch_can_have_a_selector(void **state)
{
	json_t *other = make_pod("other", "Running");

	json_object_set_new(json_object_get(json_object_get(other, "metadata"), "labels"), "job",
		json_string("j2"));
	kube_server_put(server, PODS "/other", other);
	put_pod(1, "Running");
	listed_before = 0;
	watch_all("labelSelector=job%3Dj1");
	run_until(is_listed, "a list");
	assert_int_equal(json_object_size(watched.there), 1);
	put_pod(2, "Running");
	run_until(is_current, "changes");
	assert_int_equal(json_object_size(watched.there), 2);
}

static void a_watch_that_ends_goes_on(void **state)
{
	put_pod(1, "Pending");
	listed_before = 0;
	watch_all(NULL);
	run_until(is_listed, "a list");
	for (unsigned i = 0; i < 3; i++) {
		kube_server_end_watches(server);
		put_pod(2 + i, "Pending");
		run_until(is_current, "a change");
	}
	assert_int_equal(watched.listed, 1);
	assert_int_equal(watched.seen, 4); /* none twice */
	assert_int_equal(watched.failed, 0);
}

static void missed_changes_are_found_by_a_list(void **state)
{
	put_pod(1, "Pending");
	put_pod(2, "Pending");
	put_pod(3, "Pending");
	listed_before = 0;
	watch_all(NULL);
	run_until(is_listed, "a list");
	for (unsigned i = 0; i < 3; i++) { /* no watch can begin meanwhile */
		trouble_with(1000000, (struct kube_server_fault){KUBE_DROP, 0, NULL, 0});
		kube_server_end_watches(server);
		put_pod(2, i % 2 == 0 ? "Running" : "Pending");
		kube_server_remove(server, PODS "/p3");
		kube_server_compact(server);
		listed_before = watched.listed;
		kube_server_set_hook(server, NULL, NULL);
		run_until(is_listed, "a list");
		assert_true(is_current());
	}
	assert_int_equal(watched.gone, 1);
	assert_int_equal(watched.seen, 3 + 3);
}

/* A bookmark keeps a watch from being too old. */
static void a_bookmark_is_a_place_to_go_on_from(void **state)
{
	put_pod(1, "Pending");
	listed_before = 0;
	watch_all(NULL);
	run_until(is_listed, "a list");
	kube_server_compact(server); /* the watch is told so, and lists again */
	listed_before = 1;
	run_until(is_listed, "a list");
	kube_server_bookmark(server);
	put_pod(2, "Pending");
	run_until(is_current, "a change");
	assert_int_equal(watched.listed, 2);
}

static void a_line_that_is_cut_is_no_change(void **state)
{
	put_pod(1, "Pending");
	listed_before = 0;
	watch_all(NULL);
	trouble_with(4, (struct kube_server_fault){KUBE_BREAK, 0, NULL, 0});
	run_until(is_listed, "a list");
	put_pod(1, "Running");
	run_until(is_current, "a change");
}

static void a_watch_that_says_nothing_is_begun_anew(void **state)
{
	put_pod(1, "Pending");
	listed_before = 0;
	trouble_with(2, (struct kube_server_fault){KUBE_STALL, 0, NULL, 0}); /* not of the list */
	watch_all(NULL);
	run_until(is_listed, "a list");
	put_pod(1, "Running");
	run_until(is_current, "a change");
	assert_true(kube_server_count(server) >= 3);
}

static bool has_failed(void)
{
	return watched.failed > 0;
}

static void who_may_not_watch_is_told(void **state)
{
	trouble_with(2, (struct kube_server_fault){KUBE_ANSWER, 403, "Forbidden", 0});
	listed_before = 0;
	watch_all(NULL);
	run_until(has_failed, "a refusal");
	assert_non_null(strstr(watched.why, "list " ALL ": 403: as asked"));
	run_until(is_listed, "a list");
}

static void a_watch_that_is_ended_calls_nobody(void **state)
{
	struct kube_watch *watch;
	unsigned seen;

	put_pod(1, "Pending");
	listed_before = 0;
	watch = watch_all(NULL);
	run_until(is_listed, "a list");
	kube_unwatch(watch);
	seen = watched.seen;
	put_pod(2, "Pending");
	assert_int_equal(ask(KUBE_GET, PODS "/p2", NULL, PATIENT), 0);
	assert_int_equal(watched.seen, seen);
}

static struct rng chance;

/* Fits kube_server_hook: a third of the requests go wrong, in any way. */
static void make_any_trouble(void *user, const struct kube_server_ask *about,
	struct kube_server_fault *fault)
{
	static const struct kube_server_fault faults[] = {{KUBE_DROP, 0, NULL, 0},
		{KUBE_LOSE, 0, NULL, 0}, {KUBE_ANSWER, 500, "InternalError", 0},
		{KUBE_ANSWER, 429, "TooManyRequests", 0}, {KUBE_ANSWER, 410, "Expired", 0},
		{KUBE_BREAK, 0, NULL, 0}};

	if (rng_u64(&chance) % 3 == 0) {
		*fault = faults[rng_u64(&chance) % (sizeof(faults) / sizeof(faults[0]))];
	}
}

static void any_weather_ends_in_the_same_state(void **state)
{
	uint64_t seed = test_seed();

	print_message("PAWL_TEST_SEED=%llu\n", (unsigned long long)seed);
	chance = (struct rng){seed};
	for (unsigned i = 0; i < 30; i++) {
		put_pod(i, "Pending");
	}
	kube_server_set_hook(server, make_any_trouble, NULL);
	watch_all(NULL);
	for (unsigned round = 0; round < 12; round++) {
		struct rng own = {seed + round};

		for (unsigned i = 0; i < 10; i++) {
			unsigned pod = (unsigned)(rng_u64(&own) % 40);
			char at[128];

			snprintf(at, sizeof(at), PODS "/p%u", pod);
			if (rng_u64(&own) % 3 == 0) {
				kube_server_remove(server, at);
			} else {
				put_pod(pod, rng_u64(&own) % 2 == 0 ? "Running" : "Pending");
			}
		}
		switch (rng_u64(&own) % 4) {
		case 0:
			kube_server_compact(server);
			break;
		case 1:
			kube_server_end_watches(server);
			break;
		case 2:
			kube_server_bookmark(server);
			break;
		default:
			break;
		}
		run_until(is_current, "the server's state");
	}
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
	const struct CMUnitTest tests[] = {
		TEST(objects_are_made_changed_and_removed),
		TEST(a_server_that_is_away_is_asked_again),
		TEST(a_lost_answer_is_no_second_object),
		TEST(what_is_forbidden_is_not_asked_again),
		TEST(a_token_that_is_replaced_is_read_again),
		TEST(what_is_canceled_calls_nobody),
		TEST(a_watch_begins_with_what_is_there),
		TEST(a_watch_can_have_a_selector),
		TEST(a_watch_that_ends_goes_on),
		TEST(missed_changes_are_found_by_a_list),
		TEST(a_bookmark_is_a_place_to_go_on_from),
		TEST(a_line_that_is_cut_is_no_change),
		TEST(a_watch_that_says_nothing_is_begun_anew),
		TEST(who_may_not_watch_is_told),
		TEST(a_watch_that_is_ended_calls_nobody),
		TEST(any_weather_ends_in_the_same_state),
	};

	test_times("kube_silence=0.3");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
