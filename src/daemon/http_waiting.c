/* Requests that wait as suspended connections, in discovery for a job, and of launchers for news:
 * see http_impl.h. */
#include "daemon/http_impl.h"

#include "base/clock.h"

#include <string.h>

bool http_is_group_running(const struct daemon *d, const struct core_job *job, uint64_t group)
{
	return (job->state == CORE_RUNNING || job->state == CORE_RESCALING) &&
		(job->request.in_place || job->restarts == group) &&
		(!d->engine->hosts ||
			d->engine->hosts(d->engine_self, job->id, job->generation, NULL, 0) > 0);
}

/* Returns whether a request that waits can be answered. */
static bool is_ready(const struct http_request *r)
{
	const struct daemon *d = r->listener->http->daemon;
	const struct core_job *job = core_job_find(d->core, r->job);
	uint64_t group = 0;

	if (r->taken) {
		return memberships_has_news(r->listener->http->memberships, r->membership,
			r->instance, r->version);
	}
	http_number(r->route.group, UINT32_MAX, &group);
	return !job || job->state >= CORE_DONE || http_is_group_running(d, job, group);
}

static void start_due(struct http *http)
{
	int64_t due_ns = INT64_MAX;

	for (const struct http_request *r = http->waiting; r; r = r->next) {
		due_ns = r->due_ns < due_ns ? r->due_ns : due_ns;
	}
	if (http->waiting) {
		loop_timer_start(http->daemon->loop, &http->due, due_ns);
	} else {
		loop_timer_cancel(http->daemon->loop, &http->due);
	}
}

void http_wake(struct http *http, int64_t now_ns, bool all)
{
	struct http_request **at = &http->waiting;

	while (*at) {
		struct http_request *request = *at;

		if (!all && now_ns < request->due_ns && !is_ready(request)) {
			at = &request->next;
			continue;
		}
		*at = request->next;
		http->waiting_n--;
		request->conn->place.waiting = false;
		request->conn->place.since_ns = now_ns;
		MHD_resume_connection(request->handle);
		request->listener->resumed = true;
		loop_timer_start(http->daemon->loop, &request->listener->timer, now_ns);
	}
	start_due(http);
}

void http_notify(struct http *http)
{
	if (http->waiting) {
		http_wake(http, clock_mono_ns(), false);
	}
}

/* Returns whether two requests wait for the same job. */
static bool is_same(const struct http_request *a, const struct http_request *b)
{
	return a->taken == b->taken &&
		(a->taken ? strcmp(a->membership, b->membership) == 0 : a->job == b->job);
}

static uint32_t count_waiting(const struct http *http, const struct http_request *of)
{
	uint32_t n = 0;

	for (const struct http_request *r = http->waiting; r; r = r->next) {
		n += is_same(r, of);
	}
	return n;
}

/* Ends the wait of the oldest request of the job that has most waiting ones, so that no job blocks
 * others. False: no job has more than that of this request. */
static bool make_room(struct http *http, const struct http_request *request)
{
	uint32_t most = count_waiting(http, request);
	struct http_request *chosen = NULL;

	for (struct http_request *r = http->waiting; r; r = r->next) {
		uint32_t n = count_waiting(http, r);

		if (n > most || (chosen && is_same(r, chosen))) { /* new ones are in front */
			most = n;
			chosen = r;
		}
	}
	if (!chosen) {
		return false;
	}
	chosen->due_ns = 0;
	http_wake(http, clock_mono_ns(), false);
	return true;
}

bool http_wait(struct http_request *request)
{
	struct http *http = request->listener->http;

	if (http->waiting_n == HTTP_WAITING_MAX && !make_room(http, request)) {
		return false;
	}
	request->conn->place.waiting = true;
	request->next = http->waiting;
	http->waiting = request;
	http->waiting_n++;
	MHD_suspend_connection(request->handle);
	start_due(http);
	return true;
}
