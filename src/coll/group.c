/*
 * A group of ranks: see group.h for the contract.
 *
 * An operation's channel is its number modulo COLL_CHANNELS, and a channel carries one operation at
 * a time: so the streams of a channel hold the bytes of one operation after another, in the order
 * in which all ranks do them, and need no headers.
 *
 * Locks, in order: driving (the port, plans and what is under way; whoever holds it moves bytes),
 * then state (queues, counts, failure; never held across a call to the port but wake).
 */
#include "coll/group.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS   16u         /* plans kept, with memory for an operation each */
#define PART    (64u << 10) /* bytes moved at a time, so that all streams get their turn */
#define WAIT_NS 50000000    /* that a driver waits for the port before it looks around */
#define LATE_NS 1000000     /* after which what nobody waits for is driven by the thread */
#define IDLE_NS 100000000   /* without operations: the thread sleeps until it is woken */
#define LARGE   (64u << 10) /* bytes of a vector for which the thread is woken at once */

/* A plan, and the memory of an operation that it is carried out for. */
struct group_slot {
	struct coll_call call; /* that it was made for: kind, way, root and length */
	struct coll_plan plan; /* of it; no plan yet while exec has none */
	struct coll_exec exec; /* of the plan */
	bool busy;             /* an operation has it */
	uint64_t used;         /* when, counted in operations */
};

struct coll_group {
	const struct coll_topo *topo;           /* the caller's */
	uint32_t rank;                          /* ours */
	struct coll_port *port;                 /* owned */
	pthread_mutex_t driving;                /* see above */
	struct group_slot slots[SLOTS];         /* driving's */
	pthread_mutex_t state;                  /* see above; guards all that follows */
	pthread_cond_t over;                    /* an operation, or somebody's turn at driving */
	pthread_cond_t work;                    /* for the group's thread */
	struct coll_work *first[COLL_CHANNELS]; /* the one under way, and those that wait for it */
	struct coll_work *last[COLL_CHANNELS];  /* of them */
	uint64_t submitted;                     /* operations, ever */
	uint32_t pending;                       /* not done */
	uint32_t waiters;        /* threads in wait: the group's own leaves it to them */
	bool driven;             /* somebody holds driving, or is about to */
	bool asleep;             /* the group's thread waits for work, however long */
	bool closing;            /* it is to end */
	struct pawl_err failure; /* code 0: none */
	pthread_t thread;        /* the group's own */
};

/* ---- plans ---- */

static int make_plan(struct coll_group *group, struct coll_plan *plan, const struct coll_call *call,
	struct pawl_err *err)
{
	const struct coll_topo *topo = group->topo;

	switch (call->kind) {
	case COLL_ALL_REDUCE:
		return coll_plan_all_reduce(plan, topo, group->rank, call->way, call->len_bytes,
			err);
	case COLL_REDUCE:
		return coll_plan_reduce(plan, topo, group->rank, call->root, call->way,
			call->len_bytes, err);
	case COLL_BROADCAST:
		return coll_plan_broadcast(plan, topo, group->rank, call->root, call->way,
			call->len_bytes, err);
	case COLL_ALL_GATHER:
		return coll_plan_all_gather(plan, topo, group->rank, call->len_bytes, err);
	case COLL_REDUCE_SCATTER:
		return coll_plan_reduce_scatter(plan, topo, group->rank, call->len_bytes, err);
	case COLL_GATHER:
		return coll_plan_gather(plan, topo->ranks, group->rank, call->root, call->len_bytes,
			err);
	default:
		return coll_plan_scatter(plan, topo->ranks, group->rank, call->root,
			call->len_bytes, err);
	}
}

static bool has_plan(const struct group_slot *slot, const struct coll_call *call)
{
	const struct coll_call *made = &slot->call;

	return slot->exec.plan != NULL && made->kind == call->kind && made->way == call->way &&
		made->root == call->root && made->len_bytes == call->len_bytes;
}

/* A free slot with the call's plan, else the free one that was not used for the longest time. There
 * are more slots than channels. */
static struct group_slot *find_slot(struct coll_group *group, const struct coll_call *call)
{
	struct group_slot *found = NULL;

	for (uint32_t i = 0; i < SLOTS; i++) {
		struct group_slot *slot = &group->slots[i];

		if (slot->busy) {
			continue;
		}
		if (has_plan(slot, call)) {
			return slot;
		}
		if (found == NULL || slot->used < found->used) {
			found = slot;
		}
	}
	return found;
}

static int take_slot(struct coll_group *group, struct coll_work *work, struct pawl_err *err)
{
	struct group_slot *slot = find_slot(group, &work->call);
	int rv = 0;

	if (!has_plan(slot, &work->call)) {
		coll_exec_deinit(&slot->exec);
		slot->call = work->call;
		rv = make_plan(group, &slot->plan, &work->call, err);
		if (rv == 0) {
			rv = coll_exec_init(&slot->exec, &slot->plan,
				group->topo->ranks + group->topo->servers, coll_kernel_best(), err);
		}
	}
	if (rv == 0) {
		slot->busy = true;
		slot->used = work->number + 1;
		work->slot = slot;
		coll_exec_start(&slot->exec, work->call.fold, work->call.type, work->call.in,
			work->call.out);
	}
	return rv;
}

/* ---- driving ---- */

/* The operation is over; the next one of its channel may begin. */
static void finish_op(struct coll_group *group, uint32_t channel, int code)
{
	struct coll_work *work = group->first[channel];

	pthread_mutex_lock(&group->state);
	group->first[channel] = work->next;
	if (work->next == NULL) {
		group->last[channel] = NULL;
	}
	if (work->slot) {
		work->slot->busy = false;
	}
	work->code = code;
	group->pending--;
	__atomic_store_n(&work->done, true, __ATOMIC_RELEASE); /* the caller may free it now */
	pthread_cond_broadcast(&group->over);
	pthread_mutex_unlock(&group->state);
}

static void fail_all(struct coll_group *group, const struct pawl_err *why)
{
	pthread_mutex_lock(&group->state);
	if (group->failure.code == 0) {
		group->failure = *why;
	}
	pthread_mutex_unlock(&group->state);
	for (uint32_t c = 0; c < COLL_CHANNELS; c++) {
		while (group->first[c] != NULL) {
			finish_op(group, c, group->failure.code);
		}
	}
}

/* Bytes of an operation, to and from one peer. Whether any went. */
static bool move_peer(struct coll_group *group, struct coll_exec *exec, uint32_t peer,
	uint32_t channel)
{
	struct coll_port *port = group->port;
	const void *from;
	void *to;
	size_t n = coll_exec_to_send(exec, peer, &from);
	bool moved = false;

	if (n > 0) {
		n = port->send(port, peer, channel, from, n < PART ? n : PART);
	}
	if (n > 0) {
		coll_exec_sent(exec, peer, n);
		moved = true;
	}
	n = coll_exec_to_receive(exec, peer, &to);
	if (n > 0) {
		n = port->receive(port, peer, channel, to, n < PART ? n : PART);
	}
	if (n > 0) {
		coll_exec_received(exec, peer, n);
		moved = true;
	}
	return moved;
}

/* Under driving. */
static bool move_channel(struct coll_group *group, uint32_t channel)
{
	struct coll_work *work;
	struct pawl_err err;
	bool moved = false;

	pthread_mutex_lock(&group->state);
	work = group->first[channel];
	pthread_mutex_unlock(&group->state);
	if (work == NULL) {
		return false;
	}
	if (work->slot == NULL && take_slot(group, work, &err) != 0) {
		fail_all(group, &err);
		return true;
	}
	for (uint32_t peer = 0; peer < work->slot->exec.peers; peer++) {
		moved |= move_peer(group, &work->slot->exec, peer, channel);
	}
	if (coll_exec_done(&work->slot->exec)) {
		finish_op(group, channel, 0);
		moved = true;
	}
	return moved;
}

/* Under driving: all that can be moved now, then, if that was nothing, waits for more. */
static void drive(struct coll_group *group, int64_t wait_ns)
{
	struct coll_port *port = group->port;
	uint32_t seen = port->look(port);
	struct pawl_err err;
	const char *why;
	uint32_t lost;
	bool moved = false;

	for (uint32_t c = 0; c < COLL_CHANNELS; c++) {
		moved |= move_channel(group, c);
	}
	if (moved) {
		return;
	}
	lost = port->lost(port, &why);
	if (lost != COLL_NOBODY) {
		pawl_err_set(&err, PAWL_EPEER, "collectives: rank %u is lost: %s", lost, why);
		fail_all(group, &err);
	} else if (wait_ns > 0) {
		port->wait(port, seen, wait_ns < WAIT_NS ? wait_ns : WAIT_NS);
	}
}

static struct timespec after(int64_t ns)
{
	int64_t until_ns = clock_mono_ns() + ns;

	return (struct timespec){until_ns / NS_PER_S, until_ns % NS_PER_S};
}

/* Under state: the thread has nothing to do for now. */
static void rest(struct coll_group *group, int64_t idle_since_ns)
{
	struct timespec until = after(LATE_NS);

	if (clock_mono_ns() - idle_since_ns < IDLE_NS) {
		pthread_cond_timedwait(&group->work, &group->state, &until);
		return;
	}
	group->asleep = true;
	pthread_cond_wait(&group->work, &group->state);
	group->asleep = false;
}

/* Under state: somebody's turn, which nobody else has. */
static void begin_turn(struct coll_group *group)
{
	group->driven = true;
	pthread_mutex_unlock(&group->state);
	pthread_mutex_lock(&group->driving);
}

static void end_turn(struct coll_group *group)
{
	pthread_mutex_unlock(&group->driving);
	pthread_mutex_lock(&group->state);
	group->driven = false;
	pthread_cond_broadcast(&group->over);
}

/*
 * The group's own thread: drives while something is to be done and nobody waits for it. It is not
 * woken for a small operation: whoever submits one mostly waits for it at once, and is quicker
 * alone.
 */
static void *run_thread(void *user)
{
	struct coll_group *group = user;
	int64_t idle_since_ns = clock_mono_ns();

	pthread_mutex_lock(&group->state);
	while (!group->closing) {
		if (group->pending > 0) {
			idle_since_ns = clock_mono_ns();
		}
		if (group->pending == 0 || group->waiters > 0 || group->driven) {
			rest(group, idle_since_ns);
			continue;
		}
		begin_turn(group);
		drive(group, WAIT_NS);
		end_turn(group);
	}
	pthread_mutex_unlock(&group->state);
	return NULL;
}

/* ---- for callers ---- */

int coll_group_open(struct coll_group **out, const struct coll_topo *topo, uint32_t rank,
	struct coll_port *port, struct pawl_err *err)
{
	struct coll_group *group = FAULT_MEM("coll.group", calloc(1, sizeof(*group)));
	int sys;

	if (!group) {
		port->close(port);
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for a group of ranks");
	}
	group->topo = topo;
	group->rank = rank;
	group->port = port;
	pthread_mutex_init(&group->driving, NULL);
	pthread_mutex_init(&group->state, NULL);
	clock_cond_init(&group->over);
	clock_cond_init(&group->work);
	sys = FAULT_SYS("coll.group", pthread_create(&group->thread, NULL, run_thread, group));
	if (sys != 0) {
		port->close(port);
		free(group);
		return pawl_err_set(err, PAWL_EIO, "collectives: start a thread: %s",
			strerror(sys == -1 ? errno : sys));
	}
	*out = group;
	return 0;
}

void coll_group_close(struct coll_group *group)
{
	struct pawl_err err;

	if (group == NULL) {
		return;
	}
	pawl_err_set(&err, PAWL_ECANCELED, "collectives: the group was closed");
	pthread_mutex_lock(&group->state);
	group->closing = true;
	pthread_cond_broadcast(&group->work);
	pthread_mutex_unlock(&group->state);
	group->port->wake(group->port);
	pthread_join(group->thread, NULL);
	pthread_mutex_lock(&group->driving);
	fail_all(group, &err);
	pthread_mutex_unlock(&group->driving);
	pthread_mutex_lock(&group->state);
	while (group->waiters > 0) {
		pthread_cond_wait(&group->over, &group->state);
	}
	pthread_mutex_unlock(&group->state);
	for (uint32_t i = 0; i < SLOTS; i++) {
		coll_exec_deinit(&group->slots[i].exec);
		coll_plan_deinit(&group->slots[i].plan);
	}
	group->port->close(group->port);
	pthread_cond_destroy(&group->over);
	pthread_cond_destroy(&group->work);
	pthread_mutex_destroy(&group->state);
	pthread_mutex_destroy(&group->driving);
	free(group);
}

static int check_call(const struct coll_call *call, uint32_t ranks, struct pawl_err *err)
{
	if (!coll_fold_fits(call->fold, call->type)) {
		return pawl_err_set(err, PAWL_EINVAL,
			"collectives: bits of floating-point numbers cannot be combined");
	}
	if (call->len_bytes % coll_type_bytes(call->type) != 0) {
		return pawl_err_set(err, PAWL_EINVAL,
			"collectives: %llu bytes are no whole number of elements of %zu",
			(unsigned long long)call->len_bytes, coll_type_bytes(call->type));
	}
	if (call->root >= ranks) {
		return pawl_err_set(err, PAWL_EINVAL, "collectives: root %u of %u ranks",
			call->root, ranks);
	}
	return 0;
}

int coll_group_submit(struct coll_group *group, struct coll_work *work,
	const struct coll_call *call, struct pawl_err *err)
{
	uint32_t channel;
	int rv = check_call(call, group->topo->ranks, err);

	if (rv != 0) {
		return rv;
	}
	*work = (struct coll_work){.call = *call};
	pthread_mutex_lock(&group->state);
	if (group->failure.code != 0) {
		rv = pawl_err_set(err, group->failure.code, "%s", group->failure.msg);
		pthread_mutex_unlock(&group->state);
		return rv;
	}
	work->number = group->submitted++;
	channel = work->number % COLL_CHANNELS;
	if (group->last[channel] != NULL) {
		group->last[channel]->next = work;
	} else {
		group->first[channel] = work;
	}
	group->last[channel] = work;
	group->pending++;
	if (group->asleep || call->len_bytes >= LARGE) {
		pthread_cond_signal(&group->work);
	}
	pthread_mutex_unlock(&group->state);
	group->port->wake(group->port);
	return 0;
}

static bool is_done(const struct coll_work *work)
{
	return __atomic_load_n(&work->done, __ATOMIC_ACQUIRE);
}

/* Under state: waits a while for another driver, or drives. */
static void take_turn(struct coll_group *group, struct coll_work *work, int64_t left_ns)
{
	int64_t wait_ns = left_ns < WAIT_NS ? left_ns : WAIT_NS;
	int64_t until_ns = clock_mono_ns() + wait_ns;
	struct timespec until = after(wait_ns);

	if (group->driven) {
		pthread_cond_timedwait(&group->over, &group->state, &until);
		return;
	}
	begin_turn(group);
	while (!is_done(work) && clock_mono_ns() < until_ns) {
		drive(group, until_ns - clock_mono_ns());
	}
	end_turn(group);
}

int coll_group_wait(struct coll_group *group, struct coll_work *work, int64_t timeout_ns,
	struct pawl_err *err)
{
	int64_t end_ns = clock_mono_ns() + timeout_ns;
	int rv = 0;

	pthread_mutex_lock(&group->state);
	group->waiters++;
	while (!is_done(work) && rv == 0) {
		int64_t left_ns = end_ns - clock_mono_ns();

		if (left_ns <= 0) {
			rv = pawl_err_set(err, PAWL_ETIMEDOUT,
				"collectives: operation %llu is not done after %.1f s",
				(unsigned long long)work->number, (double)timeout_ns / NS_PER_S);
		} else {
			take_turn(group, work, left_ns);
		}
	}
	if (rv == 0 && work->code != 0) {
		rv = pawl_err_set(err, work->code, "%s", group->failure.msg);
	}
	group->waiters--;
	pthread_cond_broadcast(&group->over);
	pthread_mutex_unlock(&group->state);
	return rv;
}
