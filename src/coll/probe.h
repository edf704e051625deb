/*
 * Measuring the network between hosts (`pawl net`): a group with one rank a host, on which rank 0
 * says what is done next. What is measured goes as collectives do, over the same streams, so that
 * the figures are those that collectives see. docs/net.md says what each is.
 */
#ifndef COLL_PROBE_H
#define COLL_PROBE_H

#include "coll/survey.h"

#include "pawl/coll.h"

#include <stdatomic.h>

/* Makes a group of this host as rank 0, listening at its address, and of the hosts of servers
 * (`pawl serve`), names[1] .. names[n - 1]. n: 2 .. SURVEY_HOSTS_MAX. PAWL_EINVAL: a name is none;
 * PAWL_EPEER: a server cannot be reached or is not willing; PAWL_ENOMEM, PAWL_EIO. */
int coll_probe_open(struct pawl_group **out, const char *address, const char *const *names,
	uint32_t n, int64_t timeout_ns, struct pawl_err *err);

/* Called with one line: what is measured next. */
typedef void coll_probe_tell(void *user, const char *line);

/* Of rank 0. The first two take seconds for a few hosts, and fail as collectives do. */

/* Fills all of a survey, which is initialised, with room for the group's ranks. */
int coll_probe_survey(struct pawl_group *group, struct coll_survey *survey, coll_probe_tell *tell,
	void *user, struct pawl_err *err);
/* Seconds that an all-reduce takes, the way that the link chooses: the median of some, which
 * together take about budget_s. len_bytes: whole elements, at most SURVEY_VECTOR_MAX. */
int coll_probe_sum(struct pawl_group *group, const struct coll_link *link, enum pawl_dtype dtype,
	uint64_t len_bytes, double budget_s, double *seconds, struct pawl_err *err);
/* The others may leave. */
void coll_probe_end(struct pawl_group *group);

/* Of the others: does what rank 0 says, until it ends (0), or *stop is true, or the group fails.
 * PAWL_EPEER: it says nonsense; PAWL_ENOMEM. */
int coll_probe_obey(struct pawl_group *group, const atomic_bool *stop, struct pawl_err *err);

#endif
