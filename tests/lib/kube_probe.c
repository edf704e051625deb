/*
 * kube_probe KUBECONFIG: the client of src/engine/k8s in a process, for tests in Python. It reads
 * commands and prints what happens, each a line of JSON:
 *
 *   {"watch": PATH, "selector": TEXT}
 *      prints {"watch": PATH, "event": "seen", "gone" or "listed", "object": {…}}
 *      or {"watch": PATH, "event": "failed", "why": TEXT}
 *   {"ask": VERB, "path": PATH, "query": TEXT, "body": {…}, "patience_s": SECONDS}
 *      prints {"answer": PATH, "code": "PAWL_OK" …, "status": …, "reason": …, "why": …, "body": …}
 *
 * Ends at the end of its input.
 */
#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "engine/k8s/kube.h"
#include "engine/k8s/kube_access.h"
#include "io/loop.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct loop *loop;
static struct kube *kube;

/* Lines that the reading thread has for the loop; NULL: the end. */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t taken;
	json_t *command; /* owned; NULL: none */
	bool over;
} input = {.lock = PTHREAD_MUTEX_INITIALIZER, .taken = PTHREAD_COND_INITIALIZER};

/* ---- output ---- */

/* Prints a value, which is taken. */
static void print(json_t *value)
{
	ASSERT(value != NULL);
	json_dumpf(value, stdout, JSON_COMPACT);
	putchar('\n');
	fflush(stdout);
	json_decref(value);
}

static void print_event(const char *path, const char *event, const json_t *object)
{
	print(json_pack("{s:s, s:s, s:O?}", "watch", path, "event", event, "object", object));
}

static void print_seen(void *user, const json_t *object)
{
	print_event(user, "seen", object);
}

static void print_gone(void *user, const json_t *object)
{
	print_event(user, "gone", object);
}

static void print_listed(void *user)
{
	print_event(user, "listed", NULL);
}

static void print_failed(void *user, const char *why)
{
	print(json_pack("{s:s, s:s, s:s}", "watch", (const char *)user, "event", "failed", "why",
		why));
}

static void print_answer(void *user, const struct kube_answer *answer)
{
	print(json_pack("{s:s, s:s, s:i, s:s, s:s, s:O?}", "answer", (const char *)user, "code",
		answer->rv == 0 ? "PAWL_OK" : pawl_err_name(answer->rv), "status", answer->status,
		"reason", answer->reason, "why", answer->why, "body", answer->body));
	free(user);
}

/* ---- commands ---- */

static const char *text_of(const json_t *command, const char *name)
{
	return json_string_value(json_object_get(command, name));
}

static void begin_watch(const json_t *command)
{
	char *path = strdup(text_of(command, "watch")); /* kept until the process ends */

	ASSERT(path != NULL);
	ASSERT(kube_watch(kube,
		       &(struct kube_watch_options){.path = path,
			       .selector = text_of(command, "selector"),
			       .seen = print_seen,
			       .gone = print_gone,
			       .listed = print_listed,
			       .failed = print_failed,
			       .user = path}) != NULL);
}

static void ask(const json_t *command)
{
	static const char *const verbs[] = {[KUBE_GET] = "GET",
		[KUBE_POST] = "POST",
		[KUBE_PUT] = "PUT",
		[KUBE_PATCH] = "PATCH",
		[KUBE_DELETE] = "DELETE"};
	const char *path = text_of(command, "path");
	json_t *body = json_object_get(command, "body");
	struct kube_ask request = {.path = path,
		.query = text_of(command, "query"),
		.body = json_is_object(body) ? json_incref(body) : NULL,
		.patience_ns =
			json_integer_value(json_object_get(command, "patience_s")) * NS_PER_S,
		.done = print_answer,
		.user = strdup(path)};

	while (strcmp(verbs[request.verb], text_of(command, "ask")) != 0) {
		request.verb++;
		ASSERT(request.verb <= KUBE_DELETE);
	}
	ASSERT(request.user != NULL && kube_send(kube, &request) != NULL);
}

/* Fits woken of loop_on_wake. */
static void obey(void *user)
{
	json_t *command;
	bool over;

	pthread_mutex_lock(&input.lock);
	command = input.command;
	input.command = NULL;
	over = input.over;
	pthread_cond_signal(&input.taken);
	pthread_mutex_unlock(&input.lock);
	if (command != NULL && text_of(command, "watch") != NULL) {
		begin_watch(command);
	} else if (command != NULL) {
		ask(command);
	}
	json_decref(command);
	if (over) {
		loop_stop(loop);
	}
}

/* Fits pthread_create: reads commands until the end of the input. */
static void *read_commands(void *user)
{
	char *line = NULL;
	size_t cap_bytes = 0;

	while (getline(&line, &cap_bytes, stdin) > 0) {
		json_t *command = json_loads(line, 0, NULL);

		ASSERT(command != NULL);
		pthread_mutex_lock(&input.lock);
		while (input.command != NULL) {
			pthread_cond_wait(&input.taken, &input.lock);
		}
		input.command = command;
		pthread_mutex_unlock(&input.lock);
		loop_wake(loop);
	}
	free(line);
	pthread_mutex_lock(&input.lock);
	while (input.command != NULL) {
		pthread_cond_wait(&input.taken, &input.lock);
	}
	input.over = true;
	pthread_mutex_unlock(&input.lock);
	loop_wake(loop);
	return NULL;
}

int main(int argc, char **argv)
{
	struct kube_access *access;
	struct pawl_err err;
	pthread_t thread;

	if (argc != 2 ||
		kube_access_open(&(struct kube_access_options){.kubeconfig = argv[1]}, &access,
			&err) != 0 ||
		loop_open(&loop, &err) != 0 || kube_open(loop, access, &kube, &err) != 0) {
		fprintf(stderr, "kube_probe: %s\n", argc == 2 ? err.msg : "needs a kubeconfig");
		return 2;
	}
	loop_on_wake(loop, obey, NULL);
	ASSERT(pthread_create(&thread, NULL, read_commands, NULL) == 0);
	ASSERT(loop_run(loop, &err) == 0);
	pthread_join(thread, NULL);
	kube_close(kube);
	loop_close(loop);
	return 0;
}
