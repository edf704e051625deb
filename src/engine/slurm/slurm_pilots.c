/* Pilots that have arrived: their haves and wants, and whether they are lost or empty. */
#include "engine/slurm/slurm_impl.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define KEEP_NS           (3600 * NS_PER_S) /* time for which a pilot that is gone is kept */
#define KEEP_LOG_S        86400 /* time for which a pilot's log is kept after its last line */
#define FIRST_HAVE_FENCES 3 /* a pilot writes have within so many fences of making its directory */

struct pilot_scan {
	struct sched_slurm *s;
	bool all; /* all pilots' directories could be read */
};

static bool add_pilot(void *user, const char *name)
{
	struct pilot_scan *scan = user;
	struct sched_slurm *s = scan->s;
	struct pawl_err err = {0};
	struct pilot *pilot;
	int rv;

	if (strlen(name) >= CORE_NAME_MAX || slurm_pilot_named(s, name)) {
		return true;
	}
	if (!slurm_grow(&s->pilots, s->pilots_n, &s->pilots_cap, sizeof(*s->pilots))) {
		scan->all = false;
		return true;
	}
	pilot = &s->pilots[s->pilots_n];
	*pilot = (struct pilot){.pool = SLURM_NO_POOL, .dirty = true};
	snprintf(pilot->name, sizeof(pilot->name), "%s", name);
	snprintf(pilot->directory, sizeof(pilot->directory), "%s/pilots/%s", s->options.spool,
		name);
	pilot->first_seen_ns = pilot->last_seen_ns = clock_mono_ns();
	rv = slurm_spool_newest(pilot->directory, "want", &pilot->want, &err);
	if (rv == 0) {
		s->pilots_n++;
	} else if (err.sys != ENOENT && err.sys != ENOTDIR) { /* else not a directory */
		slurm_report_spool_error(s, &err);
		scan->all = false;
	}
	return true;
}

/* Reads the pilot's have if there is a newer one. */
static void read_have(struct pilot *pilot, int64_t now_ns)
{
	struct pawl_err err = {0};
	struct slurm_have have;
	uint64_t number;
	uint8_t *bytes;
	size_t len_bytes;
	char name[32];

	if (slurm_spool_newest(pilot->directory, "have", &number, &err) != 0 ||
		number <= pilot->number) {
		return;
	}
	snprintf(name, sizeof(name), "have.%016" PRIx64, number);
	if (slurm_spool_get(pilot->directory, name, &bytes, &len_bytes, &err) != 0) {
		return; /* a newer have replaced it, which the next look reads */
	}
	if (slurm_have_decode(bytes, len_bytes, &have, &err) != 0) {
		log_line(LOG_ERROR, "slurm: %s/%s: %s", pilot->directory, name, err.msg);
	} else {
		free(pilot->have.parts);
		pilot->have = have;
		pilot->last_seen_ns = now_ns;
		pilot->dirty = pilot->dirty || pilot->awaits_removal;
		pilot->awaits_removal = false;
	}
	pilot->number = number;
	free(bytes);
}

static void post_arrival(struct sched_slurm *s, struct pilot *pilot)
{
	const struct core_pool *pool;
	struct slurm_event *pending;
	struct pool_request *request;

	ASSERT(pilot->pool < s->options.pools_n && pilot->life < PILOT_LOST);
	pool = &s->options.pools[pilot->pool].pool;
	request = &s->requests[pilot->pool];
	pending = slurm_post(s, CORE_NODE_REPORTED);
	if (!pending) {
		return;
	}
	snprintf(pending->offer.name, sizeof(pending->offer.name), "%s", pilot->name);
	snprintf(pending->offer.pool, sizeof(pending->offer.pool), "%s", pool->name);
	pending->offer.type = pool->type;
	pending->offer.slots = pool->slots;
	pending->offer.price = pool->price;
	pending->offer.spot = pool->spot;
	request->n -= request->n > 0 && !pilot->posted_arrival;
	pilot->posted_arrival = true;
	request->wait_reason[0] = '\0';
}

/* Posts that the pilot's end was announced, and changes of its drain state. */
static void post_states(struct sched_slurm *s, struct pilot *pilot)
{
	struct slurm_event *pending;

	if (pilot->have.state == SLURM_PILOT_GOING && !pilot->posted_reclaim) {
		pending = slurm_post(s, CORE_NODE_NOTICE);
		if (pending) {
			snprintf(pending->name, sizeof(pending->name), "%s", pilot->name);
			pending->event.deadline_ns = pilot->gone_at_ns;
			pilot->posted_reclaim = true;
		}
	}
	if (pilot->drained != pilot->posted_drained && !pilot->posted_reclaim) {
		slurm_post_node(s, pilot->name,
			pilot->drained ? CORE_NODE_DRAIN : CORE_NODE_RESUME);
		pilot->posted_drained = pilot->drained;
	}
}

static void update_pilot(struct sched_slurm *s, struct pilot *pilot, int64_t now_ns)
{
	bool was_going = pilot->have.state == SLURM_PILOT_GOING;

	if (pilot->life == PILOT_EMPTY && !slurm_pilot_has_jobs(s, pilot)) {
		pilot->life = PILOT_SETTLED;
	}
	if (pilot->life == PILOT_SETTLED) {
		return;
	}
	s->looked_n++;
	read_have(pilot, now_ns);
	if (pilot->have.state == SLURM_PILOT_GOING && !was_going) {
		pilot->gone_at_ns = s->options.now_ns(s->options.user) + pilot->have.remaining_ns;
	}
	if (pilot->have.state == SLURM_PILOT_LEFT) {
		slurm_pilot_lose(s, pilot, PILOT_EMPTY);
	}
	if (pilot->number == 0 &&
		now_ns - pilot->first_seen_ns >= FIRST_HAVE_FENCES * s->options.fence_ns) {
		slurm_pilot_lose(s, pilot, PILOT_EMPTY); /* the pilot died before it wrote have */
	}
	if (pilot->pool == SLURM_NO_POOL && pilot->number > 0) {
		pilot->pool = slurm_queue_pool(s, pilot->have.slurm_job); /* or later, by squeue */
	}
	if (pilot->life >= PILOT_LOST || pilot->pool == SLURM_NO_POOL || pilot->number == 0) {
		return;
	}
	if (!pilot->posted_arrival && !pilot->leave && !slurm_queue_is_over(s, pilot)) {
		post_arrival(s, pilot);
	}
	if (pilot->posted_arrival) {
		post_states(s, pilot);
	}
	if (pilot->posted_reclaim && !pilot->leave && !slurm_pilot_has_jobs(s, pilot)) {
		slurm_queue_return_node(s, pilot->name); /* no job starts on it any more */
	}
}

/* Forgets pilots that are long gone. A pilot that Slurm still lists is kept: otherwise it would be
 * awaited again. */
static void forget_old(struct sched_slurm *s, int64_t now_ns)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < s->pilots_n; i++) {
		struct pilot *pilot = &s->pilots[i];

		if (pilot->life == PILOT_SETTLED && now_ns - pilot->empty_ns >= KEEP_NS &&
			slurm_queue_pool(s, pilot->have.slurm_job) == SLURM_NO_POOL) {
			slurm_spool_remove(pilot->directory);
			free(pilot->have.parts);
		} else {
			s->pilots[kept++] = *pilot;
		}
	}
	s->pilots_n = kept;
}

/* Returns whether the number in a log's name is that of a pilot that is still known. */
static bool is_known(struct sched_slurm *s, uint64_t slurm_job)
{
	for (uint32_t i = 0; i < s->pilots_n; i++) {
		if (s->pilots[i].have.slurm_job == slurm_job) {
			return true;
		}
	}
	return slurm_queue_pool(s, slurm_job) != SLURM_NO_POOL;
}

static bool remove_old_log(void *user, const char *name)
{
	struct sched_slurm *s = user;
	char path[SLURM_PATH_MAX];
	unsigned long long slurm_job;
	struct stat st;

	if (sscanf(name, "pilot-%llu.log", &slurm_job) != 1 || is_known(s, slurm_job)) {
		return true;
	}
	snprintf(path, sizeof(path), "%s/log/%.200s", s->options.spool, name);
	if (stat(path, &st) == 0 && clock_wall_ns() / NS_PER_S - st.st_mtime >= KEEP_LOG_S) {
		unlink(path);
	}
	return true;
}

void slurm_pilots_forget_logs(struct sched_slurm *s)
{
	char directory[SLURM_PATH_MAX];
	struct pawl_err err;

	snprintf(directory, sizeof(directory), "%s/log", s->options.spool);
	/* An old log that cannot be removed now stays until a later call can. */
	slurm_spool_list(directory, remove_old_log, s, &err);
}

/* Reports that the spool's file system is full. A pilot cannot report it, and the engine writes
 * nothing while nothing changes. */
static void check_room(struct sched_slurm *s)
{
	struct statvfs room;
	struct pawl_err err;

	if (statvfs(s->options.spool, &room) == 0 && room.f_bavail == 0) {
		pawl_err_set(&err, PAWL_EIO,
			"%s: its file system is full; until there is space, no job can start, and "
			"no "
			"end of a job can be reported",
			s->options.spool);
		slurm_report_spool_error(s, &err);
	}
}

void slurm_pilots_look(struct sched_slurm *s, int64_t now_ns)
{
	char directory[SLURM_PATH_MAX];
	struct pilot_scan scan = {.s = s, .all = true};
	struct pawl_err err = {0};

	snprintf(directory, sizeof(directory), "%s/pilots", s->options.spool);
	if (slurm_spool_list(directory, add_pilot, &scan, &err) == 0) {
		s->pilots_seen = s->pilots_seen || scan.all;
	} else {
		slurm_report_spool_error(s, &err);
		for (uint32_t i = 0; i < s->pilots_n; i++) {
			s->pilots[i].last_seen_ns = now_ns; /* this host may be cut off */
		}
	}
	s->looked_n = 0;
	for (uint32_t i = 0; i < s->pilots_n; i++) {
		update_pilot(s, &s->pilots[i], now_ns);
	}
	forget_old(s, now_ns);
	check_room(s);
}

static void write_want(struct sched_slurm *s, struct pilot *pilot)
{
	struct slurm_want want = {.leave = pilot->leave};
	struct wire_out out = {0};
	struct pawl_err err = {0};

	ASSERT(pilot->dirty && pilot->life < PILOT_EMPTY);
	want.slots = pilot->pool != SLURM_NO_POOL ? s->options.pools[pilot->pool].pool.slots : 0;
	if (!slurm_jobs_want(s, pilot, &want)) {
		return;
	}
	slurm_want_encode(&want, &out);
	if (slurm_spool_put_newer(pilot->directory, "want", pilot->want + 1, &out, &err) == 0) {
		pilot->want++;
		pilot->dirty = false;
	} else {
		slurm_report_spool_error(s, &err);
	}
	wire_out_deinit(&out);
	free(want.parts);
}

void slurm_pilots_write(struct sched_slurm *s)
{
	for (uint32_t i = 0; i < s->pilots_n && slurm_pilots_known(s); i++) {
		if (s->pilots[i].dirty && s->pilots[i].life < PILOT_EMPTY) {
			write_want(s, &s->pilots[i]);
		}
	}
}

void slurm_pilots_post_all(struct sched_slurm *s)
{
	for (uint32_t i = 0; i < s->pilots_n; i++) {
		struct pilot *pilot = &s->pilots[i];

		if (pilot->life >= PILOT_LOST) {
			slurm_post_node(s, pilot->name, CORE_NODE_GONE);
		} else if (pilot->posted_arrival) {
			post_arrival(s, pilot);
		}
	}
}

void slurm_pilots_close(struct sched_slurm *s)
{
	for (uint32_t i = 0; i < s->pilots_n; i++) {
		free(s->pilots[i].have.parts);
	}
	free(s->pilots);
	free(s->queue);
}
