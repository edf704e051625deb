/*
 * Judges what the end of a rank means in a job of several `pawl run`, each with ranks of its own,
 * which share a door (membership.h): whether other ranks go on. Where some do, they write the door
 * anew, without the ranks that are gone, in their next collective: that may be a long step away. So
 * an end is held back until they have, as long as another launcher shows that a rank lives which
 * the door names; and if none has shown that for a while, nobody goes on.
 *
 * Each launcher shows its live ranks in a file that changes while they live (run_presence.h), and
 * so does this one. A file is compared with what was read before; no clock of another host counts.
 *
 * All functions are for the loop's thread.
 */
#ifndef LAUNCH_RUN_JOINT_H
#define LAUNCH_RUN_JOINT_H

#include "io/loop.h"
#include "launch/membership/membership.h"
#include "launch/nodes/run_policy.h"
#include "launch/run_group.h"
#include "launch/run_presence.h"

enum run_verdict {
	RUN_VERDICT_UNKNOWN,   /* not known yet: the door is unchanged, or cannot be read */
	RUN_VERDICT_GO_ON,     /* others go on, here or elsewhere, or have yet to begin */
	RUN_VERDICT_FINISHING, /* the job comes to its end: our live ranks may, too; none is added */
	RUN_VERDICT_REJECTED,  /* the rank was not let in, and none of ours trains */
	RUN_VERDICT_NONE_LEFT,     /* nobody goes on */
	RUN_VERDICT_SOLE_LAUNCHER, /* nobody goes on, and all ranks were the first launcher's */
};

/* The ranks of this launcher. */
struct run_joint_ranks {
	uint32_t first;   /* lowest of the launcher's RUN_WORKERS_MAX numbers */
	uint64_t alive;   /* a bit for each of the numbers: the rank lives */
	bool joins;       /* all join others, which may not have begun */
	bool seen_others; /* the door has named ranks of other launchers */
	bool quits;       /* all are to leave the others: none is replaced */
};

/* Signs of life of other launchers' ranks since the end of a rank of ours. */
struct run_joint_liveness {
	bool seen_alive;   /* a rank that the door names has shown that it lives */
	int64_t silent_ns; /* time without such a sign, as far as we were looking */
};

/* Judges the end of a rank; of end, only number and status count. Pure. */
enum run_verdict run_joint_judge(const struct run_joint_ranks *ours,
	const struct membership *membership, const struct run_end *end,
	const struct run_joint_liveness *liveness);

/* Returns a bit for each number of a launcher's ranks: the door names it. Pure. */
uint64_t run_joint_member_mask(const struct membership *membership, uint32_t launcher);
/* Whether another launcher shows anew that one of its listed ranks lives. *beat is what it showed
 * at the last look (0: nothing yet) and is updated. Pure. */
bool run_joint_check_heartbeat(uint64_t *last_heartbeat, const struct membership_alive *alive,
	uint64_t listed);
/* Counts the time up to a look. passed_ns is the time since the look before, or since the end. A
 * launcher that stood still itself has not listened: of a longer time only TIME_JOINT_PEERS counts.
 * lives: a rank was heard of. Pure, but for the table of times. */
void run_joint_advance(struct run_joint_liveness *liveness, int64_t passed_ns, bool lives);

struct run_joint_options {
	const struct run_plan *plan;     /* all pointers here outlive the run_joint */
	const struct run_policy *policy; /* ends wait only while it is in RUN_WORKING */
	struct run_group *group;         /* group of our ranks */
	struct loop *loop;               /* loop of the calling thread */
	/* Called for each end, once it is known what the end means; stops: as in struct run_event.
	 * If the door was not written anew while the rank lived, lasted_ns is 0: nobody has let it
	 * in. Called from the loop, or from run_joint_exited. */
	void (*decided)(void *user, const struct run_end *end, enum run_verdict verdict,
		bool stops);
	void *user; /* passed to decided */
};

/* An end that waits to be judged. */
struct run_joint_pending {
	struct run_end end;
	int64_t ended_ns;                   /* time of the end, monotonic */
	struct run_joint_liveness liveness; /* what was heard since the end */
};

/* Zeroed before run_joint_init. */
struct run_joint {
	struct run_joint_options options;  /* as given */
	struct run_presence *presence;     /* shows our live ranks; NULL: nothing is shown */
	struct loop_timer heartbeat_timer; /* next time to show our live ranks */
	struct loop_timer timer;           /* next look; active while an end waits */
	int64_t written_ns;                /* the door's written_ns at the last look */
	int64_t since_ns;                  /* when a look first found that written_ns, monotonic */
	bool seen_others;                  /* as in struct run_joint_ranks */
	int64_t looked_ns;          /* last look, or when the first end began to wait; monotonic */
	int64_t heartbeats_read_ns; /* last look at what others show, monotonic */
	uint64_t last_heartbeats
		[RUN_LAUNCHERS_MAX]; /* for run_joint_check_heartbeat, since an end waits */
	uint32_t pending_n;          /* ends that wait, oldest first */
	struct run_joint_pending pending[RUN_WORKERS_MAX];
};

void run_joint_init(struct run_joint *joint, const struct run_joint_options *options);
void run_joint_deinit(struct run_joint *joint);
/* Whether a rank has ended as all ranks do when one was told that the job is to stop. The door says
 * so, as a script may have a use of its own for the exit code. */
bool run_joint_is_stop(const struct run_joint *joint, const struct run_end *end);
/* Reports that a rank has ended; stops: as run_joint_is_stop returned it. */
void run_joint_exited(struct run_joint *joint, const struct run_end *end, bool stops);

#endif
