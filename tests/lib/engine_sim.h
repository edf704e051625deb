/*
 * An engine without machines: a virtual clock, nodes that come and go, jobs that run, fail, hang
 * and ignore signals, commands and messages that come late, out of order, or never. A seed replays
 * it.
 *
 * It keeps what engine.h asks of engines, and checks of the scheduler that no job runs twice and
 * that no node has more replicas than slots.
 */
#ifndef TEST_ENGINE_SIM_H
#define TEST_ENGINE_SIM_H

#include "base/rng.h"
#include "sched/engine.h"

#define ESIM_NODES 64u
#define ESIM_RUNS  1024u
#define ESIM_ITEMS 4096u
#define ESIM_SPOTS 32u

/* How likely what is; in thousandths. */
struct esim_faults {
	uint32_t refused; /* a start, or a rescale */
	uint32_t lost;    /* a command or a message on its way */
	uint32_t slow_ms; /* at most, that they take */
	uint32_t deaf;    /* a job ignores being told to stop */
	uint32_t fails;   /* a run ends badly, at a random time */
	uint32_t hangs;   /* a run does not end at its end, until it is killed or an hour is over */
	uint32_t dry;     /* a pool has no nodes */
	bool in_order;    /* nothing is overtaken */
};

enum esim_run_state { ESIM_NONE, ESIM_STARTING, ESIM_RUNNING, ESIM_ENDED };

/* A job as the engine has it. */
struct esim_run {
	enum esim_run_state state;
	uint64_t job;
	uint64_t generation;
	uint64_t stopped; /* up to this generation nothing starts any more */
	uint64_t refused; /* generation that was; 0 */
	uint32_t spots_n;
	struct {
		uint32_t node;
		uint32_t replicas;
	} spots[ESIM_SPOTS];
	double work_s;     /* replicas times seconds, that are left */
	int64_t worked_ns; /* up to when work_s is */
	bool deaf;         /* ignores being told to stop */
	bool hangs;        /* at its end */
	bool told;         /* to stop */
	int exit_code;     /* of its end by itself, decided at its start; ended: of it */
	enum core_by by;   /* ended */
	int64_t ended_ns;
	int64_t told_ns; /* when a command of it last came, or it last did something */
	uint64_t stamp;  /* of the item that ends it */
};

struct esim_node {
	bool known; /* it was told of */
	bool up;
	bool going;
	int64_t told_ns; /* when the newest message of it comes */
	char name[CORE_NAME_MAX];
	char pool[CORE_NAME_MAX];
	uint32_t slots;
	bool spot;
};

enum esim_item_kind { ESIM_FREE, ESIM_EVENT, ESIM_COMMAND, ESIM_STEP, ESIM_END, ESIM_DIES };

/* Something that will happen. */
struct esim_item {
	enum esim_item_kind kind;
	int64_t at_ns;
	uint64_t order;
	struct core_event event; /* its pointers are into what follows */
	struct core_offer offer;
	char name[CORE_NAME_MAX];
	enum core_update_kind command;
	uint64_t job;
	uint64_t generation;
	int64_t grace_ns;
	uint32_t count;
	uint64_t stamp;
	uint32_t node;
	struct esim_run place; /* of a start, a rescale */
};

struct engine_sim {
	struct rng rng;
	struct esim_faults faults;
	int64_t now_ns;
	uint64_t order;
	struct esim_node nodes[ESIM_NODES];
	uint32_t nodes_ever;
	struct esim_run runs[ESIM_RUNS];
	struct esim_item items[ESIM_ITEMS];
	uint32_t items_n; /* room in use */
	struct core_run listed[ESIM_RUNS];
	double work_max_s; /* of a job */
	uint64_t starts;   /* that had an effect */
	uint64_t late;     /* starts that came after their stop */
	uint64_t kills;    /* of what ignored being told */
	uint32_t said;     /* lines to people */
	char last[256];    /* of them */
};

extern const struct sched_engine engine_sim;

void esim_open(struct engine_sim *sim, uint64_t seed);
/* A node, in a moment: its name is told. */
const char *esim_node_comes(struct engine_sim *sim, uint32_t slots, const char *pool, bool spot);
void esim_node_dies(struct engine_sim *sim, uint32_t node);
void esim_node_goes(struct engine_sim *sim, uint32_t node, int64_t in_ns);
void esim_node_returns(struct engine_sim *sim, uint32_t node);
/* The next event for the core, at most at until_ns; NULL: there is none until then. Good until the
 * next call. */
const struct core_event *esim_next(struct engine_sim *sim, int64_t until_ns);
/* Slots times jobs that start or run. */
const struct esim_run *esim_run_of(const struct engine_sim *sim, uint64_t job);

#endif
