/* The simulated engine keeps the contract of engine.h: see test_sched_engine.h. */
#include "test_sched_engine.h"

#include "engine_sim.h"

static struct engine_sim sim;

static void prepare(uint64_t job, enum deed deed)
{
	sim.work_max_s = deed == DEED_GOOD || deed == DEED_BAD ? 1 : 1e9;
	sim.faults = (struct esim_faults){.in_order = true};
	sim.faults.fails = deed == DEED_BAD ? 1000 : 0;
	sim.faults.ignores_stop = deed == DEED_IGNORES_STOP ? 1000 : 0;
}

static const struct core_event *next(int64_t wait_ms)
{
	return esim_next(&sim, sim.now_ns + wait_ms * 1000000);
}

static uint64_t starts(void)
{
	return sim.starts;
}

static void lose(const char *node)
{
	for (uint32_t n = 0; n < ESIM_NODES; n++) {
		if (strcmp(sim.nodes[n].name, node) == 0) {
			esim_node_dies(&sim, n);
		}
	}
}

static uint32_t requested_size(uint64_t job)
{
	const struct esim_run *run = esim_run_of(&sim, job);
	uint32_t replicas = 0;

	for (uint32_t i = 0; run && i < run->spots_n; i++) {
		replicas += run->spots[i].replicas;
	}
	return replicas;
}

/* The runs go on; messages and commands that were under way are lost. */
static void reopen(void)
{
	for (uint32_t i = 0; i < sim.items_n; i++) {
		if (sim.items[i].kind == ESIM_EVENT || sim.items[i].kind == ESIM_COMMAND) {
			sim.items[i].kind = ESIM_FREE;
		}
	}
}

static struct engine_world world = {.engine = &engine_sim,
	.self = &sim,
	.bad_code = 1,
	.wait_ms = 60000,
	.prepare = prepare,
	.next = next,
	.starts = starts,
	.lose = lose,
	.requested_size = requested_size,
	.reopen = reopen,
	.pool = "pool"};

static int set_up(void **state)
{
	esim_open(&sim, 1);
	prepare(0, DEED_LASTS);
	suite_open(&world);
	engine_sim.request_nodes(&sim, "pool", 3);
	for (uint32_t n = 0; n < 3; n++) {
		suite_wait(CORE_NODE_REPORTED, 0);
	}
	return 0;
}

static int tear_down(void **state)
{
	suite_close();
	return 0;
}

int main(void)
{
	return suite_run(&engine_sim, NULL, 0, set_up, tear_down);
}
