/*
 * Agents of several hosts that agree: see agree.h.
 *
 *   .pawl-hosts/<job>/join.<k>     the host whose lowest rank is k has begun
 *   .pawl-hosts/<job>/lead         the host of rank 0 has begun
 *   .pawl-hosts/<job>/run          the members of the run, by rank 0's host
 *   .pawl-hosts/<job>/<run>/x<n>.k part of host k in round n; x: the round's letter
 *   .pawl-hosts/<job>/<run>/x<n>   the result of that round
 *
 * These are paths of notes (agree_notes.h). Where notes are files, each poll first opens the
 * directory to list it: on NFS that makes the client ask the server anew. Otherwise a new file may
 * stay unseen for half a minute.
 */
#include "agent/persist/agree_save.h"

#include "agent/peer/peers.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/crc.h"
#include "base/err.h"
#include "base/log.h"
#include "base/times.h"
#include "store/store.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define AGREE_OLD_DIR AGREE_DIR ".old" /* directory that is being removed */
#define DIR_TRIES_MAX 10

/* Polls once. Returns 1 if what the agent waits for has come; 0 if not yet, and why_waiting says
 * what is missing; or an error if it will never come. */
typedef int poll_fn(struct agree *agree, void *what, struct pawl_err *err);

/* ---- paths and messages ---- */

static void join_path(const struct agree *agree, uint32_t first, char path[AGREE_PATH_MAX])
{
	snprintf(path, AGREE_PATH_MAX, "%.100s/join.%" PRIu32, agree->base, first);
}

static void lead_path(const struct agree *agree, char path[AGREE_PATH_MAX])
{
	snprintf(path, AGREE_PATH_MAX, "%.100s/lead", agree->base);
}

static void run_path(const struct agree *agree, char path[AGREE_PATH_MAX])
{
	snprintf(path, AGREE_PATH_MAX, "%.100s/run", agree->base);
}

static void rounds_path(const struct agree *agree, char path[AGREE_PATH_MAX])
{
	snprintf(path, AGREE_PATH_MAX, "%.100s/%016" PRIx64, agree->base, agree->run.run);
}

/* Writes the path of the part of host first in a round; first UINT32_MAX: of the round's result. */
static void round_path(const struct agree *agree, enum agree_round round, uint64_t n,
	uint32_t first, char path[AGREE_PATH_MAX])
{
	char who[16] = "";

	if (first != UINT32_MAX) {
		snprintf(who, sizeof(who), ".%" PRIu32, first);
	}
	snprintf(path, AGREE_PATH_MAX, "%.100s/%016" PRIx64 "/%c%" PRIu64 "%s", agree->base,
		agree->run.run, (int)round, n, who);
}

static int write_msg(struct agree *agree, const char *path, struct pawl_err *err)
{
	return agree_notes_write(&agree->notes, path, &agree->out, err);
}

static int read_join_at(struct agree *agree, const char *path, struct agree_msg_join *join,
	struct pawl_err *err)
{
	void *bytes;
	size_t len_bytes;
	int rv;

	rv = agree_notes_read(&agree->notes, path, &bytes, &len_bytes, err);
	if (rv != 0) {
		return rv;
	}
	rv = agree_msg_get_join(bytes, len_bytes, join, err);
	free(bytes);
	return rv == 0 ? 0 : pawl_err_prefix(err, rv, "%s", path);
}

static int read_join(struct agree *agree, uint32_t first, struct agree_msg_join *join,
	struct pawl_err *err)
{
	char path[AGREE_PATH_MAX];

	join_path(agree, first, path);
	return read_join_at(agree, path, join, err);
}

static int read_run(struct agree *agree, struct agree_msg_run *run, struct pawl_err *err)
{
	char path[AGREE_PATH_MAX];
	void *bytes;
	size_t len_bytes;
	int rv;

	run_path(agree, path);
	rv = agree_notes_read(&agree->notes, path, &bytes, &len_bytes, err);
	if (rv != 0) {
		return rv;
	}
	rv = agree_msg_get_run(bytes, len_bytes, run, err);
	free(bytes);
	return rv == 0 ? 0 : pawl_err_prefix(err, rv, "%s", path);
}

/* ---- waiting ---- */

/* Waits until poll returns 1. While the leader cannot be reached, nothing has come. */
static int await(struct agree *agree, poll_fn *poll, void *what, int64_t timeout_ns,
	struct pawl_err *err)
{
	int64_t due_ns = clock_mono_ns() + timeout_ns;
	int64_t pause_max_ns = times_ns(TIME_AGREE_LOOK_MAX);
	int64_t pause_ns = times_ns(TIME_AGREE_LOOK);

	for (;;) {
		int rv = poll(agree, what, err);

		if (rv < 0 && agree->notes.lost) {
			memcpy(agree->why_waiting, agree->notes.why, sizeof(agree->why_waiting));
		} else if (rv != 0) {
			return rv < 0 ? rv : 0;
		}
		if (clock_mono_ns() >= due_ns) {
			return pawl_err_set(err, PAWL_ETIMEDOUT, "%s within %lld s",
				agree->why_waiting, (long long)(timeout_ns / NS_PER_S));
		}
		if (!agree->pause(agree->user, pause_ns)) {
			return pawl_err_set(err, PAWL_ECANCELED,
				"the agent leaves or its ranks began anew, and %s",
				agree->why_waiting);
		}
		pause_ns = 2 * pause_ns < pause_max_ns ? 2 * pause_ns : pause_max_ns;
	}
}

/* "rank 2", "ranks 2 to 3" */
static void name_ranks(char *buf, size_t cap_bytes, uint32_t first, uint32_t ranks)
{
	if (ranks == 1) {
		snprintf(buf, cap_bytes, "rank %" PRIu32, first);
	} else {
		snprintf(buf, cap_bytes, "ranks %" PRIu32 " to %" PRIu32, first, first + ranks - 1);
	}
}

/* ---- opening, beginning ---- */

bool agree_is_leader(const struct agree *agree)
{
	return agree->own.first_rank == 0;
}

void agree_init(struct agree *agree, const struct agree_options *options)
{
	const char *seconds = getenv(AGREE_TIMEOUT_ENV);
	long s = seconds ? strtol(seconds, NULL, 10) : 0;
	const char *job = options->job;
	struct agree_member *own = &agree->own;

	ASSERT(options->ranks >= 1 && options->ranks <= options->world &&
		options->first_rank <= options->world - options->ranks &&
		options->replicas <= PLACE_REPLICAS_MAX);
	*own = (struct agree_member){.first_rank = options->first_rank,
		.ranks = options->ranks,
		.replicas = options->replicas,
		.parity = options->parity};
	if (options->peers) {
		snprintf(own->address, sizeof(own->address), "%s", peers_address(options->peers));
		snprintf(own->domain, sizeof(own->domain), "%s", peers_domain(options->peers));
	}
	agree->world = options->world;
	agree->timeout_ns = s >= 1 && s <= 86400 ? s * NS_PER_S : times_ns(TIME_AGREE_WAIT);
	agree->mismatch_wait_ns = times_ns(TIME_AGREE_ASTRAY);
	agree->pause = options->pause;
	agree->changed = options->changed;
	agree->user = options->user;
	snprintf(agree->job, sizeof(agree->job), "%s", job);
	snprintf(agree->base, sizeof(agree->base), AGREE_DIR "/%08" PRIx32 "%08" PRIx32,
		crc32c(0, job, strlen(job)), crc32_zip(0, job, strlen(job)));
	agree_notes_init(&agree->notes, options->peers, options->root_path, agree_is_leader(agree));
}

void agree_deinit(struct agree *agree)
{
	agree_notes_deinit(&agree->notes);
	wire_out_deinit(&agree->out);
}

void agree_cancel(struct agree *agree)
{
	agree_notes_cancel(&agree->notes);
}

void agree_resume(struct agree *agree)
{
	agree_notes_resume(&agree->notes);
}

/* Sets whether agree->run is in force. */
static void set_in_run(struct agree *agree, bool in_run)
{
	bool changed = agree->in_run != in_run;

	agree->in_run = in_run;
	if (changed && agree->changed) {
		agree->changed(agree->user);
	}
}

static int random_number(uint64_t *number, struct pawl_err *err)
{
	do {
		if (getrandom(number, sizeof(*number), 0) != (ssize_t)sizeof(*number)) {
			return pawl_err_sys(err, "get a random number");
		}
	} while (*number == 0);
	return 0;
}

/* Makes the directories. The leader, when it opens the root, may remove the first before the second
 * is made. */
static int make_dirs(struct agree *agree, struct pawl_err *err)
{
	int rv = PAWL_ENOENT;

	for (int i = 0; i < DIR_TRIES_MAX && rv == PAWL_ENOENT; i++) {
		rv = agree_notes_make_folder(&agree->notes, AGREE_DIR, err);
		rv = rv == 0 ? agree_notes_make_folder(&agree->notes, agree->base, err) : rv;
	}
	return rv;
}

int agree_open(struct agree *agree, struct tags_root *root, struct pawl_err *err)
{
	int rv = 0;

	agree->root = root;
	agree_notes_open(&agree->notes, root);
	agree_notes_settle(&agree->notes);
	set_in_run(agree, false);
	agree->run = (struct agree_msg_run){0};
	if (agree_is_leader(agree)) {
		/* Hosts that do not know yet that their run is over still write there. */
		rv = agree_notes_clear(&agree->notes, AGREE_DIR, AGREE_OLD_DIR, err);
	}
	return rv == 0 ? make_dirs(agree, err) : rv;
}

/* Sends that this host's ranks have begun. The leader also ends the run in force. */
static int send_join(struct agree *agree, struct pawl_err *err)
{
	struct agree_msg_join join = {.member = agree->own, .world = agree->world};
	char path[AGREE_PATH_MAX];
	int rv = make_dirs(agree, err);

	if (rv != 0) {
		return rv;
	}
	if (agree_is_leader(agree)) {
		run_path(agree, path);
		rv = agree_notes_remove(&agree->notes, path, err);
		rounds_path(agree, path);
		if (rv == 0 && agree->run.run) {
			agree_notes_remove(&agree->notes, path,
				NULL); /* some may still write there */
		}
		if (rv != 0) {
			return rv;
		}
		lead_path(agree, path);
	} else {
		join_path(agree, agree->own.first_rank, path);
	}
	memcpy(join.job, agree->job, sizeof(join.job));
	agree_msg_put_join(&agree->out, &join);
	return write_msg(agree, path, err);
}

int agree_begin(struct agree *agree, struct pawl_err *err)
{
	int rv = random_number(&agree->own.nonce, err);

	set_in_run(agree, false);
	agree->run_used = false;
	agree->last_save = 0;
	agree->last_durable = 0;
	agree->restores = 0;
	agree->over_n = 0;
	if (agree_notes_settle(&agree->notes) && agree_is_leader(agree) && rv == 0) {
		/* What was left there by an earlier start is of no use. */
		rv = agree_notes_clear(&agree->notes, AGREE_DIR, AGREE_OLD_DIR, err);
	}
	if (rv == 0) {
		rv = send_join(agree, err);
		rv = agree->notes.lost ? 0 : rv; /* poll_run sends it once the leader answers */
	}
	return rv;
}

/* ---- the run ---- */

/* The hosts that have sent that they have begun. */
struct joined_hosts {
	struct agree *agree;
	struct agree_msg_join *joins; /* AGREE_HOSTS_MAX entries */
	uint32_t n;
};

static int take_join(void *user, const char *name, enum store_kind kind)
{
	struct joined_hosts *joined = user;
	struct agree_msg_join *join = &joined->joins[joined->n];
	unsigned long first;
	char *end;

	if (joined->n == AGREE_HOSTS_MAX || strncmp(name, "join.", 5) != 0) {
		return 0;
	}
	first = strtoul(name + 5, &end, 10);
	if (*end == '\0' && first < joined->agree->world &&
		read_join(joined->agree, (uint32_t)first, join, NULL) == 0 &&
		strcmp(join->job, joined->agree->job) == 0 && join->member.first_rank == first) {
		joined->n++;
	}
	return 0;
}

/* Sets why_waiting: the ranks that are missing, up to the next that have joined. */
static void explain_missing(struct agree *agree, const struct joined_hosts *joined,
	uint32_t missing)
{
	uint32_t next = agree->world;
	char ranks[64];

	ASSERT(missing < agree->world);
	for (uint32_t j = 0; j < joined->n; j++) {
		uint32_t first = joined->joins[j].member.first_rank;

		next = first > missing && first < next ? first : next;
	}
	name_ranks(ranks, sizeof(ranks), missing, next - missing);
	snprintf(agree->why_waiting, sizeof(agree->why_waiting),
		"%s of %" PRIu32 " have not joined (job %.64s on all hosts?)", ranks, agree->world,
		agree->job);
}

/* poll_fn of the leader: once the hosts make up a new run, starts the run. */
static int poll_joins(struct agree *agree, void *what, struct pawl_err *err)
{
	struct joined_hosts *joined = what;
	const struct agree_msg_run before = agree->run;
	struct agree_msg_run run = {.leader = agree->own};
	char path[AGREE_PATH_MAX];
	uint32_t missing;
	int rv;

	joined->n = 0;
	rv = agree_notes_list(&agree->notes, agree->base, take_join, joined, err);
	if (rv != 0) {
		return rv;
	}
	run.members_n = agree_choose_members(&agree->own, agree->world, joined->joins, joined->n,
		&agree->run, run.members, &missing);
	if (run.members_n == 0) {
		explain_missing(agree, joined, missing);
		return 0;
	}
	rv = random_number(&run.run, err);
	if (rv != 0) {
		return rv;
	}
	agree->run = run;
	rounds_path(agree, path);
	rv = agree_notes_make_folder(&agree->notes, path, err);
	if (rv == 0) {
		agree_msg_put_run(&agree->out, &run);
		run_path(agree, path);
		rv = write_msg(agree, path, err);
	}
	if (rv != 0) {
		agree->run = before; /* no host knows of the new run */
	}
	return rv == 0 ? 1 : rv;
}

void agree_expect_nonce(struct agree *agree, uint64_t nonce)
{
	agree->expected_since_ns = clock_mono_ns();
	agree->expected_nonce = nonce;
}

/* Returns PAWL_EINVAL if rank 0's host began in another root of this name. Notes in its memory are
 * those of its root of this name. */
static int check_same_root(struct agree *agree, struct pawl_err *err)
{
	uint64_t nonce = agree->expected_nonce;
	struct agree_msg_join lead;
	char path[AGREE_PATH_MAX];

	if (nonce == 0 || agree->notes.linked ||
		clock_mono_ns() - agree->expected_since_ns < times_ns(TIME_AGREE_SHARED)) {
		return 0;
	}
	lead_path(agree, path);
	if (read_join_at(agree, path, &lead, NULL) == 0 && lead.member.nonce == nonce) {
		agree->expected_nonce = 0;
		return 0;
	}
	return pawl_err_set(err, PAWL_EINVAL,
		"this directory is not the one of that name on rank 0's host: several hosts must "
		"save to a directory that all of them share (on NFS, for example)");
}

/* poll_fn of the other hosts: waits for a run with this host in it. */
static int poll_run(struct agree *agree, void *what, struct pawl_err *err)
{
	struct agree_msg_join own;
	struct agree_msg_run run;
	char ranks[64];
	int rv = read_run(agree, &run, err);

	for (uint32_t m = 0; rv == 0 && m < run.members_n; m++) {
		if (run.members[m].nonce == agree->own.nonce) {
			agree->run = run;
			return 1;
		}
	}
	if (rv != 0 && rv != PAWL_ENOENT) {
		return rv;
	}
	name_ranks(ranks, sizeof(ranks), agree->own.first_rank, agree->own.ranks);
	snprintf(agree->why_waiting, sizeof(agree->why_waiting),
		"rank 0's host has not admitted that of %s (job %.64s and one root on all hosts?)",
		ranks, agree->job);
	if (read_join(agree, agree->own.first_rank, &own, NULL) != 0) {
		/* The leader opened the root later, and removed this host's message. */
		rv = send_join(agree, err);
		return rv == PAWL_ENOENT ? 0 : rv;
	}
	return check_same_root(agree, err);
}

/* Returns PAWL_EPEER if a host of the run has begun anew since. A leader that cannot be reached may
 * be in it still. */
static int check_run(struct agree *agree, struct pawl_err *err)
{
	struct agree_msg_join join;
	struct agree_msg_run run;
	char ranks[64];
	int rv;

	if (!agree_is_leader(agree)) {
		rv = read_run(agree, &run, err);
		if (rv == PAWL_ENOENT || (rv == 0 && run.run != agree->run.run)) {
			return pawl_err_set(err, PAWL_EPEER,
				"the host of rank 0, or another, began anew");
		}
		return agree->notes.lost ? 0 : rv;
	}
	for (uint32_t m = 0; m < agree->run.members_n; m++) {
		const struct agree_member *member = &agree->run.members[m];

		rv = read_join(agree, member->first_rank, &join, err);
		if (rv == 0 && join.member.nonce != member->nonce) {
			name_ranks(ranks, sizeof(ranks), member->first_rank, member->ranks);
			return pawl_err_set(err, PAWL_EPEER, "the host of %s began anew", ranks);
		}
		if (rv != 0) {
			return rv;
		}
	}
	return 0;
}

int agree_enter(struct agree *agree, struct pawl_err *err)
{
	struct joined_hosts joined = {.agree = agree};
	int rv = agree->in_run ? check_run(agree, err) : PAWL_EPEER;

	if (rv == 0) {
		return 0;
	}
	if (rv != PAWL_EPEER || (agree->in_run && agree->run_used)) {
		return rv;
	}
	/* If the run ended before this host did anything in it, the host joins the next one. */
	if (agree->in_run) {
		rv = agree_begin(agree, err);
		if (rv != 0) {
			return rv;
		}
	}
	if (!agree_is_leader(agree)) {
		rv = await(agree, poll_run, NULL, agree->timeout_ns, err);
	} else {
		joined.joins = calloc(AGREE_HOSTS_MAX, sizeof(*joined.joins));
		rv = joined.joins
			? await(agree, poll_joins, &joined, agree->timeout_ns, err)
			: pawl_err_set(err, PAWL_ENOMEM, "no memory for %u hosts", AGREE_HOSTS_MAX);
		free(joined.joins);
	}
	agree->draft_n = 0;
	set_in_run(agree, rv == 0);
	return rv;
}

int agree_take_part(struct agree *agree, struct pawl_err *err)
{
	int rv;

	agree->run_used = agree->run_used || agree->in_run;
	rv = agree_enter(agree, err);
	agree->run_used = agree->run_used || rv == 0;
	return rv;
}

static void add_host(struct peer_map *map, const struct agree_member *member)
{
	struct peer_host *host = &map->hosts[map->n++];

	host->first_rank = member->first_rank;
	host->ranks = member->ranks;
	memcpy(host->address, member->address, sizeof(host->address));
	memcpy(host->domain, member->domain, sizeof(host->domain));
	host->replicas = member->replicas;
	host->parity = member->parity;
}

void agree_get_map(const struct agree *agree, struct peer_map *map)
{
	const struct agree_msg_run *run = &agree->run;

	*map = (struct peer_map){.run = agree->in_run ? run->run : 0};
	if (!agree->in_run) {
		return;
	}
	add_host(map, &run->leader);
	for (uint32_t m = 0; m < run->members_n; m++) {
		map->own = run->members[m].first_rank == agree->own.first_rank ? map->n : map->own;
		add_host(map, &run->members[m]);
	}
}

/* ---- rounds ---- */

/* poll_fn: writes agree->out to the path *what. */
static int poll_write(struct agree *agree, void *what, struct pawl_err *err)
{
	int rv = write_msg(agree, what, err);

	return rv == 0 ? 1 : rv;
}

int agree_send(struct agree *agree, enum agree_round round, uint64_t n, bool is_result,
	struct pawl_err *err)
{
	char path[AGREE_PATH_MAX];
	int rv;

	ASSERT(is_result == agree_is_leader(agree)); /* the leader has no part to send */
	round_path(agree, round, n, is_result ? UINT32_MAX : agree->own.first_rank, path);
	rv = await(agree, poll_write, path, agree->timeout_ns, err);
	/* The directory is removed with its run. */
	return rv == PAWL_ENOENT && check_run(agree, err) == PAWL_EPEER ? PAWL_EPEER : rv;
}

/* A round whose parts are gathered. */
struct gathering {
	struct agree *agree;
	enum agree_round round;
	uint64_t n; /* number of the round */
	/* Members that have sent their part, or are past the round. */
	bool arrived[AGREE_HOSTS_MAX];
	uint32_t arrived_n;  /* number of members that have arrived */
	uint32_t mismatched; /* member that restores while a save is gathered; members_n: none */
	uint64_t save;       /* oldest save a member is in, while a restore is gathered; 0: none */
	int64_t since_ns;    /* when the gathering began, monotonic ns */
};

/* Whether a round comes after the newest one that is over. Saves have the numbers of host_round in
 * persist_jobs.c; restores and votes count from 0. */
static bool is_ahead(const struct agree *agree, enum agree_round round, uint64_t n)
{
	return round == AGREE_ROUND_SAVE ? n > agree->last_save : n >= agree->restores;
}

/* Whether a part for round n shows that its host has done what it does in the round that is
 * gathered. */
static bool is_past(const struct gathering *gathering, uint64_t n)
{
	bool exact = gathering->round == AGREE_ROUND_SAVE && gathering->agree->chosen;

	return exact ? n == gathering->n : n >= gathering->n;
}

static int take_part(void *user, const char *name, enum store_kind store_kind)
{
	struct gathering *gathering = user;
	const struct agree_msg_run *run = &gathering->agree->run;
	enum agree_round round;
	unsigned long long n;
	unsigned first;
	char letter; /* the value of round */
	int used = 0;

	if (sscanf(name, "%c%llu.%u%n", &letter, &n, &first, &used) != 3 || name[used] != '\0') {
		return 0;
	}
	round = (enum agree_round)letter;
	for (uint32_t m = 0; m < run->members_n; m++) {
		if (run->members[m].first_rank != first) {
			continue;
		}
		if (round == gathering->round && is_past(gathering, n) && !gathering->arrived[m]) {
			gathering->arrived[m] = true;
			gathering->arrived_n++;
		} else if ((round == AGREE_ROUND_SAVE) != (gathering->round == AGREE_ROUND_SAVE) &&
			is_ahead(gathering->agree, round, n)) {
			if (round != AGREE_ROUND_SAVE) {
				gathering->mismatched = m;
			} else if (gathering->save == 0 || n < gathering->save) {
				gathering->save = n;
			}
		}
	}
	return 0;
}

/* poll_fn of the leader */
static int poll_parts(struct agree *agree, void *what, struct pawl_err *err)
{
	struct gathering *gathering = what;
	const struct agree_msg_run *run = &agree->run;
	char path[AGREE_PATH_MAX];
	char ranks[64];
	uint32_t m = 0;
	int rv = check_run(agree, err);

	if (rv != 0) {
		return rv;
	}
	memset(gathering->arrived, 0, sizeof(gathering->arrived));
	gathering->arrived_n = 0;
	gathering->mismatched = run->members_n;
	gathering->save = 0;
	rounds_path(agree, path);
	rv = agree_notes_list(&agree->notes, path, take_part, gathering, err);
	/* A save found here cannot complete: the ranks here are past it, or never came to it. (A
	 * new agent may still be at a save of the run before.) */
	if (rv == 0 && gathering->save > 0) {
		rv = agree_save_refuse(agree, gathering->save,
			"the ranks of rank 0's host restore, and do not save", err);
	}
	if (rv != 0 || gathering->arrived_n == run->members_n) {
		return rv != 0 ? rv : 1;
	}
	if (gathering->mismatched < run->members_n && !gathering->arrived[gathering->mismatched] &&
		clock_mono_ns() - gathering->since_ns >= agree->mismatch_wait_ns) {
		m = gathering->mismatched;
		name_ranks(ranks, sizeof(ranks), run->members[m].first_rank, run->members[m].ranks);
		return pawl_err_set(err, PAWL_EMISMATCH,
			"the host of %s restores where that of rank 0 saves", ranks);
	}
	while (gathering->arrived[m]) {
		m++;
		ASSERT(m < run->members_n); /* one has not sent it */
	}
	name_ranks(ranks, sizeof(ranks), run->members[m].first_rank, run->members[m].ranks);
	snprintf(agree->why_waiting, sizeof(agree->why_waiting), "the host of %s has not %s", ranks,
		gathering->round == AGREE_ROUND_SAVE ? "written its part"
			: gathering->round == AGREE_ROUND_RESTORE
			? "asked what to restore"
			: "reported whether it can restore");
	return 0;
}

int agree_gather(struct agree *agree, enum agree_round round, uint64_t n, struct pawl_err *err)
{
	struct gathering gathering = {.agree = agree,
		.round = round,
		.n = n,
		.since_ns = clock_mono_ns()};

	ASSERT(agree_is_leader(agree));
	return await(agree, poll_parts, &gathering, agree->timeout_ns, err);
}

int agree_read_part(struct agree *agree, enum agree_round round, uint64_t n, uint32_t m,
	void **bytes, size_t *len_bytes, struct pawl_err *err)
{
	char path[AGREE_PATH_MAX];

	ASSERT(m < agree->run.members_n);
	round_path(agree, round, n, agree->run.members[m].first_rank, path);
	return agree_notes_read(&agree->notes, path, bytes, len_bytes, err);
}

/* A round whose result the leader sends. */
struct awaited_round {
	enum agree_round round;
	uint64_t n;
	struct agree_msg_status *status;
};

/* poll_fn */
static int poll_result(struct agree *agree, void *what, struct pawl_err *err)
{
	const struct awaited_round *awaited = what;
	char path[AGREE_PATH_MAX];
	void *bytes;
	size_t len_bytes;
	int rv;

	rounds_path(agree, path);
	rv = agree_notes_refresh(&agree->notes, path, err);
	round_path(agree, awaited->round, awaited->n, UINT32_MAX, path);
	if (rv == 0) {
		rv = agree_notes_read(&agree->notes, path, &bytes, &len_bytes, err);
	}
	if (rv == PAWL_ENOENT) {
		snprintf(agree->why_waiting, sizeof(agree->why_waiting),
			"the host of rank 0 has not sent the result");
		return check_run(agree, err);
	}
	if (rv != 0) {
		return rv;
	}
	rv = agree_msg_get_status(bytes, len_bytes, awaited->status, err);
	free(bytes);
	return rv == 0 ? 1 : pawl_err_prefix(err, rv, "%s", path);
}

int agree_await_result(struct agree *agree, enum agree_round round, uint64_t n,
	struct agree_msg_status *status, struct pawl_err *err)
{
	struct awaited_round awaited = {round, n, status};
	int rv;

	ASSERT(!agree_is_leader(agree));
	/* The leader may itself wait as long as that for a third host. */
	rv = await(agree, poll_result, &awaited, 2 * agree->timeout_ns, err);
	if (rv == 0 && status->code != 0) {
		rv = pawl_err_set(err, status->code, "%s", status->why);
	}
	return rv;
}

/* Returns the round whose messages are removed once round n is over; false: there is none. Rounds
 * from before a restore stay, unless the leader chooses saves. */
static bool find_old(struct agree *agree, enum agree_round round, uint64_t n, uint64_t *old)
{
	uint64_t *over = &agree->over[agree->over_n % AGREE_KEPT];

	if (round != AGREE_ROUND_SAVE || !agree->chosen) {
		*old = n - AGREE_KEPT;
		return (uint32_t)n >= AGREE_KEPT;
	}
	*old = *over;
	*over = n;
	return agree->over_n++ >= AGREE_KEPT;
}

void agree_remove_old(struct agree *agree, enum agree_round round, uint64_t n)
{
	char path[AGREE_PATH_MAX];
	uint64_t old;

	if (!find_old(agree, round, n, &old)) {
		return;
	}
	for (uint32_t m = 0; m < agree->run.members_n; m++) {
		round_path(agree, round, old, agree->run.members[m].first_rank, path);
		agree_notes_remove(&agree->notes, path, NULL);
	}
	round_path(agree, round, old, UINT32_MAX, path);
	agree_notes_remove(&agree->notes, path, NULL);
}
