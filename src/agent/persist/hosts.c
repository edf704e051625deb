/*
 * Agents of several hosts that agree through the store: see hosts.h.
 *
 *   .pawl-hosts/<job>/join.<k>     the host whose lowest rank is k has begun
 *   .pawl-hosts/<job>/lead         the host of rank 0 has begun
 *   .pawl-hosts/<job>/run          the members of the run, by rank 0's host
 *   .pawl-hosts/<job>/<run>/x<n>.k what host k says in round n of kind x
 *   .pawl-hosts/<job>/<run>/x<n>   the result of that round
 *
 * Each look begins with opening the directory, to list it: on NFS that is what makes the client ask
 * the server anew, where a file that was not there before may stay unseen for half a minute.
 */
#include "agent/persist/hosts_save.h"

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

#define HOSTS_GONE  HOSTS_DIR ".old" /* directory that is being removed */
#define CLEARS_MAX  10
#define ROUNDS_KEPT 32u /* rounds of each kind that are kept: no host is further behind */
#define NOTE_MAX    (MANIFEST_MAX_BYTES - 1u)

/* Looks once. Returns 1 if what the agent waits for is there; 0 if not yet, and hosts->late says
 * what is missing; or an error if it will never be there. */
typedef int look_fn(struct hosts *hosts, void *what, struct pawl_err *err);

/* ---- paths and notes ---- */

static void join_path(const struct hosts *hosts, uint32_t first, char path[HOSTS_PATH])
{
	snprintf(path, HOSTS_PATH, "%.100s/join.%" PRIu32, hosts->base, first);
}

static void lead_path(const struct hosts *hosts, char path[HOSTS_PATH])
{
	snprintf(path, HOSTS_PATH, "%.100s/lead", hosts->base);
}

static void run_path(const struct hosts *hosts, char path[HOSTS_PATH])
{
	snprintf(path, HOSTS_PATH, "%.100s/run", hosts->base);
}

static void rounds_path(const struct hosts *hosts, char path[HOSTS_PATH])
{
	snprintf(path, HOSTS_PATH, "%.100s/%016" PRIx64, hosts->base, hosts->run.run);
}

/* Names the note of host first in a round; first UINT32_MAX: the note with the round's result. */
static void round_path(const struct hosts *hosts, char kind, uint64_t n, uint32_t first,
	char path[HOSTS_PATH])
{
	char who[16] = "";

	if (first != UINT32_MAX) {
		snprintf(who, sizeof(who), ".%" PRIu32, first);
	}
	snprintf(path, HOSTS_PATH, "%.100s/%016" PRIx64 "/%c%" PRIu64 "%s", hosts->base,
		hosts->run.run, kind, n, who);
}

static int put_note(struct hosts *hosts, const char *path, struct pawl_err *err)
{
	if (hosts->out.failed) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for a note to the other hosts");
	}
	return store_publish(hosts->store, path, hosts->out.bytes, hosts->out.len_bytes, err);
}

static int read_join_at(struct hosts *hosts, const char *path, struct note_join *join,
	struct pawl_err *err)
{
	void *bytes;
	size_t len_bytes;
	int rv;

	rv = store_read_small(hosts->store, path, &bytes, &len_bytes, NOTE_MAX, err);
	if (rv != 0) {
		return rv;
	}
	rv = note_get_join(bytes, len_bytes, join, err);
	free(bytes);
	return rv == 0 ? 0 : pawl_err_prefix(err, rv, "%s", path);
}

static int read_join(struct hosts *hosts, uint32_t first, struct note_join *join,
	struct pawl_err *err)
{
	char path[HOSTS_PATH];

	join_path(hosts, first, path);
	return read_join_at(hosts, path, join, err);
}

static int read_run(struct hosts *hosts, struct note_run *run, struct pawl_err *err)
{
	char path[HOSTS_PATH];
	void *bytes;
	size_t len_bytes;
	int rv;

	run_path(hosts, path);
	rv = store_read_small(hosts->store, path, &bytes, &len_bytes, NOTE_MAX, err);
	if (rv != 0) {
		return rv;
	}
	rv = note_get_run(bytes, len_bytes, run, err);
	free(bytes);
	return rv == 0 ? 0 : pawl_err_prefix(err, rv, "%s", path);
}

/* ---- waiting ---- */

static int await(struct hosts *hosts, look_fn *look, void *what, int64_t timeout_ns,
	struct pawl_err *err)
{
	int64_t due_ns = clock_mono_ns() + timeout_ns;
	int64_t pause_max_ns = times_ns(TIME_HOSTS_LOOK_MAX);
	int64_t pause_ns = times_ns(TIME_HOSTS_LOOK);

	for (;;) {
		int rv = look(hosts, what, err);

		if (rv != 0) {
			return rv < 0 ? rv : 0;
		}
		if (clock_mono_ns() >= due_ns) {
			return pawl_err_set(err, PAWL_ETIMEDOUT, "%s within %lld s", hosts->late,
				(long long)(timeout_ns / NS_PER_S));
		}
		if (!hosts->pause(hosts->user, pause_ns)) {
			return pawl_err_set(err, PAWL_ECANCELED,
				"the agent leaves or its ranks began anew, and %s", hosts->late);
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

bool hosts_lead(const struct hosts *hosts)
{
	return hosts->own.first == 0;
}

void hosts_init(struct hosts *hosts, const char *job, uint32_t first, uint32_t ranks,
	uint32_t world, hosts_pause_fn *pause, void *user)
{
	const char *seconds = getenv(HOSTS_TIMEOUT);
	long s = seconds ? strtol(seconds, NULL, 10) : 0;

	hosts->own = (struct hosts_member){.first = first, .ranks = ranks};
	hosts->world = world;
	hosts->timeout_ns = s >= 1 && s <= 86400 ? s * NS_PER_S : times_ns(TIME_HOSTS_WAIT);
	hosts->astray_ns = times_ns(TIME_HOSTS_ASTRAY);
	hosts->pause = pause;
	hosts->user = user;
	snprintf(hosts->job, sizeof(hosts->job), "%s", job);
	snprintf(hosts->base, sizeof(hosts->base), HOSTS_DIR "/%08" PRIx32 "%08" PRIx32,
		crc32c(0, job, strlen(job)), crc32_zip(0, job, strlen(job)));
}

void hosts_deinit(struct hosts *hosts)
{
	wire_out_deinit(&hosts->out);
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

/* Makes the directories. Rank 0's agent, when it comes, may remove the first before the second is
 * made. */
static int make_dirs(struct hosts *hosts, struct pawl_err *err)
{
	int rv = PAWL_ENOENT;

	for (int i = 0; i < CLEARS_MAX && rv == PAWL_ENOENT; i++) {
		rv = store_mkdir(hosts->store, HOSTS_DIR, err);
		rv = rv == 0 ? store_mkdir(hosts->store, hosts->base, err) : rv;
	}
	return rv;
}

/* Removes what earlier runs left, by a rename: hosts that still write there, until they see that
 * their run is over, could keep a directory from getting empty. */
static int clear_dirs(struct store *store, struct pawl_err *err)
{
	int rv = PAWL_EEXIST;

	for (int i = 0; i < CLEARS_MAX && rv == PAWL_EEXIST; i++) {
		store_remove(store, HOSTS_GONE, NULL);
		rv = store_rename(store, HOSTS_DIR, HOSTS_GONE, STORE_REPLACE, err);
	}
	if (rv == 0) {
		store_remove(store, HOSTS_GONE, NULL); /* removed the next time, if this fails */
	}
	return rv == PAWL_ENOENT ? 0 : rv;
}

int hosts_open(struct hosts *hosts, struct store *store, struct pawl_err *err)
{
	int rv = 0;

	hosts->store = store;
	hosts->in = false;
	hosts->run = (struct note_run){0};
	if (hosts_lead(hosts)) {
		rv = clear_dirs(store, err);
	}
	return rv == 0 ? make_dirs(hosts, err) : rv;
}

/* Says that this host's ranks have begun; rank 0's host says also that no run is in force. */
static int say_begun(struct hosts *hosts, struct pawl_err *err)
{
	struct note_join join = {.member = hosts->own, .world = hosts->world};
	char path[HOSTS_PATH];
	int rv = make_dirs(hosts, err);

	if (rv != 0) {
		return rv;
	}
	if (hosts_lead(hosts)) {
		run_path(hosts, path);
		rv = store_remove(hosts->store, path, err);
		rounds_path(hosts, path);
		if (rv == 0 && hosts->run.run) {
			store_remove(hosts->store, path, NULL); /* some may still write there */
		}
		if (rv != 0) {
			return rv;
		}
		lead_path(hosts, path);
	} else {
		join_path(hosts, hosts->own.first, path);
	}
	memcpy(join.job, hosts->job, sizeof(join.job));
	note_put_join(&hosts->out, &join);
	return put_note(hosts, path, err);
}

int hosts_begin(struct hosts *hosts, struct pawl_err *err)
{
	int rv = random_number(&hosts->own.nonce, err);

	hosts->in = false;
	hosts->used = false;
	hosts->saves = 0;
	hosts->durable = 0;
	hosts->restores = 0;
	return rv == 0 ? say_begun(hosts, err) : rv;
}

/* ---- the run ---- */

/* The hosts that said that they have begun. */
struct joined {
	struct hosts *hosts;
	struct note_join *joins; /* HOSTS_MAX entries */
	uint32_t n;
};

static int take_join(void *user, const char *name, enum store_kind kind)
{
	struct joined *joined = user;
	struct note_join *join = &joined->joins[joined->n];
	unsigned long first;
	char *end;

	if (joined->n == HOSTS_MAX || strncmp(name, "join.", 5) != 0) {
		return 0;
	}
	first = strtoul(name + 5, &end, 10);
	if (*end == '\0' && first < joined->hosts->world &&
		read_join(joined->hosts, (uint32_t)first, join, NULL) == 0 &&
		strcmp(join->job, joined->hosts->job) == 0 && join->member.first == first) {
		joined->n++;
	}
	return 0;
}

/* Says in hosts->late which ranks are missing, up to the next that have come. */
static void tell_missing(struct hosts *hosts, const struct joined *joined, uint32_t missing)
{
	uint32_t next = hosts->world;
	char ranks[64];

	for (uint32_t j = 0; j < joined->n; j++) {
		uint32_t first = joined->joins[j].member.first;

		next = first > missing && first < next ? first : next;
	}
	name_ranks(ranks, sizeof(ranks), missing, next - missing);
	snprintf(hosts->late, sizeof(hosts->late),
		"%s of %" PRIu32 " have not come (job %.64s on all hosts?)", ranks, hosts->world,
		hosts->job);
}

/* look_fn of rank 0's host: waits for the hosts that make up a new run, and names it. */
static int look_joined(struct hosts *hosts, void *what, struct pawl_err *err)
{
	struct joined *joined = what;
	const struct note_run before = hosts->run;
	struct note_run run = {0};
	char path[HOSTS_PATH];
	uint32_t missing;
	int rv;

	joined->n = 0;
	rv = store_list(hosts->store, hosts->base, take_join, joined, err);
	if (rv != 0) {
		return rv;
	}
	run.members_n = hosts_plan(&hosts->own, hosts->world, joined->joins, joined->n, &hosts->run,
		run.members, &missing);
	if (run.members_n == 0) {
		tell_missing(hosts, joined, missing);
		return 0;
	}
	rv = random_number(&run.run, err);
	if (rv != 0) {
		return rv;
	}
	hosts->run = run;
	rounds_path(hosts, path);
	rv = store_mkdir(hosts->store, path, err);
	if (rv == 0) {
		note_put_run(&hosts->out, &run);
		run_path(hosts, path);
		rv = put_note(hosts, path, err);
	}
	if (rv != 0) {
		hosts->run = before; /* nobody has heard of the new run */
	}
	return rv == 0 ? 1 : rv;
}

void hosts_told(struct hosts *hosts, uint64_t nonce)
{
	hosts->told_ns = clock_mono_ns();
	hosts->told_nonce = nonce;
}

/* Returns PAWL_EINVAL if rank 0's host says that it began in a root of this name, but not in this
 * one. */
static int check_shared(struct hosts *hosts, struct pawl_err *err)
{
	uint64_t nonce = hosts->told_nonce;
	struct note_join lead;
	char path[HOSTS_PATH];

	if (nonce == 0 || clock_mono_ns() - hosts->told_ns < times_ns(TIME_HOSTS_SHARED)) {
		return 0;
	}
	lead_path(hosts, path);
	if (read_join_at(hosts, path, &lead, NULL) == 0 && lead.member.nonce == nonce) {
		hosts->told_nonce = 0;
		return 0;
	}
	return pawl_err_set(err, PAWL_EINVAL,
		"this directory is not the one of that name on rank 0's host: several hosts save "
		"to one that all of them share (NFS, say)");
}

/* look_fn of the other hosts: waits for a run with this host in it. */
static int look_named(struct hosts *hosts, void *what, struct pawl_err *err)
{
	struct note_join own;
	struct note_run run;
	char ranks[64];
	int rv = read_run(hosts, &run, err);

	for (uint32_t m = 0; rv == 0 && m < run.members_n; m++) {
		if (run.members[m].nonce == hosts->own.nonce) {
			hosts->run = run;
			return 1;
		}
	}
	if (rv != 0 && rv != PAWL_ENOENT) {
		return rv;
	}
	name_ranks(ranks, sizeof(ranks), hosts->own.first, hosts->own.ranks);
	snprintf(hosts->late, sizeof(hosts->late),
		"rank 0's host has not named that of %s (job %.64s on all hosts? one root?)", ranks,
		hosts->job);
	if (read_join(hosts, hosts->own.first, &own, NULL) != 0) {
		/* Rank 0's agent came later, and removed this host's note. */
		rv = say_begun(hosts, err);
		return rv == PAWL_ENOENT ? 0 : rv;
	}
	return check_shared(hosts, err);
}

/* Returns PAWL_EPEER if a host of the run has begun anew since. */
static int check_run(struct hosts *hosts, struct pawl_err *err)
{
	struct note_join join;
	struct note_run run;
	char ranks[64];
	int rv;

	if (!hosts_lead(hosts)) {
		rv = read_run(hosts, &run, err);
		if (rv == PAWL_ENOENT || (rv == 0 && run.run != hosts->run.run)) {
			return pawl_err_set(err, PAWL_EPEER,
				"the host of rank 0, or another, began anew");
		}
		return rv;
	}
	for (uint32_t m = 0; m < hosts->run.members_n; m++) {
		const struct hosts_member *member = &hosts->run.members[m];

		rv = read_join(hosts, member->first, &join, err);
		if (rv == 0 && join.member.nonce != member->nonce) {
			name_ranks(ranks, sizeof(ranks), member->first, member->ranks);
			return pawl_err_set(err, PAWL_EPEER, "the host of %s began anew", ranks);
		}
		if (rv != 0) {
			return rv;
		}
	}
	return 0;
}

int hosts_enter(struct hosts *hosts, struct pawl_err *err)
{
	struct joined joined = {.hosts = hosts};
	int rv = hosts->in ? check_run(hosts, err) : PAWL_EPEER;

	if (rv == 0) {
		return 0;
	}
	if (rv != PAWL_EPEER || (hosts->in && hosts->used)) {
		return rv;
	}
	/* If a run ended before anything was done in it, another one will do. */
	if (hosts->in) {
		rv = hosts_begin(hosts, err);
		if (rv != 0) {
			return rv;
		}
	}
	if (!hosts_lead(hosts)) {
		rv = await(hosts, look_named, NULL, hosts->timeout_ns, err);
	} else {
		joined.joins = calloc(HOSTS_MAX, sizeof(*joined.joins));
		rv = joined.joins
			? await(hosts, look_joined, &joined, hosts->timeout_ns, err)
			: pawl_err_set(err, PAWL_ENOMEM, "no memory for %u hosts", HOSTS_MAX);
		free(joined.joins);
	}
	hosts->in = rv == 0;
	return rv;
}

/* ---- rounds ---- */

int hosts_say(struct hosts *hosts, char kind, uint64_t n, bool said, struct pawl_err *err)
{
	char path[HOSTS_PATH];

	int rv;

	round_path(hosts, kind, n, said ? UINT32_MAX : hosts->own.first, path);
	rv = put_note(hosts, path, err);
	/* The directory is removed with its run. */
	return rv == PAWL_ENOENT && check_run(hosts, err) == PAWL_EPEER ? PAWL_EPEER : rv;
}

/* A round whose parts are gathered. */
struct gathering {
	struct hosts *hosts;
	char kind;
	uint64_t n;
	bool there[HOSTS_MAX]; /* members that have said their part, or have gone past it */
	uint32_t there_n;
	uint32_t astray;  /* member that restores while a save is gathered; members_n: none */
	uint64_t save;    /* oldest save a member is in, while a restore is gathered; 0: none */
	int64_t since_ns; /* when the gathering began, monotonic ns */
};

/* Whether a round comes after the newest one that is over. Saves have the numbers of persist.c's
 * host_round, restores and votes count from 0. */
static bool is_ahead(const struct hosts *hosts, char kind, uint64_t n)
{
	return kind == 's' ? n > hosts->saves : n >= hosts->restores;
}

static int take_part(void *user, const char *name, enum store_kind store_kind)
{
	struct gathering *round = user;
	const struct note_run *run = &round->hosts->run;
	unsigned long long n;
	unsigned first;
	char kind;
	int used = 0;

	if (sscanf(name, "%c%llu.%u%n", &kind, &n, &first, &used) != 3 || name[used] != '\0') {
		return 0;
	}
	for (uint32_t m = 0; m < run->members_n; m++) {
		if (run->members[m].first != first) {
			continue;
		}
		if (kind == round->kind && n >= round->n && !round->there[m]) {
			round->there[m] = true;
			round->there_n++;
		} else if ((kind == 's') != (round->kind == 's') &&
			is_ahead(round->hosts, kind, n)) {
			if (kind != 's') {
				round->astray = m;
			} else if (round->save == 0 || n < round->save) {
				round->save = n;
			}
		}
	}
	return 0;
}

/* look_fn of rank 0's host */
static int look_parts(struct hosts *hosts, void *what, struct pawl_err *err)
{
	struct gathering *round = what;
	const struct note_run *run = &hosts->run;
	char path[HOSTS_PATH];
	char ranks[64];
	uint32_t m = 0;
	int rv = check_run(hosts, err);

	if (rv != 0) {
		return rv;
	}
	memset(round->there, 0, sizeof(round->there));
	round->there_n = 0;
	round->astray = run->members_n;
	round->save = 0;
	rounds_path(hosts, path);
	rv = store_list(hosts->store, path, take_part, round, err);
	/* A save found here is in vain: the ranks here have gone past it, or never came to it. (A
	 * new agent may still be at a save of the run before.) */
	if (rv == 0 && round->save > 0) {
		rv = hosts_save_refuse(hosts, round->save,
			"the ranks of rank 0's host restore, and do not save", err);
	}
	if (rv != 0 || round->there_n == run->members_n) {
		return rv != 0 ? rv : 1;
	}
	if (round->astray < run->members_n && !round->there[round->astray] &&
		clock_mono_ns() - round->since_ns >= hosts->astray_ns) {
		m = round->astray;
		name_ranks(ranks, sizeof(ranks), run->members[m].first, run->members[m].ranks);
		return pawl_err_set(err, PAWL_EMISMATCH,
			"the host of %s restores where that of rank 0 saves", ranks);
	}
	while (round->there[m]) {
		m++;
	}
	name_ranks(ranks, sizeof(ranks), run->members[m].first, run->members[m].ranks);
	snprintf(hosts->late, sizeof(hosts->late), "the host of %s has not %s", ranks,
		round->kind == 's'           ? "written its part"
			: round->kind == 'r' ? "asked what to restore"
					     : "said whether it can restore it");
	return 0;
}

int hosts_gather(struct hosts *hosts, char kind, uint64_t n, struct pawl_err *err)
{
	struct gathering round = {.hosts = hosts,
		.kind = kind,
		.n = n,
		.since_ns = clock_mono_ns()};

	return await(hosts, look_parts, &round, hosts->timeout_ns, err);
}

int hosts_read(struct hosts *hosts, char kind, uint64_t n, uint32_t m, void **bytes,
	size_t *len_bytes, struct pawl_err *err)
{
	char path[HOSTS_PATH];

	round_path(hosts, kind, n, hosts->run.members[m].first, path);
	return store_read_small(hosts->store, path, bytes, len_bytes, NOTE_MAX, err);
}

/* A round that another host ends. */
struct hearing {
	char kind;
	uint64_t n;
	struct note_word *word;
};

/* store_list_fn: stops at once, as only opening the directory matters. */
static int take_nothing(void *user, const char *name, enum store_kind kind)
{
	return 1;
}

/* look_fn */
static int look_said(struct hosts *hosts, void *what, struct pawl_err *err)
{
	const struct hearing *hearing = what;
	char path[HOSTS_PATH];
	void *bytes;
	size_t len_bytes;
	int rv;

	rounds_path(hosts, path);
	rv = store_list(hosts->store, path, take_nothing, NULL, NULL);
	round_path(hosts, hearing->kind, hearing->n, UINT32_MAX, path);
	if (rv == 0) {
		rv = store_read_small(hosts->store, path, &bytes, &len_bytes, NOTE_MAX, err);
	}
	if (rv == PAWL_ENOENT) {
		snprintf(hosts->late, sizeof(hosts->late),
			"the host of rank 0 has not said what came of it");
		return check_run(hosts, err);
	}
	if (rv != 0) {
		return rv;
	}
	rv = note_get_word(bytes, len_bytes, hearing->word, err);
	free(bytes);
	return rv == 0 ? 1 : pawl_err_prefix(err, rv, "%s", path);
}

int hosts_hear(struct hosts *hosts, char kind, uint64_t n, struct note_word *word,
	struct pawl_err *err)
{
	struct hearing hearing = {kind, n, word};
	/* Rank 0's host may itself wait that long for a third host. */
	int rv = await(hosts, look_said, &hearing, 2 * hosts->timeout_ns, err);

	if (rv == 0 && word->code != 0) {
		rv = pawl_err_set(err, word->code, "%s", word->why);
	}
	return rv;
}

void hosts_forget(struct hosts *hosts, char kind, uint64_t n)
{
	char path[HOSTS_PATH];

	/* Rounds before a restore stay. */
	if ((uint32_t)n < ROUNDS_KEPT) {
		return;
	}
	for (uint32_t m = 0; m < hosts->run.members_n; m++) {
		round_path(hosts, kind, n - ROUNDS_KEPT, hosts->run.members[m].first, path);
		store_remove(hosts->store, path, NULL);
	}
	round_path(hosts, kind, n - ROUNDS_KEPT, UINT32_MAX, path);
	store_remove(hosts->store, path, NULL);
}
