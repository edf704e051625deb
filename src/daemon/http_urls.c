/* The URLs by which jobs reach the scheduler: see http.h. */
#include "daemon/http_impl.h"

#include "daemon/sched_msg_json.h"
#include "sched/jobfile/jobfile.h"

#include <stdio.h>

const char *http_find_url(const struct http *http)
{
	bool remote = http->daemon->engine->remote;

	for (uint32_t i = 0; i < http->n; i++) {
		const struct http_listener *l = &http->listeners[i];

		if (remote ? l->external_url[0] != '\0' : l->loopback) {
			return remote ? l->external_url : l->url;
		}
	}
	return NULL;
}

bool http_job_url(const struct http *http, uint64_t job, char url[HTTP_URL_MAX])
{
	char secret[HTTP_SECRET_CHARS + 1u];
	const char *at = http ? http_find_url(http) : NULL;

	if (!at) {
		return false;
	}
	http_key_secret(&http->key, job, secret);
	snprintf(url, HTTP_URL_MAX, "%.128s/job/%s", at, secret);
	return true;
}

const char *http_space(uint32_t uid, char *buf, uint32_t cap_bytes)
{
	if (!jobfile_is_name(sched_msg_user_name(uid, buf, cap_bytes))) {
		snprintf(buf, cap_bytes, "%u", uid);
	}
	return buf;
}
