/* All waiting times in one table: timeouts, times between two looks or tries, and times before
 * something is done again. Other times are not here: bounds of options, assumptions of models, how
 * long something is kept.
 *
 * A test that is about one of these times makes it short, and all of them can be stretched
 * together, by the environment: PAWL_TEST_TIMES="due_again=0.05,session_gone=0.2,scale=4", in
 * seconds; scale multiplies those that are not named. The variable is read once, when the first
 * time is asked for. An error in it ends the process with a message: a test that does not wait as
 * it says proves nothing. Pure files get times as arguments, or with their options. */
#ifndef BASE_TIMES_H
#define BASE_TIMES_H

#include "base/clock.h"

#include <stdint.h>
#include <sys/time.h>

struct pawl_err;

#define TIMES_ENV "PAWL_TEST_TIMES"

/* Name, name in the environment, nanoseconds, whether users of Pawl can notice it (then
 * tools/docs.py puts it into docs/limits.md), and its purpose. */
#define TIMES(X)                                                                                   \
	X(HEARTBEAT, "heartbeat", 500 * NS_PER_MS, SEEN,                                           \
		"Ranks of a group, and nodes of a job, tell each other so often that they live "   \
		"(PAWL_HEARTBEAT).")                                                               \
	X(SESSION_OPEN, "session_open", 60 * NS_PER_S, SEEN,                                       \
		"A root must be open by then, else opening a checkpointer fails.")                 \
	X(SESSION_BEGIN, "session_begin", 32 * NS_PER_S, SEEN,                                     \
		"The agent must answer a question of a rank by then: longer than a save waits "    \
		"for ranks.")                                                                      \
	X(SESSION_SPAWN, "session_spawn", 10 * NS_PER_S, SEEN,                                     \
		"An agent that a rank has started must listen by then.")                           \
	X(SESSION_CONNECT, "session_connect", 10 * NS_PER_MS, INNER,                               \
		"Between two attempts to connect to an agent that was started.")                   \
	X(SESSION_GREET, "session_greet", 100 * NS_PER_MS, INNER,                                  \
		"Before an agent that could not take a rank is asked again.")                      \
	X(SESSION_PAUSE, "session_pause", 10 * NS_PER_MS, INNER,                                   \
		"Before an agent is asked again whether all is durable.")                          \
	X(SESSION_AGREE, "session_agree", 5 * NS_PER_S, SEEN,                                      \
		"ckpt.due() and ckpt.stopping wait so long for ranks to agree where it is yes.")   \
	X(SESSION_GONE, "session_gone", 5 * NS_PER_S, SEEN,                                        \
		"Before another agent is sought in place of one that is gone.")                    \
	X(SESSION_AGAIN, "session_again", 30 * NS_PER_S, SEEN,                                     \
		"Before an agent that was sought in vain is sought again, at first; then twice "   \
		"as long.")                                                                        \
	X(SESSION_AGAIN_MAX, "session_again_max", 1800 * NS_PER_S, SEEN,                           \
		"The longest wait before an agent that was sought in vain is sought again.")       \
	X(SESSION_BYE, "session_bye", 1 * NS_PER_S, SEEN,                                          \
		"A checkpointer that is closed waits so long for the agent's goodbye.")            \
	X(SESSION_FIND, "session_find", 10 * NS_PER_MS, INNER,                                     \
		"Before it is looked again for a tag that is being added to.")                     \
	X(LINK_SEND, "link_send", 5 * NS_PER_S, SEEN,                                              \
		"A process that does not read what the agent tells it is given up after that.")    \
	X(LINK_VAIN, "link_vain", 2 * NS_PER_S, SEEN,                                              \
		"A rank that asks its agent something waits so long for one that is stopped "      \
		"(SIGSTOP, a debugger).")                                                          \
	X(LISTEN_AGAIN, "listen_again", 1 * NS_PER_S, INNER,                                       \
		"After that it is listened again when descriptors had run out.")                   \
	X(AGENT_IDLE, "agent_idle", 60 * NS_PER_S, SEEN,                                           \
		"An agent without ranks ends after that (`pawl agent --idle`).")                   \
	X(AGENT_VAIN, "agent_vain", 600 * NS_PER_S, SEEN,                                          \
		"An agent whose ranks have died, and whose storage fails, ends after that.")       \
	X(AGENT_STOP, "agent_stop", 25 * NS_PER_S, SEEN,                                           \
		"An agent that was told to end by a signal has ended by then.")                    \
	X(ROOT_ORPHAN, "root_orphan", 2 * NS_PER_S, SEEN,                                          \
		"After the last rank has vanished: then what is committed is made durable.")       \
	X(ROOT_ASK, "root_ask", 200 * NS_PER_MS, INNER,                                            \
		"Between two looks whether a save that waits may begin.")                          \
	X(ROOT_VAIN, "root_vain", 2 * NS_PER_S, SEEN,                                              \
		"A save waits so long for a rank of this host that is stopped, or whose process "  \
		"has ended.")                                                                      \
	X(ROOT_SLOW, "root_slow", 60 * NS_PER_S, SEEN,                                             \
		"A checkpoint that is being written for so long is news: storage hangs, or is "    \
		"slow.")                                                                           \
	X(ROOT_GIVE_UP, "root_give_up", 10 * NS_PER_S, SEEN,                                       \
		"Behind ranks that have left although their last save is not durable, an agent "   \
		"tries for so long, then lets go of the root.")                                    \
	X(NEWS_AGAIN, "news_again", 300 * NS_PER_S, SEEN,                                          \
		"What goes on going wrong in a root is said again after that.")                    \
	X(ROOT_STOP, "root_request_stop", 2 * NS_PER_S, SEEN,                                      \
		"A storage that hangs holds up an agent that leaves so long.")                     \
	X(LEDGER_WAIT, "ledger_wait", 30 * NS_PER_S, SEEN,                                         \
		"A save waits so long for ranks or storage, then it is skipped and says so.")      \
	X(LEDGER_RETRY, "ledger_retry", 1 * NS_PER_S, INNER,                                       \
		"After a save that could not be made durable, at least.")                          \
	X(ADVICE_SAVE_MIN, "advice_save_min", 1 * NS_PER_S, SEEN,                                  \
		"Two saves that `ckpt.due()` advises are no closer than that.")                    \
	X(ADVICE_SAVE_MAX, "advice_save_max", 1800 * NS_PER_S, SEEN,                               \
		"Two saves that `ckpt.due()` advises are no further apart than that.")             \
	X(ADVICE_PERSIST_MIN, "advice_persist_min", 10 * NS_PER_S, SEEN,                           \
		"With `persist_every=auto`, two saves that are made durable are no closer than "   \
		"that.")                                                                           \
	X(ADVICE_PERSIST_MAX, "advice_persist_max", 3600 * NS_PER_S, SEEN,                         \
		"With `persist_every=auto`, two saves that are made durable are no further apart " \
		"than that.")                                                                      \
	X(DUE_AGAIN, "due_again", 1 * NS_PER_S, INNER,                                             \
		"Before it is decided again whether a save is due, if some rank was not ready.")   \
	X(PERSIST_ROWS, "persist_rows", 1 * NS_PER_S, INNER,                                       \
		"Rows of the history wait so long for others before they are written alone.")      \
	X(ROOTLOCK_WAIT, "rootlock_wait", 2 * NS_PER_S, SEEN,                                      \
		"A job waits so long for a root that another one is just leaving.")                \
	X(ROOTLOCK_LOOK, "rootlock_look", 20 * NS_PER_MS, INNER,                                   \
		"Between two tries to lock a root.")                                               \
	X(HOSTS_LOOK, "hosts_look", 1 * NS_PER_MS, INNER,                                          \
		"Between two looks at what other hosts have written, at first.")                   \
	X(HOSTS_LOOK_MAX, "hosts_look_max", 100 * NS_PER_MS, INNER,                                \
		"The longest time between two such looks.")                                        \
	X(HOSTS_ASTRAY, "hosts_astray", 3 * NS_PER_S, INNER,                                       \
		"A rank's host that belongs to another run is told so after that.")                \
	X(HOSTS_SHARED, "hosts_shared", 15 * NS_PER_S, SEEN,                                       \
		"What one host has written must be seen by the others by then, else they share "   \
		"no directory.")                                                                   \
	X(HOSTS_WAIT, "hosts_wait", 600 * NS_PER_S, SEEN,                                          \
		"A save or a restore waits so long for other hosts (PAWL_HOSTS_TIMEOUT).")         \
	X(NET_HELLO, "net_hello", 5 * NS_PER_S, SEEN,                                              \
		"Who connects to a coordinator of `pawl run` must have proved the token by then.") \
	X(NET_GOODBYE, "net_goodbye", 2 * NS_PER_S, INNER,                                         \
		"A node waits so long for the other end to close, too.")                           \
	X(NET_COMPLAIN, "net_complain", 1 * NS_PER_S, INNER, "Between two lines about strangers.") \
	X(SERVE_LOOK, "serve_look", 50 * NS_PER_MS, INNER,                                         \
		"Between two looks at the clock by `pawl serve` of a job.")                        \
	X(NODES_ANSWER, "nodes_answer", 5 * NS_PER_S, SEEN,                                        \
		"A coordinator that does not answer a node that wants to join is given up after "  \
		"that.")                                                                           \
	X(NODES_RETRY, "nodes_retry", 500 * NS_PER_MS, INNER,                                      \
		"Between two tries of all places where a coordinator may be.")                     \
	X(NODES_PROBE, "nodes_probe", 1 * NS_PER_S, INNER,                                         \
		"Between two looks whether an earlier place has a coordinator, too.")              \
	X(NODES_SAY, "nodes_log", 10 * NS_PER_S, SEEN,                                             \
		"Between two lines that say what a node waits for.")                               \
	X(NODES_CLOSE, "nodes_close", 2 * NS_PER_S, SEEN,                                          \
		"A coordinator waits so long for nodes to hear of the end.")                       \
	X(NODES_TOGETHER, "nodes_together", 1 * NS_PER_S, SEEN,                                    \
		"Signals that come within that are one word; later, the second ends all at once.") \
	X(RUN_FAST, "run_fast", 5 * NS_PER_S, SEEN,                                                \
		"A worker that fails sooner after its start, or a node that is lost so, fails "    \
		"fast: after some in a row restarts wait.")                                        \
	X(RUN_BACKOFF, "run_backoff", 1 * NS_PER_S, SEEN,                                          \
		"The first wait before a restart, after fast failures; then twice as long.")       \
	X(RUN_BACKOFF_MAX, "run_backoff_max", 4 * NS_PER_S, SEEN,                                  \
		"The longest wait before a restart.")                                              \
	X(RUN_RESERVE, "run_reserve", 3 * NS_PER_S, SEEN,                                          \
		"Of the grace, so much is kept for making durable, but half of it at most.")       \
	X(RUN_DRAIN, "run_drain", 1800 * NS_PER_S, SEEN,                                           \
		"Making durable takes no longer after a normal end of a job.")                     \
	X(RUN_SETTLE, "run_settle", 10 * NS_PER_S, SEEN,                                           \
		"`pawl run` starts a template without the imports of any rank, and takes ranks "   \
		"without a door for a script's that never opens one, after that.")                 \
	X(RUN_LOOK, "run_look", 250 * NS_PER_MS, INNER,                                            \
		"Between two looks at the door of a job, and at what lies beside it.")             \
	X(RUN_TEMPLATE_ASK, "run_template_ask", 2 * NS_PER_S, SEEN,                                \
		"The template answers within that, or is given up.")                               \
	X(RUN_TEMPLATE_COME, "run_template_come", 30 * NS_PER_S, SEEN,                             \
		"A template that still imports answers within that, or is given up.")              \
	X(RUN_ABORT, "run_abort", 100 * NS_PER_MS, INNER,                                          \
		"After an abort, for what was printed last.")                                      \
	X(RUN_FLUSH, "run_flush", 200 * NS_PER_MS, SEEN,                                           \
		"A line that is not finished is shown after that.")                                \
	X(RUN_OUTPUT, "run_output", 5 * NS_PER_S, SEEN,                                            \
		"`pawl run` waits so long for a terminal that takes nothing.")                     \
	X(RUN_GRACE, "run_grace", 25 * NS_PER_S, SEEN,                                             \
		"From a signal to the exit of a job (`pawl run --grace`).")                        \
	X(RUN_NODES, "run_nodes", 600 * NS_PER_S, SEEN,                                            \
		"`pawl run` waits so long for the other nodes (`--node-timeout`).")                \
	X(JOINT_WAIT, "joint_wait", 15 * NS_PER_S, SEEN,                                           \
		"A launcher without ranks waits so long for a sign of the others: several "        \
		"run_beat.")                                                                       \
	X(JOINT_LOOK, "joint_look", 250 * NS_PER_MS, INNER,                                        \
		"Between two looks at the door by a launcher that waits.")                         \
	X(JOINT_HEAR, "joint_hear", 1 * NS_PER_S, INNER,                                           \
		"Between two looks at what other launchers show.")                                 \
	X(RUN_BEAT, "run_beat", 3 * NS_PER_S, INNER,                                               \
		"A launcher shows so often that its ranks live.")                                  \
	X(RUN_PRESENCE, "run_presence", 2 * NS_PER_S, SEEN,                                        \
		"A file system that hangs holds up the end of a launcher so long.")                \
	X(GROUP_WAIT, "group_wait", 20 * NS_PER_MS, INNER,                                         \
		"Who drives a group waits so long for the port before it looks around.")           \
	X(GROUP_LATE, "group_late", 1 * NS_PER_MS, INNER,                                          \
		"What nobody waits for is driven by the group's thread after that.")               \
	X(GROUP_IDLE, "group_idle", 100 * NS_PER_MS, INNER,                                        \
		"Without operations for so long, a group's thread sleeps until it is woken.")      \
	X(GROUP_GOODBYE, "group_goodbye", 100 * NS_PER_MS, SEEN,                                   \
		"Who leaves a group waits so long for the others to hear of it.")                  \
	X(SHRINK_JOIN, "shrink_join", 10 * NS_PER_S, SEEN,                                         \
		"Ranks that are left have so long to join anew.")                                  \
	X(SHRINK_GONE, "shrink_gone", 2 * NS_PER_S, SEEN,                                          \
		"Beyond a silence, to hear who is gone when joining anew has failed.")             \
	X(DOOR_STEP, "door_step", 10 * NS_PER_S, SEEN,                                             \
		"A newcomer to a group has so long for each answer, and to join.")                 \
	X(DOOR_KNOCK, "door_knock", 5 * NS_PER_S, INNER,                                           \
		"Who connects to a door has so long to say what it wants.")                        \
	X(PROBE_CALL, "probe_call", 60 * NS_PER_S, SEEN,                                           \
		"A collective of `pawl net` may take so long.")                                    \
	X(PROBE_LOOK, "probe_look", 200 * NS_PER_MS, INNER,                                        \
		"Between two looks of `pawl net` whether it is to stop.")                          \
	X(SHM_LOOK, "shm_poll", NS_PER_MS / 10, INNER,                                             \
		"A port of shared memory looks so long for a message before it sleeps.")           \
	X(TCP_GOODBYE, "tcp_goodbye", 200 * NS_PER_MS, SEEN,                                       \
		"Leaving a group waits so long for peers to close their connections.")             \
	X(TCP_GUEST, "tcp_guest", 5 * NS_PER_S, INNER, "Who connects has so long to greet.")       \
	X(TCP_LOOK, "tcp_look", 100 * NS_PER_MS, INNER,                                            \
		"At most so long is waited at a time while ranks connect.")                        \
	X(TCP_PROBE, "tcp_probe", 2 * NS_PER_S, SEEN,                                              \
		"After that, and then so often, it is looked whether ranks that should come are "  \
		"still there.")                                                                    \
	X(TCP_REACH, "tcp_reach", 15 * NS_PER_S, SEEN,                                             \
		"A connection, which the kernels make, must be there by then.")                    \
	X(MIXED_NAP, "mixed_nap", NS_PER_MS / 20, INNER,                                           \
		"Two ports are waited for in turns of so long until there is a thread.")           \
	X(FABRIC_GOODBYE, "fabric_goodbye", 200 * NS_PER_MS, SEEN,                                 \
		"Leaving a group waits so long for peers to close (libfabric).")                   \
	X(FABRIC_SPIN, "fabric_spin", NS_PER_MS / 20, INNER,                                       \
		"A port of libfabric looks so long for a message before it sleeps.")               \
	X(FABRIC_NAP, "fabric_nap", NS_PER_MS / 20, INNER,                                         \
		"It sleeps so long at a time where there is no descriptor to wait for.")           \
	X(FABRIC_RETRY, "fabric_retry", 1 * NS_PER_MS, INNER,                                      \
		"After that it is tried again to post what could not be posted.")                  \
	X(FABRIC_STALLED, "fabric_stalled", 100 * NS_PER_MS, INNER,                                \
		"Where nothing could be posted for so long, it is tried again after so long.")     \
	X(FABRIC_GIVEN_UP, "fabric_given_up", 5 * NS_PER_S, SEEN,                                  \
		"Where nothing could be posted for so long, nobody looks for it any more.")        \
	X(FABRIC_LOOK, "fabric_look", 20 * NS_PER_MS, INNER,                                       \
		"At most so long is waited at a time while ranks join (libfabric).")               \
	X(ASKER_HELLO, "asker_hello", 5 * NS_PER_S, INNER,                                         \
		"Who connects to a server of collectives has so long to say what it wants.")       \
	X(SERVE_JOIN, "serve_join", 30 * NS_PER_S, SEEN,                                           \
		"All ranks of a group have so long to come to a server.")                          \
	X(SERVE_TURN, "serve_turn", 200 * NS_PER_MS, INNER,                                        \
		"A server of collectives looks so often whether it is to end.")                    \
	X(NET_ASK, "net_ask", 10 * NS_PER_S, SEEN,                                                 \
		"`pawl net` waits so long for a server's answer, and for all to join.")            \
	X(HUGE_PAUSE, "huge_pause", 50 * NS_PER_MS, INNER,                                         \
		"The longest pause between two steps of making huge pages.")                       \
	X(SCRATCH_TRY, "scratch_try", 500 * NS_PER_MS, INNER,                                      \
		"A scratch directory's speed is measured for so long.")                            \
	X(SCHED_BUSY, "sched_busy", 5 * NS_PER_S, SEEN,                                            \
		"Another process may hold the scheduler's database so long when it is opened.")    \
	X(SLURM_LOOK, "slurm_look", 200 * NS_PER_MS, INNER,                                        \
		"Between two looks at what pilots have written.")                                  \
	X(SLURM_LOOK_EACH, "slurm_look_each", 2 * NS_PER_MS, INNER,                                \
		"More than that for each pilot: a file server has others to serve.")               \
	X(SLURM_COMMAND, "slurm_command", 60 * NS_PER_S, SEEN,                                     \
		"A command of Slurm may take so long: then it is killed, and has failed.")         \
	X(SLURM_SIZES, "slurm_sizes", 300 * NS_PER_S, INNER,                                       \
		"Between two questions how large the nodes are.")                                  \
	X(SLURM_STOP, "slurm_stop", 300 * NS_PER_S, SEEN,                                          \
		"From the first node of a job that was stopped to the last.")                      \
	X(SLURM_SETTLE, "slurm_settle", 30 * NS_PER_S, INNER,                                      \
		"Ranks may need so long from their start to open their door.")                     \
	X(SLURM_RESCALE, "slurm_rescale", 120 * NS_PER_S, SEEN,                                    \
		"A change of a job's nodes may take so long.")                                     \
	X(SLURM_APPEAR, "slurm_appear", 120 * NS_PER_S, SEEN,                                      \
		"A pilot whose node runs must have its directory by then.")                        \
	X(SLURM_NOTICE, "slurm_notice", 60 * NS_PER_S, SEEN,                                       \
		"Slurm is asked to give so much notice before it ends a pilot.")                   \
	X(SLURM_KILL_WAIT, "slurm_kill_wait", 30 * NS_PER_S, SEEN,                                 \
		"Slurm's own KillWait, if it does not say.")                                       \
	X(SLURM_FENCE, "slurm_fence", 30 * NS_PER_S, SEEN,                                         \
		"A pilot that cannot reach the scheduler's directory ends its jobs after that "    \
		"(`pawl pilot --fence`).")                                                         \
	X(PILOT_LOOK, "pilot_look", 250 * NS_PER_MS, INNER,                                        \
		"Between two looks of a pilot at what it is told.")                                \
	X(SIZING_TRY, "sizing_try", 60 * NS_PER_S, SEEN,                                           \
		"A change of a part's size is tried again for so long.")                           \
	X(SIZING_AGAIN, "sizing_again", 500 * NS_PER_MS, INNER,                                    \
		"Between two tries to change a part's size.")                                      \
	X(PART_DOUBT, "part_doubt", 3 * NS_PER_S, INNER,                                           \
		"A bad end is held against a program only if its pilot is not told to end within " \
		"that.")                                                                           \
	X(KEEP_LAST, "keep_last", 10 * NS_PER_S, INNER,                                            \
		"A log waits so long for what its part's last processes print.")                   \
	X(KEEP_SWEEP, "keep_sweep", 10 * NS_PER_MS, INNER,                                         \
		"Between two looks for processes that do not die.")                                \
	X(SCALE_WAIT, "scale_wait", 60 * NS_PER_S, SEEN,                                           \
		"Ranks may take so long to come or to leave, for each try.")                       \
	X(SHEPHERD_WRITE, "shepherd_write", 1 * NS_PER_S, INNER,                                   \
		"Between two tries to write a job's end down.")                                    \
	X(RESIZE_TRY, "resize_try", 60 * NS_PER_S, SEEN,                                           \
		"A change of a job's replicas is tried again for so long.")                        \
	X(RESIZE_AGAIN, "resize_again", 500 * NS_PER_MS, INNER,                                    \
		"Between two tries to change a job's replicas.")                                   \
	X(DAEMON_LOCK, "daemon_lock", 2 * NS_PER_S, SEEN,                                          \
		"`pawl sched` waits so long for one that was killed, whose child has the lock as " \
		"well.")                                                                           \
	X(DAEMON_LOCK_LOOK, "daemon_lock_look", 20 * NS_PER_MS, INNER,                             \
		"Between two tries to lock the scheduler's directory.")                            \
	X(DAEMON_HINTS, "daemon_hints", 1 * NS_PER_S, SEEN,                                        \
		"Between two looks at files of hints.")                                            \
	X(TALK_ANSWER, "talk_answer", 30 * NS_PER_S, SEEN,                                         \
		"A command waits so long for the scheduler's answer.")                             \
	X(HTTP_POLL, "http_poll", 30 * NS_PER_S, SEEN,                                             \
		"Discovery waits so long for a job's ranks, unless it is asked otherwise.")        \
	X(HTTP_IDLE, "http_idle", 10 * NS_PER_S, SEEN,                                             \
		"A connection without a byte is closed after that.")                               \
	X(HTTP_REQUEST, "http_request", 60 * NS_PER_S, SEEN,                                       \
		"From the first byte of a request to the last of its answer.")                     \
	X(HTTP_SWEEP, "http_sweep", 5 * NS_PER_S, INNER,                                           \
		"Between two looks for requests that take too long.")                              \
	X(HISTORY_AGAIN, "history_again", 60 * NS_PER_S, INNER,                                    \
		"A history that could not be written is tried again after that.")                  \
	X(STRAYS_LOOK, "strays_look", 50 * NS_PER_MS, INNER,                                       \
		"Between two looks for processes that a job has left, at first.")                  \
	X(STRAYS_LOOK_MAX, "strays_look_max", 5 * NS_PER_S, INNER,                                 \
		"The longest time between two such looks.")                                        \
	X(SCHED_GRACE, "sched_grace", 30 * NS_PER_S, SEEN,                                         \
		"From a signal to a job's end (`pawl sched --grace`).")                            \
	X(SCHED_POLL, "sched_poll", 10 * NS_PER_S, SEEN,                                           \
		"The engine is asked so often how jobs are (`pawl sched --poll`).")                \
	X(SCHED_ROUND, "sched_round", 30 * NS_PER_S, SEEN,                                         \
		"Between two rounds of decisions (`pawl sched --round`).")                         \
	X(SCHED_START, "sched_start", 3600 * NS_PER_S, SEEN,                                       \
		"The setup of a job may take so long.")                                            \
	X(SCHED_AGAIN, "sched_again", 5 * NS_PER_S, SEEN,                                          \
		"Between two kills of what does not die.")                                         \
	X(SCHED_BACKOFF, "sched_backoff", 2 * NS_PER_S, SEEN,                                      \
		"Before a job that has failed is started again, at first; then twice as long.")    \
	X(SCHED_BACKOFF_MAX, "sched_backoff_max", 600 * NS_PER_S, SEEN,                            \
		"The longest wait before a job that has failed is started again.")                 \
	X(LOGS_LOOK, "logs_look", 100 * NS_PER_MS, INNER,                                          \
		"Between two looks at a log that is followed.")                                    \
	X(LOGS_ASK, "logs_ask", 500 * NS_PER_MS, INNER,                                            \
		"Between two questions whether a job is over whose log is followed.")              \
	X(SCALE_ANSWER, "scale_answer", 10 * NS_PER_S, SEEN,                                       \
		"`pawl scale` waits so long for `pawl run`.")                                      \
	X(SCALE_LOOK, "scale_look", 50 * NS_PER_MS, INNER,                                         \
		"Between two looks of `pawl scale` whether the job has its size.")                 \
	X(TOP_EVERY, "top_every", 2 * NS_PER_S, SEEN,                                              \
		"Between two pictures of `pawl top` (`-d`).")                                      \
	X(WATCH_EVERY, "watch_every", 500 * NS_PER_MS, SEEN,                                       \
		"Between two looks of `pawl ckpt watch` (`--interval`).")                          \
	X(WATCH_ASK, "watch_ask", 1 * NS_PER_S, SEEN,                                              \
		"`pawl ckpt watch` waits so long for the answer of a job's agent.")                \
	X(WATCH_PATIENCE, "watch_patience", 5 * NS_PER_S, INNER,                                   \
		"What may still change is not told by `pawl ckpt watch` for so long.")             \
	X(PROGRESS_FIRST, "progress_first", 500 * NS_PER_MS, INNER,                                \
		"What is over by then shows no progress.")                                         \
	X(PROGRESS_DRAW, "progress_draw", 125 * NS_PER_MS, INNER,                                  \
		"Between two drawings of progress.")                                               \
	X(PROGRESS_RATE, "progress_rate", 250 * NS_PER_MS, INNER,                                  \
		"Work must have gone on for so long before its rate is told.")                     \
	X(SIM_SAY, "sim_say", 2 * NS_PER_S, SEEN, "Between two lines of progress of `pawl sim`.")  \
	X(ELASTIC_DISCOVER, "elastic_discover", 600 * NS_PER_S, SEEN,                              \
		"A supervisor (ADAPTDL_SUPERVISOR_URL) must know by then where all "               \
		"ranks are.")                                                                      \
	X(ELASTIC_ASK, "elastic_ask", 60 * NS_PER_S, SEEN,                                         \
		"A supervisor must answer one question by then.")                                  \
	X(ELASTIC_ASK_AGAIN, "elastic_ask_again", 200 * NS_PER_MS, INNER,                          \
		"Before a supervisor that does not know yet is asked again.")                      \
	X(ELASTIC_KNOCK, "elastic_knock", 600 * NS_PER_S, SEEN,                                    \
		"A rank that joins a running job must be let in by then.")                         \
	X(ELASTIC_KNOCK_AGAIN, "elastic_knock_again", 100 * NS_PER_MS, INNER,                      \
		"Before a rank knocks again at the door of a running job.")                        \
	X(ELASTIC_GIVE_BACK, "elastic_give_back", 1 * NS_PER_S, INNER,                             \
		"A group that is left waits so long for operations that still hold "               \
		"memory.")                                                                         \
	X(ELASTIC_GIVE_BACK_LOOK, "elastic_give_back_look", 1 * NS_PER_MS, INNER,                  \
		"Between two looks whether they hold it still.")                                   \
	X(ELASTIC_DATA_LOOK, "elastic_data_look", 100 * NS_PER_MS, INNER,                          \
		"Between two looks for ranks that a loader misses.")                               \
	X(ELASTIC_FLUSH, "elastic_flush", 600 * NS_PER_S, SEEN,                                    \
		"An elastic job waits so long for a root that the agent of another host still "    \
		"has.")                                                                            \
	X(ELASTIC_COMMIT, "elastic_commit", 10 * NS_PER_S, SEEN,                                   \
		"An elastic job commits its state to memory so often "                             \
		"(`PAWL_ELASTIC_COMMIT`).")                                                        \
	X(ELASTIC_SAVE_AGAIN, "elastic_save_again", 200 * NS_PER_MS, INNER,                        \
		"Before a save is tried again at a root that another agent has.")                  \
	X(ELASTIC_HINTS, "elastic_hints", 10 * NS_PER_S, SEEN,                                     \
		"The scheduler must take a job's hints by then.")                                  \
	X(ELASTIC_RECORD, "elastic_record", 2 * NS_PER_S, INNER,                                   \
		"A job that ends waits so long for rows of its record to be "                      \
		"written.")                                                                        \
	X(CLOSE_DURABLE, "close_durable", 1800 * NS_PER_S, SEEN,                                   \
		"A checkpointer that is closed waits so long while its last save is written.")     \
	X(CLOSE_TROUBLE, "close_trouble", 60 * NS_PER_S, SEEN,                                     \
		"Of that, it waits so long for storage that fails.")                               \
	X(ENGINE_FIND, "engine_find", 300 * NS_PER_S, SEEN,                                        \
		"The agent must find a tag by then; it waits while files are added "               \
		"to it.")                                                                          \
	X(RESTORE_RANKS, "restore_ranks", 1800 * NS_PER_S, SEEN,                                   \
		"A restore waits so long for the other ranks.")                                    \
	X(RECIPE_LATE, "recipe_late", 30 * NS_PER_S, SEEN,                                         \
		"A recipe that waits for other ranks says so after that.")                         \
	X(TORCH_JOIN, "torch_join", 60 * NS_PER_S, SEEN,                                           \
		"The ranks of a process group must be connected by then, once all "                \
		"have come.")                                                                      \
	X(TORCH_LATE, "torch_late", 30 * NS_PER_S, SEEN,                                           \
		"A process group that waits for a rank names it after that.")                      \
	X(TORCH_LOOK, "torch_look", 200 * NS_PER_MS, INNER,                                        \
		"Between two looks for Ctrl-C while a group changes.")                             \
	X(STOP_TOGETHER, "stop_together", 5 * NS_PER_S, SEEN,                                      \
		"Signals to stop count as one within this time.")                                  \
	X(WARM_ANSWER, "warm_answer", 120 * NS_PER_S, INNER,                                       \
		"An interpreter that tests keep warm must have started a process by then.")

enum times_name {
#define X(name, text, ns, seen, what) TIME_##name,
	TIMES(X)
#undef X
		TIMES_N
};

/* Return the time, 50 µs to some months. Any thread. */
int64_t times_ns(enum times_name name);
int times_ms(enum times_name name);     /* rounded up */
unsigned times_s(enum times_name name); /* rounded up */
struct timeval times_timeval(enum times_name name);
void times_sleep(enum times_name name); /* a signal may end it early */

/* Finds the time with this name; TIMES_N: there is none. */
enum times_name times_find(const char *name);

/* Computes the table that text, in the form of PAWL_TEST_TIMES, asks for; NULL: the defaults.
 * PAWL_EINVAL names what is unknown, or not a positive number. */
int times_read(const char *text, int64_t ns[TIMES_N], struct pawl_err *err);

#endif
