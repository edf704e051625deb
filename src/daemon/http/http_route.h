/*
 * Finds the resource of a request over HTTP from its method and its path, which is not decoded yet
 * and not trusted. Pure.
 *
 *   /  /healthz  /metrics  /nodes  /jobs  /jobs/JOB  /jobs/JOB/cancel|pause|resume
 *   /memberships/NAME
 *   /hints/SPACE/NAME  /discover/SPACE/NAME/GROUP  /membership/SPACE/NAME
 *                                                     of a job, also after /job/SECRET
 */
#ifndef DAEMON_HTTP_HTTP_ROUTE_H
#define DAEMON_HTTP_HTTP_ROUTE_H

#include "sched/core/core.h"

#define HTTP_SECRET_CHARS 64u  /* hexadecimal digits of a job's secret */
#define HTTP_PART_MAX     65u  /* bytes of a part of a path, decoded, terminator included */
#define HTTP_POLL_MAX_S   300u /* seconds that discovery may wait */

enum http_resource {
	HTTP_NOTHING, /* there is no such path: 404 */
	HTTP_PAGE,
	HTTP_HEALTH,
	HTTP_METRICS,
	HTTP_NODES,
	HTTP_JOBS,
	HTTP_JOB,        /* name */
	HTTP_CANCEL,     /* name */
	HTTP_PAUSE,      /* name */
	HTTP_RESUME,     /* name */
	HTTP_HINTS,      /* space, name */
	HTTP_DISCOVER,   /* space, name, group */
	HTTP_MEMBERSHIP, /* space, name: of a job of the scheduler */
	HTTP_MEMBERSHIPS /* name: of any job */
};

struct http_route {
	enum http_resource resource;
	const char *allow;          /* methods, as in "GET, HEAD" */
	char secret[HTTP_PART_MAX]; /* "": none */
	char space[HTTP_PART_MAX];
	char name[HTTP_PART_MAX];
	char group[HTTP_PART_MAX];
};

/* Parses a path. False: it is malformed (400): a decoded part is empty, ".", "..", or has a "/" or
 * characters that are not plain (base/text.h); or a percent sign is not followed by two digits. */
bool http_route_parse(struct http_route *route, const char *path);
/* Returns whether the path has that method. */
bool http_route_allows(const struct http_route *route, const char *method);
/* Reads a whole number of at most `most`; false: text is none. */
bool http_number(const char *text, uint64_t most, uint64_t *number);

#endif
