/* Variables of AdaptDL's controller: see adaptdl.h. */
#include "launch/env/adaptdl.h"

#include "base/wire.h"

#include <inttypes.h>

#define VERSION "0.2.11" /* AdaptDL version whose variables are imitated */

void adaptdl_put_job(struct wire_out *set, const struct adaptdl_job *job)
{
	wire_put_text(set, "ADAPTDL_SUPERVISOR_URL=%s", job->url);
	wire_put_text(set, "ADAPTDL_JOB_ID=%s/%" PRIu64, job->job_namespace, job->number);
	wire_put_text(set, "ADAPTDL_SCHED_VERSION=%s", VERSION);
}

void adaptdl_put_replica(struct wire_out *set, const struct adaptdl_replica *replica)
{
	wire_put_text(set, "ADAPTDL_REPLICA_RANK=%u", replica->rank);
	wire_put_text(set, "ADAPTDL_NUM_REPLICAS=%u", replica->replicas);
	wire_put_text(set, "ADAPTDL_NUM_NODES=%u", replica->nodes);
	wire_put_text(set, "ADAPTDL_NUM_RESTARTS=%u", replica->restarts);
	wire_put_text(set, "ADAPTDL_MASTER_PORT=%u", replica->port);
}
