/*
 * Opens the database at start, and compares it with the content of the scheduler's directory.
 *
 * Happy path: the file exists and has all runs; or the directory is empty.
 *
 * Two cases are refused before anything is changed, since the core would end runs that it does not
 * know: the file is missing, empty or not a scheduler's, though runs or a history exist beside it;
 * or the file lacks a run, as an older copy does. With --rebuild a file that cannot be used is put
 * aside, and unknown runs are taken over by their orders (order.h, run_placement.h). If a rebuild
 * is interrupted, the next start finds unknown runs, as before.
 */
#include "daemon/daemon_impl.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/log.h"
#include "engine/local/run_placement.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ASIDE_MAX 100u /* files that were put aside, at most */
#define REMEDY                                                                                     \
	"Nothing was touched, and jobs go on. Put the newest copy of the file back, or start "     \
	"with --rebuild, which takes over the jobs that run and forgets those that wait"
#define SLURM_REMEDY                                                                               \
	"Nothing was touched, and jobs go on. Put the newest copy of the file back; or, to begin " \
	"anew, scancel the pilots, and move history/ away"

/* ---- what lies beside the database ---- */

static bool is_run(const char *name)
{
	unsigned long long job;
	unsigned long long start;
	int used = 0;

	return sscanf(name, "%20llu.%20llu%n", &job, &start, &used) == 2 && name[used] == '\0';
}

/* Returns whether there are runs; true also if that is not known: no new file is made then. */
static bool has_runs(const struct daemon *d)
{
	char path[PATH_MAX];
	struct dirent *entry;
	bool found = false;
	DIR *dir;

	snprintf(path, sizeof(path), "%s/runs", d->options->root);
	dir = FAULT_MEM("rebuild.look", opendir(path));
	if (!dir) {
		return errno != ENOENT;
	}
	while (errno = 0, !found && (entry = readdir(dir))) {
		found = is_run(entry->d_name);
	}
	found = found || errno != 0;
	closedir(dir);
	return found;
}

/* Returns whether there is a history; true also if that is not known. */
static bool has_history(const struct daemon *d)
{
	char path[PATH_MAX];
	uint64_t *numbers = NULL;
	uint32_t n = 0;
	int rv;

	snprintf(path, sizeof(path), "%s/" HISTORY_DIR, d->options->root);
	rv = history_files(path, &numbers, &n, NULL);
	free(numbers);
	return rv == 0 ? n > 0 : rv != PAWL_ENOENT;
}

/* Returns the highest job number in the history and the jobs' directories. */
static uint64_t find_highest(const struct daemon *d)
{
	char path[PATH_MAX];
	uint64_t highest = 0;
	struct dirent *entry;
	DIR *dir;

	snprintf(path, sizeof(path), "%s/" HISTORY_DIR, d->options->root);
	history_highest_job(path, &highest);
	snprintf(path, sizeof(path), "%s/jobs", daemon_shared_dir(d));
	dir = opendir(path);
	while (dir && (entry = readdir(dir))) {
		char *end;
		uint64_t job = strtoull(entry->d_name, &end, 10);

		highest = *end == '\0' && job > highest && job < INT64_MAX ? job : highest;
	}
	if (dir) {
		closedir(dir);
	}
	return highest;
}

/* ---- opening ---- */

static int open_database(struct daemon *d, const char *path, bool make, struct pawl_err *err)
{
	struct database_clock clock;
	int rv;

	umask(077); /* the file has what users submitted, secrets included */
	rv = sched_database_open(&d->database, path, make, err);
	umask(022);
	rv = rv == 0 ? daemon_number_types(d, err) : rv;
	rv = rv == 0 ? sched_database_restore(d->database, &d->options->core, &d->core, &clock, err)
		     : rv;
	if (rv == 0) {
		daemon_set_clock(d, &clock);
	}
	return rv;
}

/* Renames the file, and those that SQLite keeps beside it. None is removed: a user may still need
 * it. */
static int put_aside(struct daemon *d, const char *path, struct pawl_err *err)
{
	static const char *const suffixes[] = {"-wal", "-shm", ""};
	char to[PATH_MAX + 32];
	char from[PATH_MAX + 32];
	uint32_t n = 1;

	sched_database_close(d->database);
	d->database = NULL;
	while (snprintf(to, sizeof(to), "%s.lost%u", path, n) > 0 && access(to, F_OK) == 0) {
		if (++n > ASIDE_MAX) {
			return pawl_err_set(err, PAWL_ELIMIT,
				"%s: %u files like it were put aside: remove some", to, ASIDE_MAX);
		}
	}
	for (size_t i = 0; i < sizeof(suffixes) / sizeof(*suffixes); i++) {
		snprintf(from, sizeof(from), "%s%s", path, suffixes[i]);
		snprintf(to, sizeof(to), "%s.lost%u%s", path, n, suffixes[i]);
		if (rename(from, to) == 0) {
			log_line(LOG_WARNING, "%s was put aside as %s", from, to);
		} else if (errno != ENOENT) {
			return pawl_err_sys(err, "rename %s to %s", from, to);
		}
	}
	return 0;
}

/* Returns whether the file is missing, damaged or not a database, rather than out of reach. */
static bool is_lost(const struct daemon *d, int rv)
{
	bool alien = rv == PAWL_EINVAL && !d->database;

	return rv == PAWL_ENOENT || rv == PAWL_ECORRUPT || alien;
}

static int refuse_file(const struct daemon *d, bool runs, struct pawl_err *err)
{
	char why[sizeof(err->msg)];

	snprintf(why, sizeof(why), "%s", err->msg);
	return pawl_err_set(err, PAWL_ECORRUPT, "%.160s, though %s. %s", why,
		runs ? "jobs lie in runs/ beside it" : "history/ beside it tells of jobs",
		d->options->pools ? SLURM_REMEDY : REMEDY);
}

int daemon_open_database(struct daemon *d, struct pawl_err *err)
{
	bool runs = has_runs(d);
	bool beside = runs || has_history(d);
	char path[PATH_MAX];
	int rv;

	snprintf(path, sizeof(path), "%s/sched.db", d->options->root);
	rv = open_database(d, path, !beside, err);
	if (!beside || !is_lost(d, rv)) {
		return rv;
	}
	if (!d->options->rebuild) {
		return rv == PAWL_ECORRUPT ? rv : refuse_file(d, runs, err);
	}
	log_line(LOG_WARNING, "%s", err->msg);
	rv = put_aside(d, path, err);
	d->rebuilt = true;
	return rv == 0 ? open_database(d, path, true, err) : rv;
}

/* ---- runs that are not known ---- */

struct found_run {
	uint64_t job;
	uint64_t start_generation;
	uint64_t generation;
	bool over;
	char *dir; /* owned */
};

struct found_runs {
	struct daemon *daemon;
	struct found_run *at; /* owned; by job, then by start */
	uint32_t n;
	uint32_t max;
	int rv; /* why the list is not complete; 0: it is */
	struct pawl_err *err;
};

static void on_child_ended(void *user, const struct database_job *job)
{
	*(bool *)user = true;
}

static bool is_known(struct found_runs *all, const struct sched_engine_run *kept)
{
	const struct daemon *d = all->daemon;
	const struct core_job *job = core_job_find(d->core, kept->job);
	const struct database_query query = {.id = kept->job, .most = 1};
	bool ended = false;

	if (job) {
		return kept->generation <= job->generation;
	}
	if (all->rv == 0) {
		all->rv = sched_database_each_ended(d->database, &query, on_child_ended, &ended,
			all->err);
	}
	return ended;
}

static void add_unknown(void *user, const struct sched_engine_run *kept)
{
	struct found_runs *all = user;
	struct found_run *more;

	if (is_known(all, kept) || all->rv != 0) {
		return;
	}
	if (all->n == all->max) {
		more = realloc(all->at, (2 * (size_t)all->max + 64) * sizeof(*all->at));
		all->at = more ? more : all->at;
		all->max += more ? all->max + 64 : 0;
	}
	if (all->n < all->max) {
		all->at[all->n] = (struct found_run){kept->job, kept->start_generation,
			kept->generation, kept->over, strdup(kept->dir)};
	}
	if (all->n == all->max || !all->at[all->n].dir) {
		all->rv = pawl_err_set(all->err, PAWL_ENOMEM, "no memory for what runs");
		return;
	}
	all->n++;
}

static int by_start(const void *a, const void *b)
{
	const struct found_run *x = a;
	const struct found_run *y = b;

	return x->job != y->job ? (x->job > y->job) - (x->job < y->job)
				: (x->start_generation > y->start_generation) -
			(x->start_generation < y->start_generation);
}

/* ---- taking a run over ---- */

/* A run that is taken over. */
struct takeover {
	struct order order;
	struct wire_out bytes; /* owned; order points into it */
	struct run_placement_entry place;
	struct core_found found;
	struct core_placement_entry entries[ORDER_NODES_MAX];
	int64_t wall_ns; /* time of the submission, wall clock */
};

static uint32_t find_node(const struct daemon *d, const char *name)
{
	const struct core_node *nodes;
	uint32_t n = core_nodes(d->core, &nodes);

	for (uint32_t i = 0; i < n; i++) {
		if (strcmp(nodes[i].offer.name, name) == 0) {
			return nodes[i].id;
		}
	}
	return 0;
}

static int find_nodes(const struct daemon *d, const struct found_run *run, struct takeover *t,
	struct pawl_err *err)
{
	for (uint32_t i = 0; i < t->place.nodes_n; i++) {
		const struct order_node *node = &t->place.nodes[i];

		t->entries[i] =
			(struct core_placement_entry){find_node(d, node->name), node->replicas};
		if (t->entries[i].node == 0) {
			return pawl_err_set(err, PAWL_EINVAL,
				"job %" PRIu64 " runs on node %s, which does not exist: start with "
				"the same nodes as before (--node, --nodes, --slots)",
				run->job, node->name);
		}
	}
	t->found.entries = t->entries;
	t->found.entries_n = t->place.nodes_n;
	return 0;
}

static int find_placement(const struct found_run *run, struct takeover *t, struct pawl_err *err)
{
	int rv = PAWL_ENOENT;

	if (run->generation != run->start_generation) {
		rv = run_placement_load(run->dir, run->generation, &t->place, err);
	}
	/* Without a recorded placement the run is where it was started, unless an older version of
	 * Pawl has moved it. */
	if (rv == PAWL_ENOENT) {
		t->place.nodes_n = t->order.nodes_n;
		memcpy(t->place.nodes, t->order.nodes, sizeof(t->place.nodes));
		rv = 0;
	}
	return rv;
}

static int read_run(const struct daemon *d, const struct found_run *run, struct takeover *t,
	struct pawl_err *err)
{
	int rv = order_load(&t->order, &t->bytes, run->dir, err);

	if (rv == 0 && (t->order.job != run->job || t->order.generation != run->start_generation)) {
		rv = pawl_err_set(err, PAWL_ECORRUPT, "%s/order belongs to another run", run->dir);
	}
	rv = rv == 0 ? find_placement(run, t, err) : rv;
	rv = rv == 0 ? daemon_read_request(d, t->order.submission, t->order.submission_bytes,
			       t->order.owner, &t->found.request, &t->wall_ns, err)
		     : rv;
	if (rv == 0) {
		if (t->order.most > 0) {
			t->found.request.least = t->order.least;
			t->found.request.most = t->order.most;
			t->found.request.priority = t->order.priority;
		}
		t->found.request.grace_ns = t->order.grace_ns;
		t->found.start_generation = run->start_generation;
		t->found.restarts = t->order.starts;
	}
	return rv;
}

/* Returns when a job was submitted, by the core's clock; the present time if that was before the
 * clock began. */
static int64_t submitted_core_ns(const struct daemon *d, int64_t wall_ns)
{
	int64_t now_ns = daemon_now_ns(d);
	int64_t age_ns = clock_wall_ns() - wall_ns;

	return age_ns > 0 && age_ns < now_ns ? now_ns - age_ns : now_ns;
}

static int take_over(struct daemon *d, const struct found_run *run, struct takeover *t,
	struct pawl_err *err)
{
	struct core_event event = {.kind = CORE_FOUND,
		.job = run->job,
		.generation = run->generation,
		.found = &t->found};
	struct database_spec spec = {.bytes = t->order.submission,
		.len_bytes = t->order.submission_bytes};
	int rv = find_nodes(d, run, t, err);

	if (rv == 0) {
		t->found.submitted_ns = submitted_core_ns(d, t->wall_ns);
		rv = daemon_handle_event(d, &event, &spec, NULL, err);
	}
	if (rv == 0) {
		log_line(LOG_INFO, "job %" PRIu64 " %s of user %u is taken over%s", run->job,
			t->found.request.name, t->found.request.owner,
			run->over ? ": it has ended" : ", and runs on");
	}
	return rv;
}

/* Takes a run over. One that is over and cannot be read is dropped: its owner is not known. */
static int take_run(struct daemon *d, const struct found_run *run, struct pawl_err *err)
{
	struct takeover *t = calloc(1, sizeof(*t));
	int rv = t ? read_run(d, run, t, err)
		   : pawl_err_set(err, PAWL_ENOMEM, "no memory for a run");

	rv = rv == 0 ? take_over(d, run, t, err) : rv;
	if (rv != 0 && rv != PAWL_ENOMEM && d->failed.code == 0) {
		if (run->over) {
			log_line(LOG_WARNING, "job %" PRIu64 " has ended, and is dropped: %s",
				run->job, err->msg);
			rv = 0;
		} else {
			pawl_err_prefix(err, rv,
				"job %" PRIu64 " cannot be taken over (to go on without it, end "
				"its processes and remove %s)",
				run->job, run->dir);
		}
	}
	if (t) {
		wire_out_deinit(&t->bytes);
		free(t);
	}
	return rv;
}

/* Lets new jobs have numbers above all that were used. The clock of a new database begins before
 * the first of these jobs was submitted. */
static int begin_anew(struct daemon *d, bool remade, struct pawl_err *err)
{
	struct core_event event = {.kind = CORE_IDS_USED, .job = find_highest(d)};

	d->base_ns += remade ? DATABASE_DOWNTIME_MAX_NS : 0;
	d->rebuilt = true;
	return daemon_handle_event(d, &event, NULL, NULL, err);
}

static int take_all(struct daemon *d, const struct found_runs *all, struct pawl_err *err)
{
	int rv = begin_anew(d, d->rebuilt, err);

	for (uint32_t i = 0; i < d->options->nodes_n && rv == 0; i++) {
		struct core_event event = {.kind = CORE_NODE_REPORTED,
			.offer = &d->options->nodes[i]};

		rv = daemon_handle_event(d, &event, NULL, NULL, err);
	}
	for (uint32_t i = 0; i < all->n && rv == 0; i++) {
		rv = take_run(d, &all->at[i], err);
	}
	return rv;
}

static int refuse(const struct daemon *d, const struct found_run *run, struct pawl_err *err)
{
	return pawl_err_set(err, PAWL_ECORRUPT,
		"%s/sched.db does not have job %" PRIu64
		" as it runs (%s): it is an older copy, or a new file. " REMEDY,
		d->options->root, run->job, run->dir);
}

int daemon_check_runs(struct daemon *d, struct pawl_err *err)
{
	struct found_runs all = {.daemon = d, .err = err};
	int rv;

	if (!d->engine->each_run) {
		return 0;
	}
	d->engine->each_run(d->engine_self, add_unknown, &all);
	rv = all.rv;
	if (rv == 0 && all.n > 0) {
		qsort(all.at, all.n, sizeof(*all.at), by_start);
	}
	if (rv == 0 && d->options->rebuild) {
		rv = d->rebuilt || all.n > 0 ? take_all(d, &all, err) : 0;
		log_line(LOG_INFO, "rebuild: %u run%s that %s/sched.db did not know%s", all.n,
			all.n == 1 ? "" : "s", d->options->root,
			d->rebuilt ? ": what only waited, and is not in it, is forgotten" : "");
	}
	for (uint32_t i = 0; i < all.n && rv == 0 && !d->options->rebuild; i++) {
		rv = all.at[i].over ? 0 : refuse(d, &all.at[i], err);
	}
	for (uint32_t i = 0; i < all.n; i++) {
		free(all.at[i].dir);
	}
	free(all.at);
	return rv;
}
