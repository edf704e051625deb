/* Opens and closes a root; its workers come and go. See root.h for the parts. */
#include "agent/root.h"

#include "agent/peer/peers.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/times.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void ticked(struct loop_timer *timer)
{
	root_advance(timer->user);
}

static void orphaned(struct loop_timer *timer)
{
	struct agent_root *root = timer->user;

	ledger_want_durable(&root->ledger, 0); /* no worker is left to ask for it */
	root_advance(root);
}

static void free_ranks(struct agent_root *root)
{
	for (uint32_t r = 0; root->ranks && r < root->ledger.world; r++) {
		for (int s = 0; s < LEDGER_SLOTS; s++) {
			arena_deinit(&root->ranks[r].arenas[s]);
			record_deinit(&root->ranks[r].records[s]);
			wire_out_deinit(&root->ranks[r].blobs[s]);
		}
	}
	free(root->ranks);
	free(root->storage.save_ranks);
	root->ranks = NULL;
	root->storage.save_ranks = NULL;
}

static int make_ranks(struct agent_root *root, uint32_t world, struct pawl_err *err)
{
	root->ranks = calloc(world, sizeof(*root->ranks));
	root->storage.save_ranks = calloc(world, sizeof(*root->storage.save_ranks));
	if (!root->ranks || !root->storage.save_ranks) {
		free_ranks(root);
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for %u ranks", world);
	}
	return 0;
}

static void init_ledger(struct agent_root *root, uint32_t world, int64_t interval_ns)
{
	const struct ledger_times times = {.wait_ns = times_ns(TIME_LEDGER_WAIT),
		.retry_ns = times_ns(TIME_LEDGER_RETRY)};

	ledger_init(&root->ledger, &times, world, interval_ns, clock_mono_ns());
}

/* Changes the number of ranks. What memory holds belongs to the old ranks, and must be durable
 * before it is freed. */
static int change_world(struct agent_root *root, uint32_t world, struct pawl_err *err)
{
	uint64_t stored_step;
	bool named;

	if (!ledger_all_durable(&root->ledger)) {
		ledger_want_durable(&root->ledger, 0);
		root_advance(root);
		return pawl_err_set(err, PAWL_ETIMEDOUT,
			"the last checkpoint of the run with %u ranks is being made durable",
			root->ledger.world);
	}
	root_new_epoch(root, root->ledger.world, root->epoch.attempt);
	free_ranks(root);
	named = root->ledger.named;
	stored_step = root->ledger.stored_step;
	init_ledger(root, world, root->ledger.interval_ns);
	root->ledger.named = named;
	ledger_record_stored(&root->ledger, stored_step);
	return make_ranks(root, world, err);
}

int root_join(struct agent_root *root, struct agent_conn *conn, uint32_t world, uint32_t attempt,
	struct pawl_err *err)
{
	struct agent_conn *old =
		conn->rank < root->ledger.world ? root->ranks[conn->rank].conn : NULL;
	int rv;

	if (root->state == ROOT_FAILED) {
		*err = root->failed;
		return err->code;
	}
	if (attempt == root->epoch.attempt && old) {
		return pawl_err_set(err, PAWL_EBUSY,
			"rank %u of job %s is running already, as pid %u, and saves to %s: stop "
			"it, or give this run another root or PAWL_JOB_ID",
			conn->job_rank, root->agent->job, old->pid, root->path);
	}
	if (world != root->ledger.world) {
		rv = change_world(root, world, err);
		if (rv != 0) {
			return rv;
		}
	}
	if (attempt != root->epoch.attempt || root->ranks[conn->rank].seen) {
		root_new_epoch(root, world, attempt);
	}
	if (!root->workers.running) {
		root_event(root, EVENT_STARTED, NULL);
	}
	conn->root = root;
	root->workers.left = false;
	root->ranks[conn->rank].conn = conn;
	root->ranks[conn->rank].seen = true;
	loop_timer_cancel(root->agent->loop, &root->workers.orphan);
	return 0;
}

void root_leave(struct agent_root *root, struct agent_conn *conn)
{
	bool left = conn->leaving;
	char why[64];

	restore_done(root, conn);
	if (!left) {
		ledger_rank_died(&root->ledger, conn->rank);
		root->workers.crashed = true;
	}
	root->ranks[conn->rank].conn = NULL;
	conn->root = NULL;
	if (!left && root->workers.running) {
		snprintf(why, sizeof(why), "rank %u (pid %u) is gone", conn->job_rank, conn->pid);
		root_event(root, EVENT_FAILED, why);
	}
	root_settle_all(root);
	for (uint32_t r = 0; r < root->ledger.world; r++) {
		left = left && !root->ranks[r].conn;
		if (root->ranks[r].conn) {
			return;
		}
	}
	if (root->workers.running) {
		root_event(root, EVENT_ENDED, NULL);
	}
	root->workers.left = left && !root->workers.crashed;
	root->workers.left_ns = clock_mono_ns();
	loop_timer_start(root->agent->loop, &root->workers.orphan,
		clock_mono_ns() +
			(left || root->agent->close_idle_roots ? 0 : times_ns(TIME_ROOT_ORPHAN)));
}

struct agent_root *root_find(const struct agent *agent, const char *path)
{
	for (struct agent_root *root = agent->roots; root; root = root->next) {
		if (strcmp(root->path, path) == 0) {
			return root;
		}
	}
	return NULL;
}

static void due_fired(struct loop_timer *timer)
{
	struct agent_root *root = timer->user;

	root_due(root);
	root_advance(root);
}

int root_open(struct agent *agent, const char *path, const struct persist_options *options,
	int64_t interval_ns, struct agent_root **out, struct pawl_err *err)
{
	struct agent_root *root = calloc(1, sizeof(*root));
	struct persist_job *job;
	int rv;

	if (!root || !(root->path = strdup(path))) {
		free(root);
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for root %s", path);
	}
	root->agent = agent;
	root->first_rank = options->first_rank;
	root->remote_ranks = options->remote_ranks;
	root->epoch.begun_ns = clock_wall_ns();
	root->tick = (struct loop_timer){.fired = ticked, .user = root};
	root->workers.orphan = (struct loop_timer){.fired = orphaned, .user = root};
	root_init_advice(root);
	root->storage.slow = (struct loop_timer){.fired = root_slow_fired, .user = root};
	root->schedule.due = (struct loop_timer){.fired = due_fired, .user = root};
	init_ledger(root, options->ranks, interval_ns);
	root->ledger.first_rank = options->first_rank;
	rv = make_ranks(root, options->ranks, err);
	if (rv != 0) {
		goto free_root;
	}
	job = root_job(root, PERSIST_OPEN, "");
	if (!job) {
		rv = pawl_err_set(err, PAWL_ENOMEM, "no memory for root %s", path);
		goto free_ranks;
	}
	rv = persist_start(&root->storage.thread, agent->loop, options, err);
	if (rv != 0) {
		goto free_job;
	}
	root_peers_open(root);
	persist_submit(root->storage.thread, job);
	root_hosts_begin(root);
	*out = root;
	return 0;
free_job:
	free(job);
free_ranks:
	free_ranks(root);
free_root:
	free(root->path);
	free(root);
	return rv;
}

void root_close(struct agent_root *root)
{
	loop_timer_cancel(root->agent->loop, &root->tick);
	loop_timer_cancel(root->agent->loop, &root->workers.orphan);
	loop_timer_cancel(root->agent->loop, &root->schedule.due);
	loop_timer_cancel(root->agent->loop, &root->storage.slow);
	root_rows_sweep(root, true);
	restore_peers_end(root);
	root_peers_close(root);
	if (!persist_stop(root->storage.thread, times_ms(TIME_ROOT_STOP))) {
		/* The thread hangs in a disk and still points here; the process is leaving. */
		if (root->agent->peers != NULL) {
			peers_outlive(root->agent->peers);
		}
		return;
	}
	free_ranks(root);
	free(root->path);
	free(root);
}
