/* The environment variables that AdaptDL's controller sets for its jobs and their replicas.
 * Pure.
 *
 * A set of variables is a wire_out of "NAME=value" strings, each with its NUL. */
#ifndef LAUNCH_ENV_ADAPTDL_H
#define LAUNCH_ENV_ADAPTDL_H

#include <stdint.h>

struct wire_out;

/* A job. The strings stay the caller's. */
struct adaptdl_job {
	const char *url; /* URL of the scheduler, which AdaptDL calls the supervisor; not NULL */
	const char *job_namespace; /* namespace of the job */
	uint64_t number;
};

struct adaptdl_replica {
	uint32_t rank, replicas, nodes, restarts, port;
};

void adaptdl_put_job(struct wire_out *set, const struct adaptdl_job *job);
void adaptdl_put_replica(struct wire_out *set, const struct adaptdl_replica *replica);

#endif
