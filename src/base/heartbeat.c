/* The interval between two heartbeats: see heartbeat.h. */
#include "base/heartbeat.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/times.h"

#include <stdlib.h>

int heartbeat_read(int64_t *every_ns, struct pawl_err *err)
{
	const char *text = getenv("PAWL_HEARTBEAT");
	char *end = NULL;
	double s = text ? strtod(text, &end) : 0;

	if (!text) {
		*every_ns = times_ns(TIME_HEARTBEAT);
		return 0;
	}
	if (end == text || *end != '\0' || !(s == 0 || (s >= 0.01 && s <= 3600))) {
		return pawl_err_set(err, PAWL_EINVAL,
			"PAWL_HEARTBEAT=%s: seconds between heartbeats, 0.01 to 3600, or 0 for "
			"none",
			text);
	}
	*every_ns = clock_ns_of(s);
	return 0;
}
