/*
 * An engine without machines: a virtual clock, nodes that come and go, jobs that run, fail, hang
 * and ignore signals, commands and messages that come late, out of order, or never. A seed
 * reproduces a run.
 *
 * It does what engine.h requires of engines, and checks that the scheduler runs no job twice and
 * gives no node more replicas than slots. A node that has lost slots refuses what does not fit.
 */
#ifndef TEST_ENGINE_SIM_H
#define TEST_ENGINE_SIM_H

#include "base/rng.h"
#include "sched/core/engine.h"

#define ESIM_NODES 64u
#define ESIM_RUNS  1024u
#define ESIM_ITEMS 4096u
#define ESIM_SPOTS 32u

/* Probabilities of faults, in thousandths unless noted. */
struct esim_faults {
	uint32_t refused;      /* a start or a rescale is refused */
	uint32_t lost;         /* a command or a message is lost */
	uint32_t slow_ms;      /* longest delay of commands and messages, in ms */
	uint32_t ignores_stop; /* a job ignores orders to stop */
	uint32_t fails;        /* a run ends badly, at a random time */
	uint32_t hangs; /* a run does not end at its end, until it is killed or an hour is over */
	uint32_t dry;   /* a pool has no nodes */
	bool in_order;  /* messages stay in order */
};

enum esim_run_state { ESIM_NONE, ESIM_STARTING, ESIM_RUNNING, ESIM_ENDED };

/* A job, as the engine sees it. */
struct esim_run {
	enum esim_run_state state;
	uint64_t job;
	uint64_t generation;
	uint64_t stopped; /* no generation up to this one starts any more */
	uint64_t refused; /* generation that was refused; 0: none */
	uint32_t spots_n;
	struct {
		uint32_t node;
		uint32_t replicas;
	} spots[ESIM_SPOTS];
	double work_s;          /* work left, in replicas times seconds */
	int64_t worked_ns;      /* time up to which work_s is counted */
	bool ignores_stop;      /* ignores orders to stop */
	bool hangs;             /* hangs at its end */
	bool stop_requested;    /* a stop was requested */
	int exit_code;          /* exit code; decided at its start, or set when it is stopped */
	enum core_end_cause by; /* if ended: what ended it */
	int64_t ended_ns;
	int64_t last_action_ns; /* time of the last command for it, or of its last action */
	uint64_t stamp;         /* order of the item that ends it */
};

struct esim_node {
	bool known; /* the engine has the node; false: the entry is free */
	bool up;
	bool going;
	int64_t last_event_ns; /* time at which the newest message about it arrives */
	char name[CORE_NAME_MAX];
	char pool[CORE_NAME_MAX];
	uint32_t slots;
	bool spot;
	bool shrunk; /* has had more slots; may still have more replicas than slots */
};

enum esim_item_kind { ESIM_FREE, ESIM_EVENT, ESIM_COMMAND, ESIM_STEP, ESIM_END, ESIM_DIES };

/* Something that will happen. */
struct esim_item {
	enum esim_item_kind kind;
	int64_t at_ns;
	uint64_t order;
	struct core_event event; /* pointers in it lead to the fields below */
	struct core_offer offer;
	char name[CORE_NAME_MAX];
	enum core_update_kind command;
	uint64_t job;
	uint64_t generation;
	int64_t grace_ns;
	uint32_t count;
	uint64_t stamp;
	uint32_t node;
	struct esim_run place; /* for a start or a rescale: where to run */
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
	uint32_t items_n; /* items in use, free ones among them included */
	struct core_run listed[ESIM_RUNS];
	double work_max_s; /* most work of a job, in replicas times seconds */
	uint64_t starts;   /* starts that had an effect */
	uint64_t late;     /* starts that came after their stop */
	uint64_t kills;    /* kills of jobs that ignored orders to stop */
	uint32_t lines_n;  /* number of lines for people */
	char last[256];    /* the last such line */
};

extern const struct sched_engine engine_sim;

void esim_open(struct engine_sim *sim, uint64_t seed);
/* Adds a node, which is announced in a moment, and returns its name. */
const char *esim_node_comes(struct engine_sim *sim, uint32_t slots, const char *pool, bool spot);
void esim_node_dies(struct engine_sim *sim, uint32_t node);
void esim_node_goes(struct engine_sim *sim, uint32_t node, int64_t in_ns);
void esim_node_returns(struct engine_sim *sim, uint32_t node);
/* Gives a node another number of slots, and reports it. What runs there goes on. */
void esim_node_resize(struct engine_sim *sim, uint32_t node, uint32_t slots);
/* Returns the next event for the core, at most at until_ns; NULL: there is none until then. Valid
 * until the next call. */
const struct core_event *esim_next(struct engine_sim *sim, int64_t until_ns);
/* Returns the run of a job; NULL: none. */
const struct esim_run *esim_run_of(const struct engine_sim *sim, uint64_t job);

#endif
