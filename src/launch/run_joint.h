/*
 * Judges the end of a rank in a job of several `pawl run` (launchers) that share a membership file
 * (membership.h), each with ranks of its own: do other ranks go on? Ranks that go on rewrite the
 * file in their next collective, without the ranks that have ended. That may be a long step away.
 * So an end stays pending until they have, as long as another launcher shows that a rank in the
 * membership lives. If no launcher has shown that for a while, nobody goes on.
 *
 * Each launcher, this one included, shows its live ranks in a file that changes while they live
 * (run_presence.h). A file is compared with its earlier content; no clock of another host counts.
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

/* The ranks of this launcher. */
struct run_joint_ranks {
	uint32_t first;   /* lowest of the launcher's RUN_WORKERS_MAX numbers */
	uint64_t alive;   /* a bit for each of the numbers: the rank lives */
	bool joins;       /* all join others, which may not have started yet */
	bool seen_others; /* the membership has had ranks of other launchers */
	bool quits;       /* all are to leave the others: none is replaced */
};

/* Heartbeats of other launchers' ranks since the end of a rank of ours. */
struct run_joint_liveness {
	bool seen_alive;   /* a rank in the membership has shown that it lives */
	int64_t silent_ns; /* time without such a heartbeat, as far as we were checking */
};

/* Judges the end of a rank; of end, only number and exit.status count. Pure. */
enum run_verdict run_joint_judge(const struct run_joint_ranks *ours,
	const struct membership *membership, const struct run_end *end,
	const struct run_joint_liveness *liveness);

/* Returns a bit for each number of a launcher's ranks: the membership has it. Pure. */
uint64_t run_joint_member_mask(const struct membership *membership, uint32_t launcher);
/* Whether another launcher has sent a new heartbeat while one of its listed ranks lives.
 * *last_heartbeat is its heartbeat at the last call (0: none yet), and is updated. Pure. */
bool run_joint_check_heartbeat(uint64_t *last_heartbeat, const struct membership_alive *alive,
	uint64_t listed);
/* Counts the time since the last poll, passed_ns, or since the end. At most TIME_JOINT_PEERS of it
 * counts: a launcher that stood still has not checked for longer. lives: a rank has shown that it
 * lives. Pure, but for the table of times. */
void run_joint_advance(struct run_joint_liveness *liveness, int64_t passed_ns, bool lives);

struct run_joint_options {
	const struct run_plan *plan;     /* all pointers here outlive the run_joint */
	const struct run_policy *policy; /* ends are pending only while it is in RUN_WORKING */
	struct run_group *group;         /* group of our ranks */
	struct loop *loop;               /* loop of the calling thread */
	/* Called for each end, once exit.verdict is known: from the loop, or from run_joint_exited.
	 * exit.lasted_ns is 0 if the membership file was not rewritten while the rank lived: nobody
	 * has admitted the rank. */
	void (*decided)(void *user, const struct run_end *end);
	void *user; /* passed to decided */
};

/* An end that has not been judged yet. */
struct run_joint_pending {
	struct run_end end;
	int64_t ended_ns;                   /* time of the end, monotonic */
	struct run_joint_liveness liveness; /* heartbeats since the end */
};

/* Zeroed before run_joint_init. */
struct run_joint {
	struct run_joint_options options;  /* as given */
	struct run_presence *presence;     /* shows our live ranks; NULL: nothing is shown */
	struct loop_timer heartbeat_timer; /* next time to show our live ranks */
	struct loop_timer timer;           /* next poll; active while an end is pending */
	int64_t written_ns;                /* the membership's written_ns at the last poll */
	int64_t since_ns;                  /* when a poll first found that written_ns, monotonic */
	bool seen_others;                  /* as in struct run_joint_ranks */
	int64_t polled_ns;          /* last poll, or time of the first pending end; monotonic */
	int64_t heartbeats_read_ns; /* last check of the heartbeats of others, monotonic */
	/* Heartbeats of others when our ranks began to leave. */
	uint64_t heartbeats_then[RUN_LAUNCHERS_MAX];
	/* For run_joint_check_heartbeat, while an end is pending. */
	uint64_t last_heartbeats[RUN_LAUNCHERS_MAX];
	uint32_t pending_n; /* pending ends, oldest first */
	struct run_joint_pending pending[RUN_WORKERS_MAX];
};

void run_joint_init(struct run_joint *joint, const struct run_joint_options *options);
void run_joint_deinit(struct run_joint *joint);
/* Whether a rank has ended because the job is to stop. The membership file decides that, because a
 * script may use the exit code for something else. */
bool run_joint_is_stop(const struct run_joint *joint, const struct run_end *end);
/* Shows the other launchers at once that our ranks leave. */
void run_joint_leave(struct run_joint *joint);
/* Whether a rank that trains has a launcher that has shown it as alive since run_joint_leave, and
 * does not leave itself. */
bool run_joint_others_stay(const struct run_joint *joint);
/* Reports that a rank has ended; stops: as run_joint_is_stop returned it. */
void run_joint_exited(struct run_joint *joint, const struct run_end *end, bool stops);

#endif
