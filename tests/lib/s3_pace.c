/* How long bytes take: see s3_pace.h. */
#include "s3_pace.h"

#include "base/clock.h"

#define LATE_NS (20 * NS_PER_MS) /* how late a thread may wake, at most */

int64_t s3_pace_take(struct s3_pace *pace, uint64_t bytes_s, size_t len_bytes, int64_t now_ns)
{
	if (bytes_s == 0) {
		return 0;
	}
	if (pace->busy_ns < now_ns - LATE_NS) {
		pace->busy_ns = now_ns - LATE_NS;
	}
	pace->busy_ns += (int64_t)((double)len_bytes / (double)bytes_s * (double)NS_PER_S);
	return pace->busy_ns > now_ns ? pace->busy_ns - now_ns : 0;
}
