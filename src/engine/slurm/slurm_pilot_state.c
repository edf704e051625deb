/* The pilots that the engine knows: finds one, and records that one is to end or is lost. */
#include "engine/slurm/slurm_impl.h"

#include "base/assert.h"
#include "base/clock.h"

#include <string.h>

bool slurm_pilots_known(const struct sched_slurm *s)
{
	return s->queue_read && s->pilots_seen;
}

struct pilot *slurm_pilot_named(struct sched_slurm *s, const char *name)
{
	for (uint32_t i = 0; i < s->pilots_n; i++) {
		if (strcmp(s->pilots[i].name, name) == 0) {
			return &s->pilots[i];
		}
	}
	return NULL;
}

void slurm_pilot_lose(struct sched_slurm *s, struct pilot *pilot, enum pilot_life life)
{
	ASSERT(life == PILOT_LOST || life == PILOT_EMPTY);
	if (life == PILOT_EMPTY && pilot->life < PILOT_EMPTY) {
		pilot->empty_ns = clock_mono_ns();
		slurm_look_soon(s);
	}
	pilot->life = pilot->life > life ? pilot->life : life;
	if (!pilot->posted_gone) {
		pilot->posted_gone = true;
		slurm_post_node(s, pilot->name, CORE_NODE_GONE);
	}
}

void slurm_pilot_end(struct pilot *pilot)
{
	pilot->dirty = pilot->dirty || !pilot->leave;
	pilot->leave = true;
}
