/*
 * A running mirror: opens everything, fetches, starts the program, looks at the directory when it
 * changes, and ends when all is shipped. See mirror.h, and mirror_impl.h for its other files.
 *
 * A failure before the program starts ends the mirror: without what is in the bucket, the program
 * would begin anew. After that nothing of ours ends it, or changes its exit code.
 */
#include "mirror/mirror.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/text.h"
#include "base/times.h"
#include "ckpt/root.h"
#include "mirror/fetch.h"
#include "mirror/inspect_unit.h"
#include "mirror/lease.h"
#include "mirror/mirror_impl.h"
#include "mirror/scan.h"
#include "mirror/ship.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define LOCAL_SHARE 2  /* without --max-local: pins hold one part in so many of the free disk */
#define LOOK_SHARE  20 /* looking takes at most one part in so many of the time */

/* ---- looking ---- */

void mirror_look_soon(struct mirror *mirror)
{
	int64_t gap_ns = mirror->look_took_ns * LOOK_SHARE;

	if (mirror->look_timer.active && mirror->look_timer.due_ns <= mirror->looked_ns + gap_ns) {
		return;
	}
	gap_ns = gap_ns > times_ns(TIME_MIRROR_LOOK) ? gap_ns : times_ns(TIME_MIRROR_LOOK);
	loop_timer_start(mirror->loop, &mirror->look_timer, mirror->looked_ns + gap_ns);
}

static void look(struct mirror *mirror)
{
	const struct core_inspect inspect = {inspect_unit, &mirror->work.dir_fd};
	int64_t begin_ns = clock_mono_ns();
	uint32_t units_n, loose_n;
	struct pawl_err err;
	int rv = scan_all(mirror->scan, &err);

	mirror->core.gone = rv == PAWL_ENOENT;
	if (rv == 0 || mirror->core.gone) { /* nothing was found then */
		const struct core_seen *units = scan_units(mirror->scan, &units_n);
		const struct core_seen *loose = scan_loose(mirror->scan, &loose_n);

		rv = core_scan(&mirror->core, units, units_n, loose, loose_n, &inspect, begin_ns,
			&err);
	}
	mirror->look_began_ns = rv == 0 ? begin_ns : mirror->look_began_ns;
	mirror->looked_ns = clock_mono_ns();
	mirror->look_took_ns = mirror->looked_ns - begin_ns;
	mirror->looks_since_end += rv == 0 && mirror->ended;
	if ((rv != 0 || mirror->core.gone) && !mirror->failing_logged) {
		log_line(LOG_ERROR, "look at %s: %s", mirror->work.dir, err.msg);
	}
	mirror->failing_logged = rv != 0 || mirror->core.gone;
	if (mirror->core.overflow && !mirror->overflow_logged) {
		mirror->overflow_logged = true;
		log_line(LOG_ERROR,
			"%s has more than %u units or %u other files: the rest is not mirrored",
			mirror->work.dir, CORE_UNITS_MAX, CORE_LOOSE_MAX);
	}
	if (rv != 0 || mirror->watch.fd < 0 || mirror->watch.failing) {
		loop_timer_start(mirror->loop, &mirror->look_timer,
			mirror->looked_ns + times_ns(TIME_MIRROR_LOOK_MAX));
	}
}

static void on_look_timer(struct loop_timer *timer)
{
	struct mirror *mirror = timer->user;

	look(mirror);
	mirror_step(mirror);
}

static void on_watch(struct loop_source *source, uint32_t events)
{
	struct mirror *mirror = source->user;

	if (dir_watch_take(&mirror->watch)) {
		mirror_look_soon(mirror);
	}
}

static void on_entered(void *user, const char *path, int fd)
{
	struct mirror *mirror = user;

	dir_watch_add(&mirror->watch, fd);
}

/* ---- stepping ---- */

/* Returns whether nothing more is to be done for the end. */
static bool is_finished(const struct mirror *mirror)
{
	return mirror->ended &&
		(mirror->late || mirror->core.stopped ||
			(mirror->looks_since_end > 0 && mirror->job.kind == CORE_NOTHING &&
				core_is_flushed(&mirror->core)));
}

void mirror_step(struct mirror *mirror)
{
	int64_t due_ns;

	mirror_do_jobs(mirror, &due_ns);
	if (due_ns != INT64_MAX) {
		loop_timer_start(mirror->loop, &mirror->step_timer, due_ns);
	}
	mirror_answer_waiters(mirror, false);
	if (mirror->ended && !mirror->progress_timer.active) {
		loop_timer_start(mirror->loop, &mirror->progress_timer,
			clock_mono_ns() + times_ns(TIME_MIRROR_PROGRESS));
	}
	if (is_finished(mirror)) {
		loop_stop(mirror->loop);
	}
}

static void on_step_timer(struct loop_timer *timer)
{
	mirror_step(timer->user);
}

static void on_woken(void *user)
{
	struct mirror *mirror = user;

	mirror_take_results(mirror);
	mirror_step(mirror);
}

/* Called on other threads. */
static void wake(void *user)
{
	loop_wake(user);
}

static void on_grace_timer(struct loop_timer *timer)
{
	struct mirror *mirror = timer->user;

	mirror->late = true;
	mirror_step(mirror);
}

/* ---- the end ---- */

static void log_left(const struct mirror *mirror)
{
	char size[TEXT_SIZE_MAX];
	struct core_left left;

	core_count_left(&mirror->core, &left);
	log_line(LOG_INFO, "shipping what is left: %u units, %u files, %s%s%s", left.units,
		left.loose, text_size(size, left.dirty_bytes),
		mirror->last_error[0] != '\0' ? "; last error: " : "", mirror->last_error);
}

static void on_progress_timer(struct loop_timer *timer)
{
	struct mirror *mirror = timer->user;

	log_left(mirror);
	loop_timer_start(mirror->loop, timer, clock_mono_ns() + times_ns(TIME_MIRROR_PROGRESS));
}

/* Appends text to a list that may get too long. */
static void append(char *list, size_t cap_bytes, const char *path, const char *why)
{
	size_t len = strlen(list);

	snprintf(list + len, cap_bytes - len, "%s%s%s%s%s", len > 0 ? ", " : "", path,
		why[0] != '\0' ? " (" : "", why, why[0] != '\0' ? ")" : "");
}

/* Says what is in the bucket, and what is not. Returns whether all is. */
static bool log_end(const struct mirror *mirror)
{
	const struct core *core = &mirror->core;
	const struct core_unit *newest = NULL;
	char missing[512] = "";
	struct core_left left;
	uint32_t committed = 0;

	for (uint32_t i = 0; i < core->units_n; i++) {
		const struct core_unit *unit = core->units[i];

		committed += unit->in_bucket;
		if (unit->in_bucket && (newest == NULL || unit->step >= newest->step)) {
			newest = unit;
		}
		if (unit->state != CORE_COMMITTED && !unit->pruned && !unit->shrunk &&
			(unit->present || unit->state != CORE_OPEN)) {
			append(missing, sizeof(missing), unit->path, unit->why);
		}
	}
	core_count_left(core, &left);
	log_line(missing[0] == '\0' && left.loose == 0 ? LOG_INFO : LOG_WARNING,
		"%u checkpoints are in %s, the newest is %s; %s%s; %u other files are not shipped",
		committed, mirror->options->bucket, newest != NULL ? newest->path : "(none)",
		missing[0] != '\0' ? "not committed: " : "nothing is missing", missing, left.loose);
	return missing[0] == '\0' && left.loose == 0;
}

/* ---- opening and closing ---- */

static void set_timers(struct mirror *mirror)
{
	mirror->look_timer = (struct loop_timer){.fired = on_look_timer, .user = mirror};
	mirror->step_timer = (struct loop_timer){.fired = on_step_timer, .user = mirror};
	mirror->grace_timer = (struct loop_timer){.fired = on_grace_timer, .user = mirror};
	mirror->progress_timer = (struct loop_timer){.fired = on_progress_timer, .user = mirror};
	for (uint32_t i = 0; i < MIRROR_WAITERS_MAX; i++) {
		mirror->waiters[i].fd = -1;
	}
}

/* What removed units may keep on the disk. A program must not find the disk full because the bucket
 * does not answer. */
static uint64_t local_max(const struct mirror *mirror)
{
	struct statvfs fs;

	if (mirror->options->local_max_bytes > 0 || fstatvfs(mirror->work.dir_fd, &fs) != 0) {
		return mirror->options->local_max_bytes;
	}
	return (uint64_t)fs.f_bavail * fs.f_frsize / LOCAL_SHARE + 1;
}

static void init_core(struct mirror *mirror)
{
	const struct mirror_options *options = mirror->options;
	const struct core_options with = {.quiet_ns = options->quiet_ns,
		.settle_ns = times_ns(TIME_MIRROR_SETTLE),
		.loose_max_ns = times_ns(TIME_MIRROR_LOOSE_MAX),
		.retry_ns = times_ns(TIME_MIRROR_RETRY),
		.retry_max_ns = times_ns(TIME_MIRROR_RETRY_MAX),
		.local_max_bytes = local_max(mirror),
		.keep_remote = options->keep_remote};

	core_init(&mirror->core, &with);
}

/* Opens what needs no bucket. Signals come first: threads inherit their mask. */
static int open_local(struct mirror *mirror, struct pawl_err *err)
{
	int rv = workdir_open(&mirror->work, mirror->options->dir, err);

	rv = rv == 0 ? loop_open(&mirror->loop, err) : rv;
	rv = rv == 0 ? mirror_take_signals(mirror, err) : rv;
	if (rv == 0) {
		loop_on_wake(mirror->loop, on_woken, mirror);
		rv = leases_open(&mirror->leases, wake, mirror->loop, err);
	}
	if (rv == 0) {
		dir_watch_open(&mirror->watch);
		rv = scan_open(&mirror->scan, mirror->work.dir_fd, &mirror->options->globs,
			on_entered, mirror, err);
	}
	return rv;
}

static const char *job_name(const struct mirror *mirror)
{
	return mirror->options->job != NULL ? mirror->options->job : unit_base(mirror->work.dir);
}

/* Removes what a crash left unfinished in the bucket, but for units that may be gone on with. */
static int recover(struct tags_root *root, const struct start *start, struct pawl_err *err)
{
	const char **keep = malloc((start->items_n + 1u) * sizeof(*keep));
	uint32_t n = 0;
	int rv;

	if (keep == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for a list of units");
	}
	for (uint32_t i = 0; i < start->items_n; i++) {
		const struct start_item *item = &start->items[i];
		if (item->local && !(item->in_bucket && item->same)) {
			keep[n++] = item->tag;
		}
	}
	rv = ship_recover(root, keep, n, err);
	free(keep);
	return rv;
}

/* Fetches what has to be there before the program starts. */
static int fetch_first(struct mirror *mirror, struct tags_root *root, struct start *start,
	struct pawl_err *err)
{
	int rv = fetch_open(&start->fetch, root, &mirror->work, NULL, NULL, err);

	if (rv != 0) {
		return rv;
	}
	start->root = root;
	start->work = &mirror->work;
	start->core = &mirror->core;
	start->scan = mirror->scan;
	start->globs = &mirror->options->globs;
	start->whole = mirror->options->fetch_only;
	rv = start_run(start, err);
	fetch_close(start->fetch);
	start->fetch = NULL;
	if (rv == 0) {
		log_line(LOG_INFO,
			"%s %s %s: %u checkpoints fetched, %u kept, %u other files fetched",
			mirror->work.dir, mirror->options->fetch_only ? "is from" : "mirrors to",
			mirror->options->bucket, start->fetched, start->kept, start->loose);
	}
	return rv;
}

/* Takes the bucket's prefix, unless it is only read, and fetches. */
static int open_bucket(struct mirror *mirror, struct start *start, struct pawl_err *err)
{
	bool owns = !mirror->options->fetch_only;
	struct tags_root *root = NULL;
	int rv = tags_root_open(mirror->options->bucket, NULL, true, &root, err);

	if (rv == 0 && owns) {
		rv = tags_root_lock(root, job_name(mirror), false, err);
	}
	rv = rv == 0 ? fetch_first(mirror, root, start, err) : rv;
	if (rv == 0 && owns) {
		rv = recover(root, start, err);
	}
	if (rv == 0 && owns) {
		rv = uplink_start(&mirror->uplink, root, mirror->work.dir_fd, job_name(mirror),
			wake, mirror->loop, err);
	}
	if (rv != 0 || !owns) {
		tags_root_close(root);
	}
	return rv;
}

static int watch_directory(struct mirror *mirror, struct pawl_err *err)
{
	mirror->watch_source = (struct loop_source){mirror->watch.fd, on_watch, mirror};
	return mirror->watch.fd >= 0 ? loop_add(mirror->loop, &mirror->watch_source, EPOLLIN, err)
				     : 0;
}

static void close_all(struct mirror *mirror)
{
	behind_stop(mirror->behind);
	uplink_stop(mirror->uplink);
	mirror_drop_pins(mirror);
	leases_close(mirror->leases);
	scan_close(mirror->scan);
	dir_watch_close(&mirror->watch);
	core_deinit(&mirror->core);
	if (mirror->signals.fd >= 0) {
		close(mirror->signals.fd);
	}
	loop_close(mirror->loop);
	workdir_close(&mirror->work);
}

/* Runs the loop until the end, and says what became of everything. */
static int serve(struct mirror *mirror, struct pawl_err *err)
{
	bool all;
	int rv;

	loop_timer_start(mirror->loop, &mirror->look_timer, 0);
	rv = loop_run(mirror->loop, err);
	all = log_end(mirror);
	mirror_stop_listening(mirror);
	workdir_end(&mirror->work);
	if (mirror->options->program == NULL) {
		mirror->code = all ? 0 : 1;
	}
	return rv;
}

/* Becomes the program, once all is fetched. Returns only on error, or if there is none. */
static int become_program(struct mirror *mirror, int *code, struct pawl_err *err)
{
	const struct sigaction unchanged = {.sa_handler = SIG_DFL};
	char *const *words = mirror->options->program;

	*code = 0;
	workdir_end(&mirror->work);
	if (words == NULL) {
		return 0;
	}
	sigaction(SIGPIPE, &unchanged, NULL);
	pthread_sigmask(SIG_SETMASK, &mirror->old_mask, NULL);
	execvp(words[0], words);
	return pawl_err_sys(err, "start %s", words[0]);
}

int mirror_run(const struct mirror_options *options, int *code, struct pawl_err *err)
{
	struct mirror mirror = {.options = options,
		.signals = {.fd = -1},
		.watch = {.fd = -1},
		.guard_fd = -1};
	struct start start = {.items_n = 0};
	int rv;

	set_timers(&mirror);
	rv = open_local(&mirror, err);
	init_core(&mirror);
	rv = rv == 0 ? mirror_guard(&mirror, err) : rv;
	rv = rv == 0 ? open_bucket(&mirror, &start, err) : rv;
	mirror_unguard(&mirror);
	if (rv == 0 && options->fetch_only) {
		rv = become_program(&mirror, code, err);
		start_deinit(&start);
		close_all(&mirror);
		return rv;
	}
	rv = rv == 0 ? mirror_listen(&mirror, err) : rv;
	rv = rv == 0 ? watch_directory(&mirror, err) : rv;
	rv = rv == 0 ? workdir_begin(&mirror.work, err) : rv;
	rv = rv == 0 ? mirror_start_program(&mirror, err) : rv;
	if (rv == 0) {
		if (behind_start(&mirror.behind, options->bucket, &mirror.work, start.items,
			    start.items_n, options->fetch_max, wake, mirror.loop, err) != 0) {
			log_line(LOG_WARNING, "older checkpoints are not fetched: %s", err->msg);
		}
		rv = serve(&mirror, err);
		*code = mirror.code;
	}
	start_deinit(&start);
	if (rv == 0 && !mirror.late && mirror.behind != NULL) {
		uplink_stop(mirror.uplink); /* gives the bucket's prefix back */
	}
	if (rv == 0 && (mirror.late || mirror.behind != NULL)) {
		_exit(mirror.code); /* threads may wait for a network that does not answer */
	}
	close_all(&mirror);
	return rv;
}
