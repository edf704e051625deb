/* See adaptdl.h. */
#include "base/adaptdl.h"

#include "base/wire.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define VERSION "0.2.11" /* whose variables these are */
#define VAR_MAX 512u     /* bytes of one of them, terminator included */

__attribute__((format(printf, 2, 3))) static void put(struct wire_out *set, const char *fmt, ...)
{
	char text[VAR_MAX];
	va_list args;
	int len;

	va_start(args, fmt);
	len = vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	if (len < 0 || (size_t)len >= sizeof(text)) {
		set->failed = true;
		return;
	}
	wire_put_raw(set, text, (size_t)len + 1);
}

void adaptdl_put_job(struct wire_out *set, const struct adaptdl_job *job)
{
	put(set, "ADAPTDL_SUPERVISOR_URL=%s", job->url);
	put(set, "ADAPTDL_JOB_ID=%s/%" PRIu64, job->space, job->number);
	put(set, "ADAPTDL_SCHED_VERSION=%s", VERSION);
}

void adaptdl_put_replica(struct wire_out *set, const struct adaptdl_replica *replica)
{
	put(set, "ADAPTDL_REPLICA_RANK=%u", replica->rank);
	put(set, "ADAPTDL_NUM_REPLICAS=%u", replica->replicas);
	put(set, "ADAPTDL_NUM_NODES=%u", replica->nodes);
	put(set, "ADAPTDL_NUM_RESTARTS=%u", replica->restarts);
	put(set, "ADAPTDL_MASTER_PORT=%u", replica->port);
}
