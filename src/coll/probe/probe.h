/*
 * Measures the network between hosts (`pawl net`): a group with one rank a host, in which rank 0
 * gives orders. Bytes go as those of collectives do, over the same streams, so that the figures are
 * those that collectives see. docs/net.md says what each figure is.
 */
#ifndef COLL_PROBE_PROBE_H
#define COLL_PROBE_PROBE_H

#include "coll/plan/survey.h"

#include "pawl/coll.h"

#include <stdatomic.h>

/* Makes a group of this host as rank 0, listening at its address, and of the hosts of servers
 * (`pawl serve`), names[1] .. names[n - 1]. n: 2 .. SURVEY_HOSTS_MAX. PAWL_EINVAL: a name is
 * malformed; PAWL_EPEER: a server cannot be reached or is not willing; PAWL_ENOMEM, PAWL_EIO. */
int coll_probe_open(struct pawl_group **out, const char *address, const char *const *names,
	uint32_t n, int64_t timeout_ns, struct pawl_err *err);

/* Called with one line of text: what is measured next. */
typedef void coll_probe_report(void *user, const char *line);

/* The next three are for rank 0. The first two take seconds for a few hosts, and fail as
 * collectives do. */

/* Fills a survey, which must be initialised with room for the group's ranks. */
int coll_probe_survey(struct pawl_group *group, struct coll_survey *survey,
	coll_probe_report *report, void *user, struct pawl_err *err);
/* Measures the seconds of an all-reduce, by the way that the link chooses: the median of some,
 * which together take about budget_s. len_bytes: whole elements, at most SURVEY_VECTOR_MAX. */
int coll_probe_sum(struct pawl_group *group, const struct coll_link *link, enum pawl_dtype dtype,
	uint64_t len_bytes, double budget_s, double *seconds, struct pawl_err *err);
/* Tells the other ranks that they may leave. */
void coll_probe_end(struct pawl_group *group);

/* Does what rank 0 orders, at any other rank, until that ends (0), or *stop is true, or the group
 * fails. PAWL_EPEER: an order is malformed; PAWL_ENOMEM. */
int coll_probe_obey(struct pawl_group *group, const atomic_bool *stop, struct pawl_err *err);

#endif
