/* See run_fence.h. */
#include "launch/run_fence.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/times.h"
#include "io/http.h"
#include "io/http_request.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/time.h>

#define POD_NS (60 * NS_PER_S)

int64_t run_fence_default_ns(void)
{
	char endpoint[KUBE_SERVICE_MAX];

	return kube_service_find(endpoint) ? POD_NS : 0;
}

static void set_alarm(int64_t ns)
{
	const struct itimerval timer = {.it_value = {ns / NS_PER_S, ns % NS_PER_S / 1000}};

	setitimer(ITIMER_REAL, &timer, NULL);
}

int run_fence_open(struct run_fence *fence, int64_t ns, struct pawl_err *err)
{
	/* Any answer shows that the network is there, whoever gives it. */
	const struct http_options options = {.connect_ns = times_ns(TIME_RELAY_STALL),
		.stall_ns = times_ns(TIME_RELAY_STALL),
		.connections = 1,
		.insecure = true,
		.direct = true};

	fence->ns = ns;
	return ns > 0 && kube_service_find(fence->witness)
		? http_pool_open(&options, &fence->http, err)
		: 0;
}

void run_fence_arm(const struct run_fence *fence)
{
	const struct sigaction action = {.sa_handler = SIG_DFL};
	sigset_t set;

	if (fence->ns > 0) {
		sigaction(SIGALRM, &action, NULL);
		sigemptyset(&set);
		sigaddset(&set, SIGALRM);
		pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	}
}

void run_fence_reached(const struct run_fence *fence)
{
	if (fence->ns > 0) {
		set_alarm(fence->ns);
	}
}

void run_fence_ask(const struct run_fence *fence, const atomic_bool *stopping)
{
	int look_ms = (int)(times_ns(TIME_RELAY_LOOK) / NS_PER_MS);
	int64_t end_ns = clock_mono_ns() + times_ns(TIME_RELAY_RETRY);
	struct http_request request;
	struct http_call call = {.request = &request};
	bool over = false;

	if (fence->http == NULL) {
		return;
	}
	request_init(&request, "GET", fence->witness);
	request_add_path(&request, "livez");
	if (http_begin(fence->http, &call, NULL) != 0) {
		return;
	}
	while (!over && !atomic_load(stopping) && clock_mono_ns() < end_ns) {
		over = http_reap(fence->http, look_ms) != NULL;
	}
	if (!over) {
		http_cancel(fence->http, &call);
		return;
	}
	if (call.status != 0) {
		run_fence_reached(fence);
	}
	free(call.text);
}

int64_t run_fence_limit(const struct run_fence *fence, int64_t span_ns)
{
	return fence->ns > 0 && fence->ns / 3 < span_ns ? fence->ns / 3 : span_ns;
}

void run_fence_close(struct run_fence *fence)
{
	if (fence->ns > 0) {
		set_alarm(0);
	}
	http_pool_close(fence->http);
}
