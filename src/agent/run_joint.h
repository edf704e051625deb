/*
 * What the end of a rank means in a job of several `pawl run`, each with ranks of its own, which
 * share a door (run_door.h): whether others go on. Those elsewhere cannot be seen; but where some
 * do, they write the door anew, without who is gone. So an end is held back until they have, and if
 * they have not after a while, nobody goes on.
 *
 * On the loop's thread.
 */
#ifndef AGENT_RUN_JOINT_H
#define AGENT_RUN_JOINT_H

#include "agent/run_group.h"
#include "agent/run_policy.h"
#include "base/loop.h"
#include "base/run_door.h"

#define RUN_JOINT_WAIT_NS 15000000000LL
#define RUN_JOINT_LOOK_NS 250000000LL /* between two looks at the door */

enum run_verdict {
	RUN_UNKNOWN, /* the door is still what it was, or cannot be read */
	RUN_GO_ON,   /* others do, here or elsewhere, or have yet to begin */
	RUN_LAST,    /* the job comes to its end: those of ours that live may, nobody is added */
	RUN_SHUT,    /* nobody has let it in, and none of ours trains */
	RUN_ALONE,   /* nobody does */
	RUN_SOLE,    /* nobody does, and there are only those of the first launcher */
};

/* The ranks of this launcher. */
struct run_joint_ranks {
	uint32_t first; /* the lowest of their RUN_WORKERS_MAX numbers */
	uint64_t alive; /* a bit for each of those: it lives */
	bool joins;     /* they all join others, who may not have begun */
	bool met;       /* the door has named ranks of other launchers */
};

/* What is to be thought of the end of a rank; of end: number, status. Pure. */
enum run_verdict run_joint_judge(const struct run_joint_ranks *ours, const struct run_door *door,
	const struct run_end *end);

struct run_joint_options {
	const struct run_plan *plan;     /* all of these outlive it */
	const struct run_policy *policy; /* it waits only while that works */
	struct run_group *group;         /* of the ranks */
	struct loop *loop;               /* of the calling thread */
	/* Each end, once it is known what it means; stops: as in struct run_event. One in whose
	 * time the door was not written anew has lasted 0: nobody has let it in. From the loop, or
	 * from run_joint_exited. */
	void (*decided)(void *user, const struct run_end *end, enum run_verdict verdict,
		bool stops);
	void *user; /* passed to it */
};

/* An end that waits. */
struct run_joint_held {
	struct run_end end;
	int64_t ended_ns; /* when it came; monotonic */
};

/* Zeroed before run_joint_init. */
struct run_joint {
	struct run_joint_options options; /* as given */
	struct loop_timer timer;          /* of the next look; active: something waits */
	int64_t written_ns;               /* of the door, at the last look */
	int64_t since_ns;                 /* when a look first found it so; monotonic */
	bool met;                         /* as in struct run_joint_ranks */
	uint32_t n;                       /* ends that wait, oldest first */
	struct run_joint_held held[RUN_WORKERS_MAX];
};

void run_joint_init(struct run_joint *joint, const struct run_joint_options *options);
void run_joint_deinit(struct run_joint *joint);
/* A rank has ended. */
void run_joint_exited(struct run_joint *joint, const struct run_end *end);

#endif
