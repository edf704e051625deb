/* Carries the core's updates out by calls of an engine: see engine.h. */
#include "sched/core/engine.h"

void sched_engine_do(const struct sched_engine *engine, void *self, const struct sched_core *core,
	const struct core_pool *pools, const struct core_update *u)
{
	const struct core_node *node;

	switch (u->kind) {
	case CORE_DO_START:
		engine->start(self, core, u->job, u->generation, u->place);
		break;
	case CORE_DO_RESCALE:
		engine->rescale(self, core, u->job, u->generation, u->place);
		break;
	case CORE_DO_STOP:
	case CORE_DO_KILL:
		engine->stop(self, u->job, u->generation,
			u->kind == CORE_DO_STOP ? u->grace_ns : 0);
		break;
	case CORE_DO_REQUEST_NODES:
		engine->request_nodes(self, pools[u->pool].name, u->count);
		break;
	case CORE_DO_RETURN_NODE:
		node = core_node_find(core, u->node);
		if (node) {
			engine->return_node(self, node->offer.name);
		}
		break;
	case CORE_DO_LIST:
		engine->list(self);
		break;
	case CORE_DO_LOG:
		engine->log(self, u->text);
	}
}
