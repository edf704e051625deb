/* How often ranks of tests say that they live. */
#ifndef TEST_COLL_BEAT_H
#define TEST_COLL_BEAT_H

#include <stdlib.h>

/* Silence is borne for 4 s, not 2: on a busy machine any thread may stand still for some. */
static inline void bear_silence(void)
{
	setenv("PAWL_HEARTBEAT", "1", 1);
}

#endif
