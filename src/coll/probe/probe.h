/*
 * Measures the network between hosts (`pawl net`): a group with one rank per host, in which rank 0
 * gives orders. Bytes use the same streams as those of collectives, so that collectives see the
 * same figures. docs/net.md explains each figure.
 */
#ifndef COLL_PROBE_PROBE_H
#define COLL_PROBE_PROBE_H

#include "coll/plan/survey.h"

#include "pawl/coll.h"

#include <stdatomic.h>

/* Makes a group of this host as rank 0, listening at address, and of the hosts of servers (`pawl
 * serve`), names[1] .. names[n - 1]. n: 2 .. SURVEY_HOSTS_MAX. PAWL_EINVAL: a name is malformed;
 * PAWL_EPEER: a server cannot be reached or refuses; PAWL_ENOMEM, PAWL_EIO. */
int coll_probe_open(struct pawl_group **out, const char *address, const char *const *names,
	uint32_t n, int64_t timeout_ns, struct pawl_err *err);

/* Called with one line of text: what is measured next. */
typedef void coll_probe_report(void *user, const char *line);

/* The next three are for rank 0. The first two take seconds for a few hosts, and fail as
 * collectives do. */

/* Fills a survey, which must have been initialised with room for the group's ranks. */
int coll_probe_survey(struct pawl_group *group, struct coll_survey *survey,
	coll_probe_report *report, void *user, struct pawl_err *err);
/* Measures the seconds of an all-reduce, by the algorithm that is chosen for the link: the median
 * of several, which together take about budget_s. len_bytes: whole elements, SURVEY_VECTOR_MAX at
 * most. */
int coll_probe_sum(struct pawl_group *group, const struct coll_link *link, enum pawl_dtype dtype,
	uint64_t len_bytes, double budget_s, double *seconds, struct pawl_err *err);
/* Orders the other ranks to leave. */
void coll_probe_end(struct pawl_group *group);

/* Carries out the orders of rank 0, at any other rank, until rank 0 ends the measurement (0), *stop
 * is true, or the group fails. PAWL_EPEER: an order is malformed; PAWL_ENOMEM. */
int coll_probe_obey(struct pawl_group *group, const atomic_bool *stop, struct pawl_err *err);

#endif
