/* Records the core's nodes and jobs in the history (history.h). It has what `pawl ls` and `pawl
 * top` show to any user: of a submission, only the job's name. */
#include "daemon/daemon_impl.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "daemon/sched_msg_json.h"

#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static double wall_s(const struct database_clock *clock, int64_t core_ns)
{
	return (double)(clock->wall_ns - clock->core_ns + core_ns) / NS_PER_S;
}

/* ---- nodes and jobs as rows ---- */

static void fill_node(const struct daemon *d, const struct core_node *node,
	struct history_node *row)
{
	bool gone = node->state == CORE_NODE_LOST;

	*row = (struct history_node){.slots = gone ? 0 : node->offer.slots,
		.price = node->offer.price,
		.spot = node->offer.spot};
	snprintf(row->name, sizeof(row->name), "%s", node->offer.name);
	snprintf(row->pool, sizeof(row->pool), "%s", node->offer.pool);
	snprintf(row->state, sizeof(row->state), "%s",
		gone ? "gone" : core_node_state_name(node->state));
	if (node->offer.type < d->options->types_n) {
		snprintf(row->type, sizeof(row->type), "%s", d->options->types[node->offer.type]);
	}
}

/* Fills the nodes that a job is on. False: no memory. */
static bool fill_entries(const struct daemon *d, const struct core_placement *place,
	struct history_job *row)
{
	row->entries = calloc(place->n + 1, sizeof(*row->entries));
	for (uint32_t i = 0; row->entries && i < place->n; i++) {
		const struct core_node *node = core_node_find(d->core, place->entries[i].node);

		if (node) {
			struct history_entry *entry = &row->entries[row->entries_n++];

			entry->replicas = place->entries[i].replicas;
			snprintf(entry->node, sizeof(entry->node), "%s", node->offer.name);
		}
	}
	return row->entries != NULL;
}

/* Fills the user's name. It is looked up once per job: a look-up may be slow, for example over
 * LDAP. */
static void fill_user(const struct history_job *last, uint32_t uid, struct history_job *row)
{
	if (last) {
		snprintf(row->user, sizeof(row->user), "%s", last->user);
	} else {
		sched_msg_user_name(uid, row->user, sizeof(row->user));
	}
}

static void put_job(struct daemon *d, const struct database_clock *clock,
	const struct core_job *job)
{
	const struct history_job *last = history_job_find(d->history, job->id);
	struct core_outlook outlook;
	struct history_job row;

	core_outlook_now(d->core, job, &outlook);
	row = (struct history_job){.id = job->id,
		.least = job->request.least,
		.most = job->request.most,
		.submitted_s = last ? last->submitted_s : wall_s(clock, job->submitted_ns),
		.restarts = job->restarts,
		.goodput = outlook.now,
		.batch = outlook.batch,
		.over = job->state >= CORE_DONE,
		.exit_code = job->exit_code};
	snprintf(row.name, sizeof(row.name), "%s", job->request.name);
	snprintf(row.queue, sizeof(row.queue), "%s", d->options->core.queues[job->queue].name);
	snprintf(row.state, sizeof(row.state), "%s", core_state_name(job->state));
	snprintf(row.why, sizeof(row.why), "%s", core_reason_text(job->reason));
	fill_user(last, job->request.owner, &row);
	if (fill_entries(d, &job->current, &row)) {
		history_put_job(d->history, &row);
	}
}

/* Puts the nodes that have changed, or all. */
static void put_nodes(struct daemon *d, bool all)
{
	const struct core_node *nodes;
	uint32_t n = core_nodes(d->core, &nodes);

	for (uint32_t i = 0; i < n; i++) {
		if (all || nodes[i].dirty) {
			struct history_node row;

			fill_node(d, &nodes[i], &row);
			history_put_node(d->history, &row);
		}
	}
}

static void put_jobs(struct daemon *d, const struct database_clock *clock, bool all)
{
	const struct core_job *const *jobs;
	uint32_t n = core_jobs(d->core, &jobs);

	for (uint32_t i = 0; i < n; i++) {
		if (all || jobs[i]->dirty) {
			put_job(d, clock, jobs[i]);
		}
	}
}

void daemon_record_history(struct daemon *d, const struct database_clock *clock)
{
	if (d->history) {
		history_begin(d->history, (double)clock->wall_ns / NS_PER_S);
		put_nodes(d, false);
		put_jobs(d, clock, false);
	}
}

void daemon_write_history(struct daemon *d)
{
	if (d->history) {
		history_end(d->history);
	}
}

/* ---- what the history lacks ---- */

/* Rows that the last scheduler stored in the database and did not write to the history: those of
 * one step if it was killed, of more if power was lost. They become one step, at the time of the
 * newest row. */
struct catch_up {
	struct daemon *daemon;
	const struct database_clock *clock;
	int64_t newest_ns;        /* time of the newest row, wall clock */
	struct history_job *over; /* owned; jobs that have ended since */
	uint32_t over_n;
};

static void on_end(void *user, const struct database_job *job)
{
	struct catch_up *c = user;
	struct history_job *row = &c->over[c->over_n - 1];

	row->restarts = job->restarts;
	row->exit_code = job->exit_code;
	snprintf(row->state, sizeof(row->state), "%s", job->state);
	snprintf(row->why, sizeof(row->why), "%s", job->reason);
	c->newest_ns = job->since_ns > c->newest_ns ? job->since_ns : c->newest_ns;
}

/* Finds jobs that are in the history and no longer in the core. The database does not have the end
 * of a job that ended long ago. */
static void find_ends(struct catch_up *c)
{
	struct daemon *d = c->daemon;
	const struct history_job *const *known;
	uint32_t n = history_jobs(d->history, &known);

	c->over = calloc(n + 1, sizeof(*c->over));
	for (uint32_t i = 0; c->over && i < n; i++) {
		struct history_job *row = &c->over[c->over_n];

		if (core_job_find(d->core, known[i]->id)) {
			continue;
		}
		if (d->rebuilt) {
			log_line(LOG_WARNING,
				"job %llu %s of %s was %s, and is lost: it must be submitted again",
				(unsigned long long)known[i]->id, known[i]->name, known[i]->user,
				known[i]->state);
		}
		*row = *known[i];
		row->entries = NULL;
		row->entries_n = 0;
		row->over = true;
		snprintf(row->state, sizeof(row->state), "?");
		row->why[0] = '\0';
		c->over_n++;
		sched_database_each_ended(d->database,
			&(const struct database_query){.id = row->id, .most = 1}, on_end, c, NULL);
	}
}

static void find_newest(struct catch_up *c)
{
	const struct core_job *const *jobs;
	uint32_t n = core_jobs(c->daemon->core, &jobs);

	for (uint32_t i = 0; i < n; i++) {
		int64_t since_ns = c->clock->wall_ns - c->clock->core_ns + jobs[i]->since_ns;

		c->newest_ns = since_ns > c->newest_ns ? since_ns : c->newest_ns;
	}
}

/* Puts nodes that are in the history and no longer in the core as gone. */
static void put_gone(struct daemon *d)
{
	const struct core_node *nodes;
	const struct history_node *const *known;
	uint32_t nodes_n = core_nodes(d->core, &nodes);
	uint32_t i = history_nodes(d->history, &known);

	while (i-- > 0) { /* backwards: the list shrinks behind i */
		struct history_node row = *known[i];
		bool there = false;

		for (uint32_t n = 0; n < nodes_n && !there; n++) {
			there = strcmp(nodes[n].offer.name, row.name) == 0;
		}
		if (!there) {
			row.slots = 0;
			snprintf(row.state, sizeof(row.state), "gone");
			history_put_node(d->history, &row);
		}
	}
}

static void put_everything(struct daemon *d, struct catch_up *c)
{
	put_nodes(d, true);
	for (uint32_t i = 0; i < c->over_n; i++) {
		history_put_job(d->history, &c->over[i]);
	}
	put_jobs(d, c->clock, true);
	put_gone(d);
}

static void record_event(struct daemon *d, const char *event)
{
	history_begin(d->history, (double)clock_wall_ns() / NS_PER_S);
	history_put_event(d->history, event);
	history_end(d->history);
}

void daemon_open_history(struct daemon *d)
{
	const struct group *group = d->options->group ? getgrnam(d->options->group) : NULL;
	const struct database_clock clock = {daemon_now_ns(d), clock_wall_ns()};
	struct catch_up c = {.daemon = d, .clock = &clock};
	char dir[PATH_MAX];
	char host[CORE_NAME_MAX] = "?";
	const struct history_options options = {.dir = dir,
		.host = host,
		.policy = d->options->core.policy->name,
		.group = group ? group->gr_gid : (gid_t)-1,
		.file_bytes = HISTORY_FILE_BYTES,
		.all_bytes = HISTORY_ALL_BYTES};
	struct pawl_err err;

	gethostname(host, sizeof(host) - 1);
	snprintf(dir, sizeof(dir), "%s/" HISTORY_DIR, d->options->root);
	if (history_open(&d->history, &options, &err) != 0) {
		log_line(LOG_WARNING, "%s: no history is written", err.msg);
		return;
	}
	find_ends(&c);
	find_newest(&c);
	if (c.newest_ns > clock.wall_ns || c.newest_ns == 0) {
		c.newest_ns = clock.wall_ns;
	}
	history_begin(d->history, (double)c.newest_ns / NS_PER_S);
	put_everything(d, &c);
	history_end(d->history);
	free(c.over);
	record_event(d, "started");
}

void daemon_close_history(struct daemon *d, bool stopped)
{
	if (d->history && stopped) {
		record_event(d, "stopped");
	}
	history_close(d->history);
	d->history = NULL;
}
