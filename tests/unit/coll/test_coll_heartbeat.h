/* The heartbeat period of ranks in tests. */
#ifndef UNIT_COLL_TEST_COLL_HEARTBEAT_H
#define UNIT_COLL_TEST_COLL_HEARTBEAT_H

#include <stdlib.h>

/* Bears silence for 4 s instead of 2: on a busy machine any thread may stand still for a while. */
static inline void bear_silence(void)
{
	setenv("PAWL_HEARTBEAT", "1", 1);
}

#endif
