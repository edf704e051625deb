/*
 * What the end of a rank means in a job of several `pawl run`, each with ranks of its own, which
 * share a door (run_door.h): whether others go on. Where some do, they write the door anew, without
 * who is gone, in their next collective: that may be a long step away. So an end is held back until
 * they have, as long as another launcher shows that a rank lives which the door names; and if none
 * has shown that for a while, nobody goes on.
 *
 * What others show is in files that change while they live (run_presence.h), as this one's does.
 * It is compared with what was read before; no clock of theirs counts.
 *
 * On the loop's thread.
 */
#ifndef AGENT_RUN_JOINT_H
#define AGENT_RUN_JOINT_H

#include "agent/run_group.h"
#include "agent/run_policy.h"
#include "agent/run_presence.h"
#include "base/loop.h"
#include "base/run_door.h"

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
	bool quits;     /* they are to leave the others: none is to be replaced */
};

/* What was heard of those elsewhere, since the end of a rank of ours. */
struct run_joint_heard {
	bool lives;        /* one that the door names has shown that it lives */
	int64_t silent_ns; /* how long none has, or none since the end, while it was looked */
};

/* What is to be thought of the end of a rank; of end: number, status. Pure. */
enum run_verdict run_joint_judge(const struct run_joint_ranks *ours, const struct run_door *door,
	const struct run_end *end, const struct run_joint_heard *heard);

/* A bit for each number that ranks of a launcher may have: the door names it. Pure. */
uint64_t run_joint_listed(const struct run_door *door, uint32_t launcher);
/* Whether another launcher shows anew that one of these ranks of its lives. beat: of the last look
 * at it, 0: none was; it is moved on. Pure. */
bool run_joint_hear(uint64_t *beat, const struct run_door_alive *alive, uint64_t listed);
/* At each look; passed_ns: since the one before, or the end. Who stood still itself has not
 * listened: of a longer time TIME_JOINT_HEAR counts. lives: one was heard of. Pure, but for
 * the table of times. */
void run_joint_pass(struct run_joint_heard *heard, int64_t passed_ns, bool lives);

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
	int64_t ended_ns;             /* when it came; monotonic */
	struct run_joint_heard heard; /* since then */
};

/* Zeroed before run_joint_init. */
struct run_joint {
	struct run_joint_options options; /* as given */
	struct run_presence *presence;    /* of our ranks; NULL: none is shown */
	struct loop_timer beat_timer;     /* they are to be shown again */
	struct loop_timer timer;          /* of the next look; active: something waits */
	int64_t written_ns;               /* of the door, at the last look */
	int64_t since_ns;                 /* when a look first found it so; monotonic */
	bool met;                         /* as in struct run_joint_ranks */
	int64_t looked_ns;   /* at the last look, or when one began to wait; monotonic */
	int64_t listened_ns; /* at the last one at what others show; monotonic */
	uint64_t beats[RUN_LAUNCHERS_MAX]; /* of run_joint_hear, since something waits */
	uint32_t n;                        /* ends that wait, oldest first */
	struct run_joint_held held[RUN_WORKERS_MAX];
};

void run_joint_init(struct run_joint *joint, const struct run_joint_options *options);
void run_joint_deinit(struct run_joint *joint);
/* Whether a rank has ended as all of them do when one was told that the job is to stop: they have
 * said so in the door. A script may have a use of its own for the code. */
bool run_joint_stops(const struct run_joint *joint, const struct run_end *end);
/* A rank has ended; stops: of run_joint_stops. */
void run_joint_exited(struct run_joint *joint, const struct run_end *end, bool stops);

#endif
