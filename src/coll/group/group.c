/*
 * A group of ranks: see pawl/coll.h for the contract, group_impl.h for the locks.
 *
 * The channel of a collective is its number modulo COLL_CHANNELS. A channel carries one collective
 * at a time, in the order of the numbers. So its streams hold the bytes of one collective after
 * another, in the same order at all ranks.
 */
#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/heartbeat.h"
#include "base/times.h"
#include "coll/group/group_impl.h"
#include "coll/group/group_trace.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WAKE_MIN_BYTES (64u << 10) /* vectors of this many bytes wake the thread at once */

static struct timespec timespec_of(int64_t until_ns)
{
	return (struct timespec){until_ns / NS_PER_S, until_ns % NS_PER_S};
}

/* ---- the group's thread ---- */

/* Under state: waits for work, until due_ns at most. */
static void wait_for_work(struct pawl_group *group, int64_t now_ns, int64_t idle_since_ns,
	int64_t due_ns)
{
	bool soon =
		group->driver.waiters == 0 && now_ns - idle_since_ns < times_ns(TIME_GROUP_IDLE);
	struct timespec until = timespec_of(soon ? now_ns + times_ns(TIME_GROUP_LATE) : due_ns);

	group->driver.asleep = !soon;
	if (!soon && due_ns == NEVER_NS) {
		pthread_cond_wait(&group->driver.wake, &group->state);
	} else {
		pthread_cond_timedwait(&group->driver.wake, &group->state, &until);
	}
	group->driver.asleep = false;
}

void group_begin_turn(struct pawl_group *group)
{
	group->driver.driven = true;
	pthread_mutex_unlock(&group->state);
	pthread_mutex_lock(&group->driving);
}

void group_end_turn(struct pawl_group *group)
{
	struct coll_transport *transport = group->transport;
	bool unsent = transport->needs_progress && transport->needs_progress(transport);

	pthread_mutex_unlock(&group->driving);
	pthread_mutex_lock(&group->state);
	group->driver.driven = false;
	group->driver.unsent = unsent;
	if (unsent && group->driver.asleep) {
		pthread_cond_signal(&group->driver.wake);
	}
	pthread_cond_broadcast(&group->driver.over);
}

/* Returns when the thread must drive again for heartbeats, if a thread drove at now_ns. */
static int64_t next_heartbeat_ns(const struct pawl_group *group, int64_t now_ns)
{
	return group->liveness.heartbeat_interval_ns > 0
		? now_ns + group->liveness.heartbeat_interval_ns
		: NEVER_NS;
}

/*
 * The group's thread. It drives while operations are pending and no other thread waits for them. It
 * also drives once per heartbeat interval, to send and receive heartbeats. A small operation does
 * not wake it: the thread that submits one mostly waits for it at once, and is faster alone.
 */
static void *run_thread(void *user)
{
	struct pawl_group *group = user;
	int64_t idle_since_ns = clock_mono_ns();
	int64_t due_ns = 0;

	pthread_mutex_lock(&group->state);
	while (!group->closing) {
		int64_t now_ns = clock_mono_ns();
		bool busy = (group->queues.pending > 0 || group->driver.unsent) &&
			group->driver.waiters == 0;

		if (group->driver.driven && now_ns >= due_ns) {
			due_ns = next_heartbeat_ns(group, now_ns); /* the driver handles them */
		}
		if (group->driver.driven || (!busy && now_ns < due_ns)) {
			wait_for_work(group, now_ns, idle_since_ns, due_ns);
			continue;
		}
		group_begin_turn(group);
		group_drive(group, busy ? times_ns(TIME_GROUP_WAIT) : 0);
		group_end_turn(group);
		idle_since_ns = busy ? now_ns : idle_since_ns;
		due_ns = next_heartbeat_ns(group, now_ns);
	}
	pthread_mutex_unlock(&group->state);
	return NULL;
}

/* ---- a server, which its caller drives ---- */

/* Returns whether all ranks have left. */
static bool all_left(const struct pawl_group *group)
{
	uint64_t number;
	bool left = true;

	for (uint32_t p = 0; p < group->ranks; p++) {
		left &= coll_control_left(&group->control, p, &number);
	}
	return left;
}

int coll_group_serve(struct pawl_group *group, const atomic_bool *stop, struct pawl_err *err)
{
	ASSERT(group->server_state != NULL);
	pthread_mutex_lock(&group->driving);
	while (group->failure.code == 0 && !atomic_load(stop) &&
		(group->queues.pending > 0 || !all_left(group))) {
		group_drive(group, times_ns(TIME_GROUP_WAIT));
	}
	pthread_mutex_unlock(&group->driving);
	return group->failure.code == 0
		? 0
		: pawl_err_set(err, group->failure.code, "%s", group->failure.msg);
}

/* ---- opening and closing ---- */

static void close_transport(struct coll_transport *transport)
{
	if (transport) {
		transport->close(transport);
	}
}

static void free_group(struct pawl_group *group)
{
	for (uint32_t i = 0; i < GROUP_SLOTS; i++) {
		group_slot_deinit(&group->slots[i]);
		coll_plan_deinit(&group->slots[i].plan);
	}
	coll_control_deinit(&group->control);
	coll_topo_deinit(&group->topo);
	close_transport(group->transport);
	close_transport(group->joining.shm);
	close_transport(group->joining.net);
	pthread_cond_destroy(&group->driver.over);
	pthread_cond_destroy(&group->driver.wake);
	pthread_cond_destroy(&group->queues.completed);
	pthread_mutex_destroy(&group->state);
	pthread_mutex_destroy(&group->driving);
	group_trace_close(group->stats.trace);
	free(group->stats.peers);
	free(group->liveness.last_received_ns);
	free(group->server_state);
	free(group->liveness.gone);
	free(group->route_hint);
	free(group->hostnames);
	free(group->lineage.base_rank);
	free(group);
}

int coll_group_make(struct pawl_group **out, uint32_t rank, uint32_t ranks, uint32_t servers,
	struct pawl_err *err)
{
	uint32_t peers = ranks + servers;
	struct pawl_group *group = FAULT_MEM("coll.group", calloc(1, sizeof(*group)));
	int rv;

	if (!group) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for a group of ranks");
	}
	group->rank = rank;
	group->ranks = ranks;
	group->servers = servers;
	group->peers = peers;
	group->link = coll_link_default;
	memset(group->prefixes, 0xff, sizeof(group->prefixes));
	group->pid = getpid();
	pthread_mutex_init(&group->driving, NULL);
	pthread_mutex_init(&group->state, NULL);
	clock_cond_init(&group->driver.over);
	clock_cond_init(&group->driver.wake);
	clock_cond_init(&group->queues.completed);
	group->liveness.last_received_ns =
		FAULT_MEM("coll.group", calloc(peers, sizeof(*group->liveness.last_received_ns)));
	group->liveness.gone =
		FAULT_MEM("coll.group", calloc(peers, sizeof(*group->liveness.gone)));
	group->stats.peers = FAULT_MEM("coll.group", calloc(peers, sizeof(*group->stats.peers)));
	rv = group->liveness.last_received_ns && group->liveness.gone && group->stats.peers
		? heartbeat_read(&group->liveness.heartbeat_interval_ns, err)
		: pawl_err_set(err, PAWL_ENOMEM, "no memory for %u ranks", ranks);
	if (rv == 0) {
		rv = coll_control_init(&group->control, rank, peers, err);
	}
	if (rv != 0) {
		free_group(group);
		return rv;
	}
	*out = group;
	return 0;
}

/* Returns whether the group has no thread of its own, and its caller drives. */
static bool is_caller_driven(const struct pawl_group *group)
{
	return group->server_state || group->transport->now_ns;
}

int coll_group_start(struct pawl_group *group, struct coll_transport *transport,
	const uint32_t *where, struct pawl_err *err)
{
	int rv = coll_topo_init(&group->topo, where, group->ranks, group->servers, err);
	int sys;

	group->transport = transport;
	if (rv == 0 && group->rank >= group->ranks) {
		rv = group_server_init(group, err);
	}
	if (rv != 0 || group->ranks == 1) {
		group->started = rv == 0;
		return rv;
	}
	group->liveness.checked_ns = group_clock_ns(group);
	for (uint32_t p = 0; p < group->peers; p++) {
		group->liveness.last_received_ns[p] = group->liveness.checked_ns;
	}
	if (is_caller_driven(group)) {
		group->started = true;
		return 0;
	}
	sys = FAULT_SYS("coll.group",
		pthread_create(&group->driver.thread, NULL, run_thread, group));
	if (sys != 0) {
		return pawl_err_set(err, PAWL_EIO, "collectives: start a thread: %s",
			strerror(sys == -1 ? errno : sys));
	}
	group->started = true;
	return 0;
}

void coll_group_set_link(struct pawl_group *group, const struct coll_link *link)
{
	pthread_mutex_lock(&group->driving);
	group->link = *link;
	pthread_mutex_unlock(&group->driving);
}

/* Under driving: tells the peers that we leave, and waits a limited time until that is sent. */
static void send_goodbye(struct pawl_group *group)
{
	struct coll_transport *transport = group->transport;
	int64_t end_ns = group_clock_ns(group) + times_ns(TIME_GROUP_GOODBYE);
	struct pawl_err err;
	uint64_t number = group->queues.submitted;
	bool pending;

	for (uint32_t c = 0; c < COLL_CHANNELS; c++) {
		struct pawl_work *first = group->queues.channels[c].first;

		number = first && first->number < number ? first->number : number;
	}
	group_heartbeat(group);
	coll_control_leave(&group->control, number);
	do { /* at least once, even if this thread was stopped until end_ns */
		uint32_t seen = transport->poll(transport);

		pending = false;
		group_move_control(group);
		for (uint32_t p = 0; p < group->peers; p++) {
			pending |= group_connects_to(group, p) &&
				coll_control_pending(&group->control, p) &&
				!coll_control_left(&group->control, p, &(uint64_t){0});
		}
		if (pending) {
			transport->wait(transport, seen, NS_PER_MS);
		}
	} while (pending && group_clock_ns(group) < end_ns);
	pawl_err_set(&err, PAWL_ECANCELED, "the group was closed");
	if (group->control.failure.code == 0) {
		group->control.failure = err; /* do not send this to other ranks */
	}
	group_fail(group, &err);
}

void pawl_group_leave(struct pawl_group *group)
{
	bool joined;

	if (group->pid != getpid()) {
		return;
	}
	pthread_mutex_lock(&group->state);
	joined = group->started && group->ranks > 1 && !group->closing;
	group->closing = true;
	if (group->ranks == 1 && group->failure.code == 0) { /* fails deferred operations */
		pawl_err_set(&group->failure, PAWL_ECANCELED, "the group was closed");
	}
	pthread_cond_broadcast(&group->driver.wake);
	pthread_cond_broadcast(&group->queues.completed);
	pthread_mutex_unlock(&group->state);
	if (joined && !is_caller_driven(group)) {
		group->transport->wake(group->transport);
		pthread_join(group->driver.thread, NULL);
	}
	if (joined) {
		pthread_mutex_lock(&group->driving);
		send_goodbye(group);
		pthread_mutex_unlock(&group->driving);
	}
}

void pawl_group_close(struct pawl_group *group)
{
	if (group != NULL) {
		pawl_group_leave(group);
		pawl_group_close(group->lineage.grown);
		free_group(group);
	}
}

uint32_t pawl_group_rank(const struct pawl_group *group)
{
	return group->rank;
}

uint32_t pawl_group_ranks(const struct pawl_group *group)
{
	return group->ranks;
}

/* ---- operations ---- */

/* Carries out an operation in a group of one rank. */
static void run_single_rank(struct pawl_group *group, struct pawl_work *work)
{
	const struct pawl_coll_call *call = &work->call;
	bool deferred = call->deferred;
	uint64_t len =
		call->kind == PAWL_ALL_TO_ALL ? call->in_at[1] - call->in_at[0] : call->len_bytes;
	uint64_t in_at = call->kind == PAWL_ALL_TO_ALL ? call->in_at[0] : 0;
	uint64_t out_at = call->kind == PAWL_ALL_TO_ALL ? call->out_at[0] : 0;

	if (call->in != call->out && call->kind != PAWL_BROADCAST && call->kind != PAWL_BARRIER) {
		memmove((uint8_t *)call->out + out_at, (const uint8_t *)call->in + in_at, len);
	}
	pthread_mutex_lock(&group->state);
	group->now_ns = group_clock_ns(group);
	work->code = group->failure.code;
	if (work->code == 0) {
		group_stats_done(group, work);
	}
	group_report_done(group, work);
	if (deferred) {
		group->transport->wake(group->transport); /* a waiting thread drives */
	}
	pthread_mutex_unlock(&group->state);
}

/* Under state: returns 0 if the group accepts operations. */
static int check_group(const struct pawl_group *group, struct pawl_err *err)
{
	if (!group->started || group->closing) {
		return pawl_err_set(err, PAWL_ECANCELED,
			"collectives: the group is not joined, or closed");
	}
	if (group->failure.code != 0) {
		return pawl_err_set(err, group->failure.code, "collectives: %s",
			group->failure.msg);
	}
	return 0;
}

static int set_fork_error(const struct pawl_group *group, struct pawl_err *err)
{
	return pawl_err_set(err, PAWL_ENOTSUP,
		"collectives: the group belongs to process %ld, of which this one is a fork",
		(long)group->pid);
}

static void enqueue(struct pawl_group *group, struct pawl_work *work)
{
	if (is_message(&work->call)) {
		work->number = group->queues.messages_n++;
		group_push(&group->queues.inbox, work);
	} else {
		work->number = group->queues.submitted++;
		priv_of(work)->digest = group->queues.digest;
		group->queues.digest = group_call_digest(group->queues.digest, &work->call);
		group_push(&group->queues.channels[work->number % COLL_CHANNELS], work);
	}
	group->queues.pending++;
	if (group->driver.asleep || work->call.len_bytes >= WAKE_MIN_BYTES) {
		pthread_cond_signal(&group->driver.wake);
	}
}

int pawl_group_submit(struct pawl_group *group, struct pawl_work *work,
	const struct pawl_coll_call *call, struct pawl_err *err)
{
	int64_t now_ns = group_clock_ns(group);
	int rv = group_call_check(call, group->rank, group->ranks, err);

	if (rv == 0 && group->pid != getpid()) {
		rv = set_fork_error(group, err);
	}
	if (rv != 0) {
		return rv;
	}
	*work = (struct pawl_work){.call = *call, .from = call->root, .deferred = call->deferred};
	priv_of(work)->caller = group->rank;
	priv_of(work)->submitted_ns = now_ns;
	priv_of(work)->deadline_ns =
		call->timeout_ns > 0 ? clock_add_ns(now_ns, call->timeout_ns) : NEVER_NS;
	pthread_mutex_lock(&group->state);
	rv = check_group(group, err);
	if (rv == 0 && group->ranks > 1) {
		enqueue(group, work);
	}
	pthread_mutex_unlock(&group->state);
	if (rv == 0 && group->ranks == 1 && !call->deferred) {
		run_single_rank(group, work);
	} else if (rv == 0) {
		group->transport->wake(group->transport);
	}
	return rv;
}

void pawl_group_release(struct pawl_group *group, struct pawl_work *work)
{
	if (group->pid != getpid()) {
		return;
	}
	if (group->ranks == 1) {
		run_single_rank(group, work);
		return;
	}
	pthread_mutex_lock(&group->state);
	__atomic_store_n(&work->deferred, false, __ATOMIC_RELEASE);
	pthread_cond_signal(&group->driver.wake);
	pthread_mutex_unlock(&group->state);
	group->transport->wake(group->transport);
}

struct pawl_work *pawl_group_find_using(struct pawl_group *group, const void *memory,
	uint64_t len_bytes)
{
	const struct group_memory wanted = {.out = memory, .out_bytes = len_bytes};
	struct pawl_work *found = NULL;

	if (group->pid != getpid()) {
		return NULL;
	}
	pthread_mutex_lock(&group->state);
	for (uint32_t c = 0; c < COLL_CHANNELS; c++) {
		for (struct pawl_work *w = group->queues.channels[c].first; w;
			w = priv_of(w)->next) {
			struct group_memory theirs =
				group_call_memory(&w->call, group->rank, group->ranks);

			if (group_memory_conflicts(&wanted, &theirs) &&
				(!found || w->number > found->number)) {
				found = w;
			}
		}
	}
	pthread_mutex_unlock(&group->state);
	return found;
}

/* Under state: waits for the thread that drives, until until_ns at most; if no thread drives,
 * drives until then or until the work is done. */
static void take_turn(struct pawl_group *group, struct pawl_work *work, int64_t now_ns,
	int64_t until_ns)
{
	struct timespec until = timespec_of(until_ns);

	if (group->driver.driven) {
		pthread_cond_timedwait(&group->driver.over, &group->state, &until);
		return;
	}
	group_begin_turn(group);
	while (!pawl_work_done(work) && now_ns < until_ns) {
		group_drive(group, until_ns - now_ns);
		now_ns = pawl_work_done(work) ? until_ns : group_clock_ns(group);
	}
	group_end_turn(group);
}

/* Under state: sets the error of a work that failed. */
static int set_work_error(struct pawl_group *group, const struct pawl_work *work,
	struct pawl_err *err)
{
	char name[GROUP_CALL_TEXT];

	group_call_name(&work->call, name);
	return pawl_err_set(err, work->code, "%s (number %llu): %s", name,
		(unsigned long long)work->number, group->failure.msg);
}

int pawl_group_wait(struct pawl_group *group, struct pawl_work *work, int64_t timeout_ns,
	struct pawl_err *err)
{
	int64_t most_ns = times_ns(TIME_GROUP_WAIT);
	int64_t from_ns;
	int64_t now_ns;
	int64_t end_ns;
	int rv = 0;

	if (pawl_work_done(work) && work->code == 0) {
		return 0;
	}
	if (group->pid != getpid()) {
		return set_fork_error(group, err);
	}
	from_ns = now_ns = group_clock_ns(group);
	end_ns = timeout_ns < 0 ? NEVER_NS : clock_add_ns(from_ns, timeout_ns);
	pthread_mutex_lock(&group->state);
	group->driver.waiters++;
	while (!pawl_work_done(work) && now_ns < end_ns) {
		take_turn(group, work, now_ns,
			end_ns - now_ns < most_ns ? end_ns : now_ns + most_ns);
		now_ns = pawl_work_done(work) ? now_ns : group_clock_ns(group);
	}
	if (!pawl_work_done(work)) {
		rv = pawl_err_set(err, PAWL_ETIMEDOUT,
			"collectives: number %llu is not done within the timeout of %.1f s",
			(unsigned long long)work->number, (double)timeout_ns / NS_PER_S);
	}
	if (rv == 0 && work->code != 0) {
		rv = set_work_error(group, work, err);
	}
	group_stats_waited(group, work, from_ns);
	group->driver.waiters--;
	if (group->driver.waiters == 0 && group->queues.pending > 0) {
		pthread_cond_signal(&group->driver.wake);
	}
	pthread_cond_broadcast(&group->driver.over);
	pthread_mutex_unlock(&group->state);
	return rv;
}
