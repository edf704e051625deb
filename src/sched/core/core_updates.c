/* What a step asks for: its updates, and the next decision. */
#include "sched/core/core_impl.h"

#include <stdarg.h>
#include <stdio.h>

struct core_update *core_add_update(struct sched_core *core, enum core_update_kind kind)
{
	struct core_update *u = &core->workspace.updates[core->updates_n];

	ASSERT(core->updates_n < core->workspace.updates_max);
	core->updates_n++;
	*u = (struct core_update){.kind = kind};
	return u;
}

void core_log(struct sched_core *core, const char *fmt, ...)
{
	va_list args;

	if (core->log_text[0] != '\0') {
		return; /* one message a step: the first one names the cause */
	}
	va_start(args, fmt);
	vsnprintf(core->log_text, sizeof(core->log_text), fmt, args);
	va_end(args);
	core_add_update(core, CORE_DO_LOG)->text = core->log_text;
}

void core_request_list(struct sched_core *core)
{
	core->listed_ns = core->now_ns;
	core_add_update(core, CORE_DO_LIST);
}

void core_want_round(struct sched_core *core, bool urgent)
{
	core->changed = true;
	core->urgent = core->urgent || urgent;
}

const struct core_update *core_updates(const struct sched_core *core, uint32_t *n)
{
	*n = core->updates_n;
	return core->workspace.updates;
}
