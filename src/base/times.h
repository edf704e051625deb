/* Waiting times in one table: timeouts, times between two looks or tries, and times before
 * something is done again. Other times are not here: bounds of options, assumptions of models, how
 * long something is kept. Waits that no test has to shorten are where they are used: the fixed ones
 * of the scheduler's core (core.h), which tests run in virtual time, and a few of Python's, for
 * threads and calls that are about to end, and for storage until Ctrl-C is looked at.
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
		"How often the ranks of a group, and the nodes of a job, send each other a "       \
		"heartbeat (PAWL_HEARTBEAT).")                                                     \
	X(SESSION_OPEN, "session_open", 60 * NS_PER_S, SEEN,                                       \
		"How long opening a checkpointer waits for the agent to open the root.")           \
	X(SESSION_BEGIN, "session_begin", 32 * NS_PER_S, SEEN,                                     \
		"How long a rank waits for the agent's answer to a question. It is longer "        \
		"than a save waits for ranks.")                                                    \
	X(SESSION_SPAWN, "session_spawn", 10 * NS_PER_S, SEEN,                                     \
		"How long a rank waits for an agent that it has started to listen.")               \
	X(SESSION_CONNECT, "session_connect", 10 * NS_PER_MS, INNER,                               \
		"Between two attempts to connect to an agent that was just started.")              \
	X(SESSION_RETRY, "session_retry", 100 * NS_PER_MS, INNER,                                  \
		"Before a rank asks an agent again that could not take it.")                       \
	X(SESSION_PAUSE, "session_pause", 10 * NS_PER_MS, INNER,                                   \
		"Between two questions to the agent whether everything is durable.")               \
	X(SESSION_AGREE, "session_agree", 5 * NS_PER_S, SEEN,                                      \
		"How long ckpt.due() and ckpt.stopping wait for the ranks to agree on the "        \
		"step at which the answer is yes.")                                                \
	X(SESSION_GONE, "session_gone", 5 * NS_PER_S, SEEN,                                        \
		"Before a rank looks for another agent after its own has gone.")                   \
	X(SESSION_AGAIN, "session_again", 30 * NS_PER_S, SEEN,                                     \
		"Before a rank looks again for an agent that it did not find. The wait "           \
		"doubles each time.")                                                              \
	X(SESSION_AGAIN_MAX, "session_again_max", 1800 * NS_PER_S, SEEN,                           \
		"The longest wait before a rank looks again for an agent.")                        \
	X(SESSION_BYE, "session_bye", 1 * NS_PER_S, SEEN,                                          \
		"How long closing a checkpointer waits for the agent's goodbye.")                  \
	X(SESSION_FIND, "session_find", 10 * NS_PER_MS, INNER,                                     \
		"Between two looks for a tag while another rank adds to it.")                      \
	X(SESSION_FETCH, "session_fetch", 120 * NS_PER_S, SEEN,                                    \
		"How long a rank that restores from other hosts' memory waits for 256 MiB of it.") \
	X(LINK_SEND, "link_send", 5 * NS_PER_S, SEEN,                                              \
		"A process that reads nothing from its agent for so long is disconnected.")        \
	X(LINK_STUCK, "link_stuck", 2 * NS_PER_S, SEEN,                                            \
		"How long a rank waits for the answer of an agent that is stopped (SIGSTOP, a"     \
		" debugger).")                                                                     \
	X(LISTEN_AGAIN, "listen_again", 1 * NS_PER_S, INNER,                                       \
		"Before listening is tried again after file descriptors had run out.")             \
	X(AGENT_IDLE, "agent_idle", 60 * NS_PER_S, SEEN,                                           \
		"An agent without ranks ends after that (`pawl agent --idle`).")                   \
	X(AGENT_UNUSED, "agent_unused", 600 * NS_PER_S, SEEN,                                      \
		"An agent whose ranks have died and whose storage fails ends after that.")         \
	X(AGENT_STOP, "agent_stop", 25 * NS_PER_S, SEEN,                                           \
		"An agent that receives a signal to end has ended by then.")                       \
	X(BUCKET_PATIENCE, "bucket_patience", 120 * NS_PER_S, SEEN,                                \
		"How long a request to a bucket that fails is tried again.")                       \
	X(BUCKET_CONNECT, "bucket_connect", 10 * NS_PER_S, SEEN,                                   \
		"How long a connection to a bucket's service may take to come up.")                \
	X(BUCKET_STALL, "bucket_stall", 30 * NS_PER_S, SEEN,                                       \
		"A request to a bucket that moves nearly nothing for so long is sent again.")      \
	X(MIRROR_SETTLE, "mirror_settle", 2 * NS_PER_S, SEEN,                                      \
		"How long nothing in a checkpoint of a foreign program changes after its last "    \
		"file is there, before `pawl mirror` ships it.")                                   \
	X(MIRROR_QUIET, "mirror_quiet", 10 * NS_PER_S, SEEN,                                       \
		"The same of a checkpoint of which no last file is known, and of other files "     \
		"(`pawl mirror --quiet`).")                                                        \
	X(MIRROR_LOOSE_MAX, "mirror_loose_max", 60 * NS_PER_S, SEEN,                               \
		"`pawl mirror` ships a file that never stops changing, such as a log, so often.")  \
	X(MIRROR_GRACE, "mirror_grace", 25 * NS_PER_S, SEEN,                                       \
		"A `pawl mirror` that receives a signal to end has ended by then, if the program " \
		"has (`pawl mirror --grace`).")                                                    \
	X(MIRROR_RETRY, "mirror_retry", 1 * NS_PER_S, SEEN,                                        \
		"Before `pawl mirror` tries something again that failed. The wait doubles each "   \
		"time.")                                                                           \
	X(MIRROR_RETRY_MAX, "mirror_retry_max", 60 * NS_PER_S, SEEN,                               \
		"The longest wait before `pawl mirror` tries something again.")                    \
	X(MIRROR_LOOK, "mirror_look", 100 * NS_PER_MS, INNER,                                      \
		"Between two looks at a mirrored directory that is changing, at least.")           \
	X(MIRROR_LOOK_MAX, "mirror_look_max", 10 * NS_PER_S, SEEN,                                 \
		"How often `pawl mirror` looks at a directory that the system does not watch "     \
		"for it.")                                                                         \
	X(MIRROR_PROGRESS, "mirror_progress", 10 * NS_PER_S, SEEN,                                 \
		"How often `pawl mirror` says what is left to ship once the program has ended.")   \
	X(MIRROR_ASK, "mirror_ask", 5 * NS_PER_S, SEEN,                                            \
		"How long `pawl mirror status` waits for an answer.")                              \
	X(ROOT_ORPHAN, "root_orphan", 2 * NS_PER_S, SEEN,                                          \
		"After the last rank has vanished, before what is committed is made durable.")     \
	X(ROOT_ASK, "root_ask", 200 * NS_PER_MS, INNER,                                            \
		"Between two looks whether a waiting save may begin.")                             \
	X(ROOT_STUCK, "root_stuck", 2 * NS_PER_S, SEEN,                                            \
		"How long a save waits for a rank of this host that is stopped, or whose "         \
		"process has ended.")                                                              \
	X(ROOT_SLOW, "root_slow", 60 * NS_PER_S, SEEN,                                             \
		"Writing a checkpoint for longer than that is reported: the storage is slow, "     \
		"or hangs.")                                                                       \
	X(ROOT_GIVE_UP, "root_give_up", 10 * NS_PER_S, SEEN,                                       \
		"How long an agent tries to make the last save durable once its ranks have "       \
		"left. Then it gives the root up.")                                                \
	X(ALERT_AGAIN, "alert_again", 300 * NS_PER_S, SEEN,                                        \
		"A failure in a root that persists is reported again after that.")                 \
	X(ROOT_STOP, "root_stop", 2 * NS_PER_S, SEEN,                                              \
		"How long storage that hangs can delay an agent that leaves.")                     \
	X(LEDGER_WAIT, "ledger_wait", 30 * NS_PER_S, SEEN,                                         \
		"How long a save waits for ranks or storage. Then it is skipped, and a "           \
		"message says so.")                                                                \
	X(LEDGER_RETRY, "ledger_retry", 1 * NS_PER_S, INNER,                                       \
		"The shortest time before another try to make a save durable after one has "       \
		"failed.")                                                                         \
	X(ADVICE_SAVE_MIN, "advice_save_min", 1 * NS_PER_S, SEEN,                                  \
		"`ckpt.due()` never advises two saves closer together than that.")                 \
	X(ADVICE_SAVE_MAX, "advice_save_max", 1800 * NS_PER_S, SEEN,                               \
		"`ckpt.due()` never advises two saves further apart than that.")                   \
	X(ADVICE_PERSIST_MIN, "advice_persist_min", 10 * NS_PER_S, SEEN,                           \
		"With `persist_every=auto`, two durable saves are never closer together than "     \
		"that.")                                                                           \
	X(ADVICE_PERSIST_MAX, "advice_persist_max", 3600 * NS_PER_S, SEEN,                         \
		"With `persist_every=auto`, two durable saves are never further apart than "       \
		"that.")                                                                           \
	X(DUE_AGAIN, "due_again", 1 * NS_PER_S, INNER,                                             \
		"Before the ranks decide again whether a save is due, if one of them was not "     \
		"ready.")                                                                          \
	X(KUBE_PLUGIN, "kube_plugin", 60 * NS_PER_S, SEEN,                                         \
		"How long a plugin of a kubeconfig may take to print credentials.")                \
	X(KUBE_SILENCE, "kube_silence", 90 * NS_PER_S, INNER,                                      \
		"A watch of a Kubernetes API server that says nothing for so long is begun anew; " \
		"bookmarks come about once a minute.")                                             \
	X(PEER_CONNECT, "peer_connect", 10 * NS_PER_S, SEEN,                                       \
		"How long a connection to the agent of another host may take to come up.")         \
	X(PEER_ANSWER, "peer_answer", 30 * NS_PER_S, SEEN,                                         \
		"An agent of another host that answers nothing, or takes nothing, for so long "    \
		"is given up.")                                                                    \
	X(PEER_NEXT, "peer_next", 5 * NS_PER_S, INNER,                                             \
		"How long rank 0's host waits for the next save to replicate before it answers "   \
		"a host that asks for it.")                                                        \
	X(PEER_COMMIT, "peer_commit", 5 * NS_PER_S, INNER,                                         \
		"How long a host waits until a save that is to be replicated, or made durable, "   \
		"is "                                                                              \
		"committed there, too.")                                                           \
	X(PEER_CHOICE, "peer_choice", 500 * NS_PER_MS, INNER,                                      \
		"How long rank 0's host waits for the next save to make durable before it "        \
		"answers a host that asks for it.")                                                \
	X(PEER_RETRY, "peer_retry", 1 * NS_PER_S, INNER,                                           \
		"Before a replica that failed is tried again, and before a host that failed in "   \
		"a restore is asked again.")                                                       \
	X(PERSIST_ROWS, "persist_rows", 1 * NS_PER_S, INNER,                                       \
		"How long rows of the history wait for more rows before they are written.")        \
	X(ROOTLOCK_WAIT, "rootlock_wait", 2 * NS_PER_S, SEEN,                                      \
		"How long a job waits for a root that another job is just leaving.")               \
	X(ROOTLOCK_LOOK, "rootlock_look", 20 * NS_PER_MS, INNER,                                   \
		"Between two attempts to lock a root.")                                            \
	X(AGREE_LOOK, "agree_look", 1 * NS_PER_MS, INNER,                                          \
		"Between two looks at what other hosts have written, at first.")                   \
	X(AGREE_LOOK_MAX, "agree_look_max", 100 * NS_PER_MS, INNER,                                \
		"The longest time between two looks at what other hosts have written.")            \
	X(AGREE_ASTRAY, "agree_astray", 3 * NS_PER_S, INNER,                                       \
		"A host whose rank belongs to another run is told so after that.")                 \
	X(AGREE_SHARED, "agree_shared", 15 * NS_PER_S, SEEN,                                       \
		"What one host writes must be visible to the others by then. Otherwise they "      \
		"do not share the directory.")                                                     \
	X(AGREE_WAIT, "agree_wait", 600 * NS_PER_S, SEEN,                                          \
		"How long a save or a restore waits for other hosts (PAWL_HOSTS_TIMEOUT).")        \
	X(NET_HELLO, "net_hello", 5 * NS_PER_S, SEEN,                                              \
		"A process that connects to a coordinator of `pawl run` must have proved the "     \
		"token by then.")                                                                  \
	X(NET_GOODBYE, "net_goodbye", 2 * NS_PER_S, INNER,                                         \
		"How long a node waits for the other end to close the connection.")                \
	X(NET_COMPLAIN, "net_complain", 1 * NS_PER_S, INNER,                                       \
		"Between two lines about connections from strangers.")                             \
	X(SERVE_LOOK, "serve_look", 50 * NS_PER_MS, INNER,                                         \
		"How often `pawl serve` of a job looks at the clock.")                             \
	X(NODES_ANSWER, "nodes_answer", 5 * NS_PER_S, SEEN,                                        \
		"A coordinator that does not answer a node that wants to join is given up "        \
		"after that.")                                                                     \
	X(NODES_RETRY, "nodes_retry", 500 * NS_PER_MS, INNER,                                      \
		"Between two rounds of attempts at all places where a coordinator may be.")        \
	X(NODES_PROBE, "nodes_probe", 1 * NS_PER_S, INNER,                                         \
		"Between two looks whether an earlier place has a coordinator, too.")              \
	X(NODES_WAITING, "nodes_waiting", 10 * NS_PER_S, SEEN,                                     \
		"Between two lines that say what a node waits for.")                               \
	X(NODES_CLOSE, "nodes_close", 2 * NS_PER_S, SEEN,                                          \
		"How long a coordinator waits for all nodes to learn of the end.")                 \
	X(NODES_TOGETHER, "nodes_together", 1 * NS_PER_S, SEEN,                                    \
		"Signals closer together than that count as one. A later one ends everything "     \
		"at once.")                                                                        \
	X(RUN_FAST, "run_fast", 5 * NS_PER_S, SEEN,                                                \
		"A worker that fails, or a node that is lost, sooner after its start counts "      \
		"as a fast failure. After several in a row, restarts wait.")                       \
	X(RUN_BACKOFF, "run_backoff", 1 * NS_PER_S, SEEN,                                          \
		"The first wait before a restart after fast failures. It doubles each time.")      \
	X(RUN_BACKOFF_MAX, "run_backoff_max", 4 * NS_PER_S, SEEN,                                  \
		"The longest wait before a restart.")                                              \
	X(RUN_RESERVE, "run_reserve", 3 * NS_PER_S, SEEN,                                          \
		"The part of the grace that is kept for making the last save durable. It is "      \
		"at most half of the grace.")                                                      \
	X(RUN_DRAIN, "run_drain", 1800 * NS_PER_S, SEEN,                                           \
		"How long making the last save durable may take after a job's normal end.")        \
	X(RUN_SETTLE, "run_settle", 10 * NS_PER_S, SEEN,                                           \
		"After that, `pawl run` starts a template without any rank's list of imports,"     \
		" and takes a script whose ranks have not opened a membership file for one "       \
		"that never does.")                                                                \
	X(RUN_LOOK, "run_look", 250 * NS_PER_MS, INNER,                                            \
		"Between two looks at a job's membership file and the files beside it.")           \
	X(RUN_TEMPLATE_ASK, "run_template_ask", 2 * NS_PER_S, SEEN,                                \
		"A template that does not answer within that is given up.")                        \
	X(RUN_TEMPLATE_COME, "run_template_come", 30 * NS_PER_S, SEEN,                             \
		"A template that is still importing and does not answer within that is given "     \
		"up.")                                                                             \
	X(RUN_ABORT, "run_abort", 100 * NS_PER_MS, INNER,                                          \
		"How long an abort waits for what the workers printed last.")                      \
	X(RUN_FLUSH, "run_flush", 200 * NS_PER_MS, SEEN,                                           \
		"An unfinished line is shown after that.")                                         \
	X(RUN_OUTPUT, "run_output", 5 * NS_PER_S, SEEN,                                            \
		"How long `pawl run` waits for a terminal that accepts no output.")                \
	X(RUN_GRACE, "run_grace", 25 * NS_PER_S, SEEN,                                             \
		"From a signal to the exit of a job (`pawl run --grace`).")                        \
	X(NOTICE_AWS, "notice_aws", 5 * NS_PER_S, SEEN,                                            \
		"How often AWS is asked whether it takes the machine away (`--notice`).")          \
	X(NOTICE_AZURE, "notice_azure", 1 * NS_PER_S, SEEN,                                        \
		"How often Azure is asked; also the shortest time between two questions to "       \
		"GCP.")                                                                            \
	X(NOTICE_HOLD, "notice_hold", 60 * NS_PER_S, SEEN,                                         \
		"How long GCP may hold the question until the answer changes.")                    \
	X(NOTICE_ANSWER, "notice_answer", 5 * NS_PER_S, SEEN,                                      \
		"How long a cloud's metadata service may take for any other answer.")              \
	X(NOTICE_FIRST, "notice_first", 150 * NS_PER_S, SEEN,                                      \
		"How long Azure may take for its first list of events.")                           \
	X(NOTICE_AGAIN, "notice_again", 1 * NS_PER_S, SEEN,                                        \
		"Before a metadata service that did not answer is asked again. The wait "          \
		"doubles each time.")                                                              \
	X(NOTICE_AGAIN_MAX, "notice_again_max", 60 * NS_PER_S, SEEN,                               \
		"The longest wait before a metadata service is asked again.")                      \
	X(NOTICE_MARGIN, "notice_margin", 3 * NS_PER_S, SEEN,                                      \
		"A job has exited so long before its machine goes away.")                          \
	X(NOTICE_LEAST, "notice_least", 10 * NS_PER_S, SEEN,                                       \
		"A job whose machine may go away at any moment still tries for so long to "        \
		"save.")                                                                           \
	X(NOTICE_REPLY, "notice_reply", 10 * NS_PER_S, SEEN,                                       \
		"How long `pawl notice` waits for the answer of a job.")                           \
	X(NOTICE_LOOK, "notice_look", 50 * NS_PER_MS, INNER,                                       \
		"Between two looks of `pawl notice --wait` whether the jobs have ended.")          \
	X(RUN_NODES, "run_nodes", 600 * NS_PER_S, SEEN,                                            \
		"How long `pawl run` waits for the other nodes (`--node-timeout`).")               \
	X(JOINT_WAIT, "joint_wait", 15 * NS_PER_S, SEEN,                                           \
		"How long a launcher without ranks waits for a sign of life from other "           \
		"launchers. It is several times run_heartbeat.")                                   \
	X(JOINT_LOOK, "joint_look", 250 * NS_PER_MS, INNER,                                        \
		"Between two looks at the membership file by a launcher that waits.")              \
	X(JOINT_PEERS, "joint_peers", 1 * NS_PER_S, INNER,                                         \
		"Between two looks at the signs of life of other launchers.")                      \
	X(RUN_HEARTBEAT, "run_heartbeat", 3 * NS_PER_S, INNER,                                     \
		"How often a launcher renews the sign that its ranks live.")                       \
	X(RUN_PRESENCE, "run_presence", 2 * NS_PER_S, SEEN,                                        \
		"How long a file system that hangs can delay the end of a launcher.")              \
	X(GROUP_WAIT, "group_wait", 20 * NS_PER_MS, INNER,                                         \
		"How long the thread that drives a group waits for its transport before it "       \
		"looks for other work.")                                                           \
	X(GROUP_LATE, "group_late", 1 * NS_PER_MS, INNER,                                          \
		"The group's thread drives an operation that nobody waits for after that.")        \
	X(GROUP_IDLE, "group_idle", 100 * NS_PER_MS, INNER,                                        \
		"A group's thread without operations for so long sleeps until it is woken.")       \
	X(GROUP_GOODBYE, "group_goodbye", 100 * NS_PER_MS, SEEN,                                   \
		"How long a rank that leaves a group waits for the others to learn of it.")        \
	X(STAGE_GOODBYE, "stage_goodbye", 500 * NS_PER_MS, SEEN,                                   \
		"How long a rank that leaves a pipeline waits until what it has issued is "        \
		"sent.")                                                                           \
	X(SHRINK_JOIN, "shrink_join", 10 * NS_PER_S, SEEN,                                         \
		"How long the remaining ranks have to join again.")                                \
	X(SHRINK_GONE, "shrink_gone", 2 * NS_PER_S, SEEN,                                          \
		"How much longer than a silence a rank waits to learn who is gone when "           \
		"joining again has failed.")                                                       \
	X(JOIN_STEP, "join_step", 10 * NS_PER_S, SEEN,                                             \
		"How long a newcomer to a group has for each answer, and to join.")                \
	X(JOIN_REQUEST, "join_request", 5 * NS_PER_S, INNER,                                       \
		"How long a newcomer that connects has to send its join request.")                 \
	X(PROBE_CALL, "probe_call", 60 * NS_PER_S, SEEN,                                           \
		"How long one collective of `pawl net` may take.")                                 \
	X(PROBE_PAIR, "probe_pair", 200 * NS_PER_MS, INNER,                                        \
		"How long the rounds of one pair of hosts take together when `pawl net` "          \
		"measures.")                                                                       \
	X(PROBE_ALL, "probe_all", 600 * NS_PER_MS, INNER,                                          \
		"How long the rounds of an all-to-all of all hosts take together when "            \
		"`pawl net` measures.")                                                            \
	X(PROBE_PING, "probe_ping", 100 * NS_PER_MS, INNER,                                        \
		"How long the small messages of one pair of hosts take together when `pawl "       \
		"net` measures.")                                                                  \
	X(PROBE_LOOK, "probe_look", 200 * NS_PER_MS, INNER,                                        \
		"Between two looks of `pawl net` whether it is to stop.")                          \
	X(SHM_LOOK, "shm_look", NS_PER_MS / 10, INNER,                                             \
		"How long the transport over shared memory polls for a message before it "         \
		"sleeps.")                                                                         \
	X(TCP_GOODBYE, "tcp_goodbye", 200 * NS_PER_MS, SEEN,                                       \
		"How long a rank that leaves a group waits for its peers to close their "          \
		"connections.")                                                                    \
	X(TCP_HANDSHAKE, "tcp_handshake", 5 * NS_PER_S, INNER,                                     \
		"How long a peer that connects has to send its greeting.")                         \
	X(TCP_LOOK, "tcp_look", 100 * NS_PER_MS, INNER,                                            \
		"The longest single wait while ranks connect.")                                    \
	X(TCP_PROBE, "tcp_probe", 2 * NS_PER_S, SEEN,                                              \
		"After that, and then as often, a rank checks that the ranks it waits for are"     \
		" still alive.")                                                                   \
	X(TCP_CONNECT, "tcp_connect", 15 * NS_PER_S, SEEN,                                         \
		"The kernel must have made a connection by then.")                                 \
	X(MIXED_NAP, "mixed_nap", NS_PER_MS / 20, INNER,                                           \
		"How long each of two transports is waited for in turn while the group has no"     \
		" thread of its own.")                                                             \
	X(FABRIC_GOODBYE, "fabric_goodbye", 200 * NS_PER_MS, SEEN,                                 \
		"How long a rank that leaves a group waits for its peers to close "                \
		"(libfabric).")                                                                    \
	X(FABRIC_SPIN, "fabric_spin", NS_PER_MS / 20, INNER,                                       \
		"How long the libfabric transport polls for a message before it sleeps.")          \
	X(FABRIC_NAP, "fabric_nap", NS_PER_MS / 20, INNER,                                         \
		"How long the libfabric transport sleeps at a time if it has no file "             \
		"descriptor to wait for.")                                                         \
	X(FABRIC_RETRY, "fabric_retry", 1 * NS_PER_MS, INNER,                                      \
		"Between two attempts to post what libfabric did not accept.")                     \
	X(FABRIC_STALLED, "fabric_stalled", 100 * NS_PER_MS, INNER,                                \
		"If libfabric has accepted nothing for so long, posting is tried again only "      \
		"this often.")                                                                     \
	X(FABRIC_GIVEN_UP, "fabric_given_up", 5 * NS_PER_S, SEEN,                                  \
		"If libfabric has accepted nothing for so long, posting is not tried any "         \
		"more.")                                                                           \
	X(FABRIC_LOOK, "fabric_look", 20 * NS_PER_MS, INNER,                                       \
		"The longest single wait while ranks join (libfabric).")                           \
	X(SERVE_HELLO, "serve_hello", 5 * NS_PER_S, INNER,                                         \
		"How long a process that connects to a server of collectives has to say what "     \
		"it wants.")                                                                       \
	X(SERVE_JOIN, "serve_join", 30 * NS_PER_S, SEEN,                                           \
		"How long all ranks of a group have to connect to a server.")                      \
	X(SERVE_TURN, "serve_turn", 200 * NS_PER_MS, INNER,                                        \
		"How often a server of collectives looks whether it is to end.")                   \
	X(NET_ASK, "net_ask", 10 * NS_PER_S, SEEN,                                                 \
		"How long `pawl net` waits for a server's answer, and for all to join.")           \
	X(HUGE_PAUSE, "huge_pause", 50 * NS_PER_MS, INNER,                                         \
		"The longest pause between two steps of making huge pages.")                       \
	X(SCRATCH_TRY, "scratch_try", 500 * NS_PER_MS, INNER,                                      \
		"How long the speed of a scratch directory is measured.")                          \
	X(SCHED_BUSY, "sched_busy", 5 * NS_PER_S, SEEN,                                            \
		"How long opening the scheduler's database waits for another process that "        \
		"holds it.")                                                                       \
	X(SLURM_LOOK, "slurm_look", 200 * NS_PER_MS, INNER,                                        \
		"Between two looks at what pilots have written.")                                  \
	X(SLURM_LOOK_EACH, "slurm_look_each", 2 * NS_PER_MS, INNER,                                \
		"Added to slurm_look for each pilot, since the file server has others to "         \
		"serve.")                                                                          \
	X(SLURM_COMMAND, "slurm_command", 60 * NS_PER_S, SEEN,                                     \
		"A command of Slurm that takes longer is killed and has failed.")                  \
	X(SLURM_SIZES, "slurm_sizes", 300 * NS_PER_S, INNER,                                       \
		"Between two questions to Slurm how large its nodes are.")                         \
	X(SLURM_STOP, "slurm_stop", 300 * NS_PER_S, SEEN,                                          \
		"How long the nodes of a stopped job may take, from the first to the last.")       \
	X(SLURM_SETTLE, "slurm_settle", 30 * NS_PER_S, INNER,                                      \
		"How long ranks may take from their start to open their membership file.")         \
	X(SLURM_RESCALE, "slurm_rescale", 120 * NS_PER_S, SEEN,                                    \
		"How long a change of a job's nodes may take.")                                    \
	X(SLURM_APPEAR, "slurm_appear", 120 * NS_PER_S, SEEN,                                      \
		"A pilot whose node runs must have made its directory by then.")                   \
	X(SLURM_NOTICE, "slurm_notice", 60 * NS_PER_S, SEEN,                                       \
		"How much notice Slurm is asked to give before it ends a pilot.")                  \
	X(SLURM_KILL_WAIT, "slurm_kill_wait", 30 * NS_PER_S, SEEN,                                 \
		"Slurm's own KillWait, if Slurm does not report it.")                              \
	X(SLURM_FENCE, "slurm_fence", 30 * NS_PER_S, SEEN,                                         \
		"A pilot that cannot reach the scheduler's directory for so long ends its "        \
		"jobs (`pawl pilot --fence`).")                                                    \
	X(PILOT_LOOK, "pilot_look", 250 * NS_PER_MS, INNER,                                        \
		"Between two looks of a pilot at its orders.")                                     \
	X(SIZING_TRY, "sizing_try", 60 * NS_PER_S, SEEN,                                           \
		"How long a change of a part's size is tried.")                                    \
	X(SIZING_AGAIN, "sizing_again", 500 * NS_PER_MS, INNER,                                    \
		"Between two attempts to change a part's size.")                                   \
	X(PART_DOUBT, "part_doubt", 3 * NS_PER_S, INNER,                                           \
		"A failure counts against a program only if its pilot does not get an order "      \
		"to end within that.")                                                             \
	X(KEEP_LAST, "keep_last", 10 * NS_PER_S, INNER,                                            \
		"How long a log waits for what the last processes of its part print.")             \
	X(KEEP_SWEEP, "keep_sweep", 10 * NS_PER_MS, INNER,                                         \
		"Between two looks for processes that do not die.")                                \
	X(SCALE_WAIT, "scale_wait", 60 * NS_PER_S, SEEN,                                           \
		"How long ranks may take to join or to leave, for each attempt.")                  \
	X(SHEPHERD_WRITE, "shepherd_write", 1 * NS_PER_S, INNER,                                   \
		"Between two attempts to record a job's end.")                                     \
	X(RESIZE_TRY, "resize_try", 60 * NS_PER_S, SEEN,                                           \
		"How long a change of a job's replicas is tried.")                                 \
	X(RESIZE_AGAIN, "resize_again", 500 * NS_PER_MS, INNER,                                    \
		"Between two attempts to change a job's replicas.")                                \
	X(DAEMON_LOCK, "daemon_lock", 2 * NS_PER_S, SEEN,                                          \
		"How long `pawl sched` waits for one that was killed while its child still "       \
		"holds the lock.")                                                                 \
	X(DAEMON_LOCK_LOOK, "daemon_lock_look", 20 * NS_PER_MS, INNER,                             \
		"Between two attempts to lock the scheduler's directory.")                         \
	X(DAEMON_HINTS, "daemon_hints", 1 * NS_PER_S, SEEN,                                        \
		"Between two looks at files of hints.")                                            \
	X(SCHED_ANSWER, "sched_answer", 30 * NS_PER_S, SEEN,                                       \
		"How long a command waits for the scheduler's answer.")                            \
	X(HTTP_POLL, "http_poll", 30 * NS_PER_S, SEEN,                                             \
		"How long discovery waits for a job's ranks, unless the request gives another"     \
		" time.")                                                                          \
	X(RELAY_BEGIN, "relay_begin", 60 * NS_PER_S, SEEN,                                         \
		"How long `pawl run --door URL` waits for an answer before it starts ranks.")      \
	X(RELAY_HEARTBEAT, "relay_heartbeat", 3 * NS_PER_S, SEEN,                                  \
		"How often a launcher with `--door URL` reports that its ranks live, if there "    \
		"are other launchers.")                                                            \
	X(RELAY_ALONE, "relay_alone", 25 * NS_PER_S, INNER,                                        \
		"How often it reports if there are no others.")                                    \
	X(RELAY_LOOK, "relay_look", 50 * NS_PER_MS, INNER,                                         \
		"Between two looks whether ranks here have changed the membership file.")          \
	X(RELAY_RETRY, "relay_retry", 5 * NS_PER_S, INNER,                                         \
		"Longest pause before a launcher with `--door URL` reports again that had no "     \
		"answer.")                                                                         \
	X(RELAY_STALL, "relay_stall", 10 * NS_PER_S, INNER,                                        \
		"An answer that comes so much later than it was asked for is given up.")           \
	X(RELAY_END, "relay_end", 2 * NS_PER_S, INNER,                                             \
		"How long a launcher with `--door URL` that ends tries to report that.")           \
	X(HTTP_IDLE, "http_idle", 10 * NS_PER_S, SEEN,                                             \
		"A connection that sends no byte for so long is closed.")                          \
	X(HTTP_REQUEST, "http_request", 60 * NS_PER_S, SEEN,                                       \
		"How long a request may take, from its first byte to the last byte of the "        \
		"answer.")                                                                         \
	X(HTTP_SWEEP, "http_sweep", 5 * NS_PER_S, INNER,                                           \
		"Between two looks for requests that take too long.")                              \
	X(HISTORY_AGAIN, "history_again", 60 * NS_PER_S, INNER,                                    \
		"Before writing the history is tried again after it has failed.")                  \
	X(STRAYS_LOOK, "strays_look", 50 * NS_PER_MS, INNER,                                       \
		"Between two looks for processes that a job has left behind, at first.")           \
	X(STRAYS_LOOK_MAX, "strays_look_max", 5 * NS_PER_S, INNER,                                 \
		"The longest time between two looks for processes that a job has left behind.")    \
	X(SCHED_GRACE, "sched_grace", 30 * NS_PER_S, SEEN,                                         \
		"From a signal to a job's end (`pawl sched --grace`).")                            \
	X(SCHED_POLL, "sched_poll", 10 * NS_PER_S, SEEN,                                           \
		"How often the engine is asked for the state of jobs (`pawl sched --poll`).")      \
	X(SCHED_ROUND, "sched_round", 30 * NS_PER_S, SEEN,                                         \
		"Between two rounds of decisions (`pawl sched --round`).")                         \
	X(SCHED_START, "sched_start", 3600 * NS_PER_S, SEEN,                                       \
		"How long the setup of a job may take.")                                           \
	X(SCHED_AGAIN, "sched_again", 5 * NS_PER_S, SEEN,                                          \
		"Between two attempts to kill what does not die.")                                 \
	X(SCHED_BACKOFF, "sched_backoff", 2 * NS_PER_S, SEEN,                                      \
		"The first wait before a failed job is started again. It doubles each time.")      \
	X(SCHED_BACKOFF_MAX, "sched_backoff_max", 600 * NS_PER_S, SEEN,                            \
		"The longest wait before a failed job is started again.")                          \
	X(LOGS_LOOK, "logs_look", 100 * NS_PER_MS, INNER,                                          \
		"Between two looks at a log that is followed.")                                    \
	X(LOGS_ASK, "logs_ask", 500 * NS_PER_MS, INNER,                                            \
		"Between two questions whether the job whose log is followed has ended.")          \
	X(SCALE_ANSWER, "scale_answer", 10 * NS_PER_S, SEEN,                                       \
		"How long `pawl scale` waits for the answer of `pawl run`.")                       \
	X(SCALE_LOOK, "scale_look", 50 * NS_PER_MS, INNER,                                         \
		"Between two looks of `pawl scale` whether the job has its size.")                 \
	X(TOP_EVERY, "top_every", 2 * NS_PER_S, SEEN,                                              \
		"Between two pictures of `pawl top` (`-d`).")                                      \
	X(WATCH_EVERY, "watch_every", 500 * NS_PER_MS, SEEN,                                       \
		"Between two looks of `pawl ckpt watch` (`--interval`).")                          \
	X(WATCH_ASK, "watch_ask", 1 * NS_PER_S, SEEN,                                              \
		"How long `pawl ckpt watch` waits for the answer of a job's agent.")               \
	X(WATCH_PATIENCE, "watch_patience", 5 * NS_PER_S, INNER,                                   \
		"`pawl ckpt watch` holds back for so long what may still change.")                 \
	X(PROGRESS_FIRST, "progress_first", 500 * NS_PER_MS, INNER,                                \
		"Work that ends sooner shows no progress.")                                        \
	X(PROGRESS_DRAW, "progress_draw", 125 * NS_PER_MS, INNER,                                  \
		"Between two drawings of progress.")                                               \
	X(PROGRESS_RATE, "progress_rate", 250 * NS_PER_MS, INNER,                                  \
		"Work must have run for so long before its rate is shown.")                        \
	X(SIM_PROGRESS, "sim_progress", 2 * NS_PER_S, SEEN,                                        \
		"Between two lines of progress of `pawl sim`.")                                    \
	X(ELASTIC_DISCOVER, "elastic_discover", 600 * NS_PER_S, SEEN,                              \
		"A supervisor (ADAPTDL_SUPERVISOR_URL) must know by then where all ranks are.")    \
	X(ELASTIC_ASK, "elastic_ask", 60 * NS_PER_S, SEEN,                                         \
		"A supervisor must answer a request by then.")                                     \
	X(ELASTIC_ASK_AGAIN, "elastic_ask_again", 200 * NS_PER_MS, INNER,                          \
		"Before a supervisor that does not know yet is asked again.")                      \
	X(ELASTIC_JOIN, "elastic_join", 600 * NS_PER_S, SEEN,                                      \
		"A rank that joins a running job must be admitted by then.")                       \
	X(ELASTIC_JOIN_AGAIN, "elastic_join_again", 100 * NS_PER_MS, INNER,                        \
		"Before a rank sends its join request to a running job again.")                    \
	X(ELASTIC_GIVE_BACK, "elastic_give_back", 1 * NS_PER_S, INNER,                             \
		"How long a rank that has left a group waits for operations that still hold "      \
		"memory.")                                                                         \
	X(ELASTIC_GIVE_BACK_LOOK, "elastic_give_back_look", 1 * NS_PER_MS, INNER,                  \
		"Between two looks whether operations of a group that was left still hold "        \
		"memory.")                                                                         \
	X(ELASTIC_DATA_LOOK, "elastic_data_look", 100 * NS_PER_MS, INNER,                          \
		"Between two looks for ranks that a loader is waiting for.")                       \
	X(ELASTIC_FLUSH, "elastic_flush", 600 * NS_PER_S, SEEN,                                    \
		"How long an elastic job waits for a root that the agent of another host "         \
		"still holds.")                                                                    \
	X(ELASTIC_COMMIT, "elastic_commit", 10 * NS_PER_S, SEEN,                                   \
		"How often an elastic job commits its state to memory "                            \
		"(`PAWL_ELASTIC_COMMIT`).")                                                        \
	X(ELASTIC_SAVE_AGAIN, "elastic_save_again", 200 * NS_PER_MS, INNER,                        \
		"Before a save is tried again at a root that another agent holds.")                \
	X(ELASTIC_HINTS, "elastic_hints", 10 * NS_PER_S, SEEN,                                     \
		"The scheduler must accept a job's hints by then.")                                \
	X(ELASTIC_RECORD, "elastic_record", 2 * NS_PER_S, INNER,                                   \
		"How long a job that ends waits for the last rows of its record to be "            \
		"written.")                                                                        \
	X(CLOSE_DURABLE, "close_durable", 1800 * NS_PER_S, SEEN,                                   \
		"How long closing a checkpointer waits while its last save is being written.")     \
	X(CLOSE_TROUBLE, "close_trouble", 60 * NS_PER_S, SEEN,                                     \
		"The part of close_durable that closing waits for storage that fails.")            \
	X(ENGINE_FIND, "engine_find", 300 * NS_PER_S, SEEN,                                        \
		"The agent must find a tag by then. It waits while files are added to the "        \
		"tag.")                                                                            \
	X(RESTORE_RANKS, "restore_ranks", 1800 * NS_PER_S, SEEN,                                   \
		"How long a restore waits for the other ranks.")                                   \
	X(RECIPE_LATE, "recipe_late", 30 * NS_PER_S, SEEN,                                         \
		"A recipe that waits longer for other ranks prints a message.")                    \
	X(TORCH_JOIN, "torch_join", 60 * NS_PER_S, SEEN,                                           \
		"The ranks of a process group must be connected by then, counted from when "       \
		"all have arrived.")                                                               \
	X(TORCH_LATE, "torch_late", 30 * NS_PER_S, SEEN,                                           \
		"A process group that waits longer for a rank prints the rank's name.")            \
	X(TORCH_LOOK, "torch_look", 200 * NS_PER_MS, INNER,                                        \
		"Between two looks for Ctrl-C while a group changes.")                             \
	X(STOP_TOGETHER, "stop_together", 5 * NS_PER_S, SEEN,                                      \
		"Signals to stop that are closer together than that count as one.")                \
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
