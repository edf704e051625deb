/* The clocks of the scheduler: see daemon_impl.h. The core's clock goes on over restarts. */
#include "daemon/daemon_impl.h"

#include "base/clock.h"

#include <string.h>

int64_t daemon_now_ns(const struct daemon *d)
{
	return d->base_ns + (clock_mono_ns() - d->mono_ns);
}

struct database_clock daemon_read_clocks(const struct daemon *d, int64_t core_ns)
{
	struct database_clock clock = {.core_ns = core_ns,
		.wall_ns = clock_wall_ns(),
		.boot_ns = clock_boot_ns()};

	memcpy(clock.boot, d->boot, sizeof(clock.boot));
	return clock;
}

void daemon_set_clock(struct daemon *d, const struct database_clock *then)
{
	const struct database_clock now = daemon_read_clocks(d, 0);

	d->base_ns = then->core_ns + database_downtime_ns(then, &now) + 1;
	d->mono_ns = clock_mono_ns();
}
