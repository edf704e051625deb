/* `pawl run --elastic --door`: the files by which launchers show that their ranks live, and what
 * others decide on them, over random histories of jobs whose steps are long. */
#include "base/clock.h"
#include "base/err.h"
#include "base/rng.h"
#include "base/times.h"
#include "launch/run_joint.h"
#include "launch/run_presence.h"
#include "within.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define S           1000000000LL
#define HISTORIES   400u
#define TICK_NS     times_ns(TIME_JOINT_LOOK)
#define TICKS       4000u
#define LAUNCHERS   4u
#define RANKS       2u /* ranks of each launcher */
#define STEP_MAX_NS (120 * S)
#define PENDING_MAX 16u

/* ---- the files ---- */

static char folder[] = "/tmp/pawl-alive-XXXXXX";
static char membership_path[64];

static int make_folder(void **state)
{
	snprintf(folder, sizeof(folder), "/tmp/pawl-alive-XXXXXX");
	assert_non_null(mkdtemp(folder));
	snprintf(membership_path, sizeof(membership_path), "%s/door", folder);
	return 0;
}

static int remove_folder(void **state)
{
	membership_remove(membership_path);
	membership_remove_alive(membership_path);
	return rmdir(folder);
}

static struct membership_alive read_alive(uint32_t launcher)
{
	struct membership_alive alive;

	membership_read_alive(&alive, membership_path, launcher);
	return alive;
}

static void live_ranks_are_written_and_read(void **state)
{
	struct membership_alive alive = {.heartbeat = 12, .ranks = 1ull << 63 | 1};
	struct pawl_err err;
	char path[80];
	FILE *file;

	assert_int_equal(read_alive(3).heartbeat, 0);
	assert_int_equal(membership_write_alive(&alive, membership_path, 3, &err), 0);
	assert_int_equal(read_alive(3).heartbeat, 12);
	assert_true(read_alive(3).ranks == (1ull << 63 | 1));
	assert_int_equal(read_alive(30).heartbeat, 0);
	assert_false(read_alive(3).leaves);
	alive.leaves = true;
	assert_int_equal(membership_write_alive(&alive, membership_path, 3, &err), 0);
	assert_true(read_alive(3).leaves);
	alive.ranks = 0;
	assert_int_equal(membership_write_alive(&alive, membership_path, 3, &err), 0);
	assert_int_equal(membership_write_alive(&alive, membership_path, 3, &err), 0);
	assert_int_equal(read_alive(3).heartbeat, 0);
	snprintf(path, sizeof(path), "%s.alive3", membership_path);
	assert_int_equal(access(path, F_OK), -1);
	file = fopen(path, "w"); /* as where a file server lost some of it */
	assert_non_null(file);
	fputs("17", file);
	fclose(file);
	assert_int_equal(read_alive(3).heartbeat, 0);
}

static void write_alive(uint32_t launcher, uint64_t ranks, bool leaves)
{
	const struct membership_alive alive = {.heartbeat = 1, .ranks = ranks, .leaves = leaves};
	struct pawl_err err;

	assert_int_equal(membership_write_alive(&alive, membership_path, launcher, &err), 0);
}

/* Others stay where a rank that trains is shown as alive by another launcher that does not leave.
 */
static void others_stay_if_they_live_and_do_not_leave(void **state)
{
	struct run_plan plan = {.first = 64}; /* launcher 1 */
	struct run_joint joint = {.options = {.plan = &plan}};
	FILE *file;

	snprintf(plan.membership_path, sizeof(plan.membership_path), "%s", membership_path);
	assert_false(run_joint_others_stay(&joint)); /* nobody has written a membership */
	file = fopen(membership_path, "w");
	assert_non_null(file);
	fputs("127.0.0.1:1:ff 0 64 128\n", file); /* ranks of launchers 0, 1 and 2 */
	fclose(file);
	assert_false(run_joint_others_stay(&joint));
	write_alive(1, 1, false); /* we ourselves do not count */
	write_alive(0, 2, false); /* lives, but does not train */
	assert_false(run_joint_others_stay(&joint));
	write_alive(2, 1, true);
	assert_false(run_joint_others_stay(&joint));
	write_alive(0, 1, false);
	assert_true(run_joint_others_stay(&joint));
	joint.heartbeats_then[0] = 1; /* dead since we began to leave */
	assert_false(run_joint_others_stay(&joint));
	joint.heartbeats_then[0] = 9;
	assert_true(run_joint_others_stay(&joint));
	write_alive(0, 1, true);
	assert_false(run_joint_others_stay(&joint));
	membership_remove_alive(membership_path);
}

/* Only the files of launchers are removed, and nothing else that lies there. */
static void what_is_left_is_removed(void **state)
{
	const struct membership_alive alive = {.heartbeat = 1, .ranks = 1};
	struct pawl_err err;
	char other[64];
	struct membership_alive read;

	snprintf(other, sizeof(other), "%s/doors", folder);
	assert_int_equal(membership_write_alive(&alive, membership_path, 0, &err), 0);
	assert_int_equal(membership_write_alive(&alive, membership_path, 1023, &err), 0);
	assert_int_equal(membership_write_alive(&alive, other, 0, &err), 0);
	membership_remove_alive(membership_path);
	assert_int_equal(read_alive(0).heartbeat, 0);
	assert_int_equal(read_alive(1023).heartbeat, 0);
	membership_read_alive(&read, other, 0);
	assert_int_equal(read.heartbeat, 1);
	membership_remove_alive(other);
	membership_remove_alive("");
}

static void wait_for(uint64_t ranks, uint64_t before)
{
	WITHIN(WITHIN_LONG_S, read_alive(5).ranks == ranks && read_alive(5).heartbeat != before);
}

static void show_ranks(struct run_presence *presence, uint64_t ranks)
{
	const struct membership_alive alive = {.ranks = ranks};

	run_presence_update(presence, &alive);
}

static void a_launcher_shows_its_ranks_until_it_ends(void **state)
{
	struct run_presence *presence;
	struct pawl_err err;
	uint64_t heartbeat;

	assert_int_equal(run_presence_open(&presence, membership_path, 5, &err), 0);
	show_ranks(presence, 3);
	wait_for(3, 0);
	heartbeat = read_alive(5).heartbeat;
	show_ranks(presence, 3); /* the ranks still live */
	wait_for(3, heartbeat);
	show_ranks(presence, 0);
	wait_for(0, 1);
	show_ranks(presence, 2);
	wait_for(2, 0);
	run_presence_close(presence);
	wait_for(0, 1); /* on a busy machine the thread may have been left behind */
	run_presence_close(NULL);
}

/* The file cannot be written, as on a full disk. */
static void where_it_cannot_be_written_nothing_ends(void **state)
{
	struct run_presence *presence;
	struct pawl_err err;
	char path[80];

	snprintf(path, sizeof(path), "%s.alive5", membership_path);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(run_presence_open(&presence, membership_path, 5, &err), 0);
	show_ranks(presence, 1);
	within_pace(0.02);
	assert_int_equal(rmdir(path), 0);
	show_ranks(presence, 1);
	wait_for(1, 0);
	run_presence_close(presence);
	wait_for(0, 1);
}

/* ---- jobs of several launchers ---- */

struct launcher {
	uint64_t alive; /* a bit for each of its numbers: that rank lives */
	/* A bit for each of its numbers: that rank was admitted, dead ranks too. */
	uint64_t trains;
	uint32_t numbered;             /* the next number of a rank */
	bool killed;                   /* killed with its ranks */
	bool stopped;                  /* the launcher alone is stopped, as by SIGSTOP */
	bool mute;                     /* cannot write its file */
	struct membership_alive shown; /* content of its file */
	int64_t heartbeat_ns; /* time when the file was last written, or should have been */
	int64_t seen_ns;      /* last time when the file could have shown a live rank */
	/* Time since which it shows a rank of the membership; 0: it does not. */
	int64_t shows_ns;
	uint32_t n; /* number of ends to judge */
	struct run_joint_pending pending[PENDING_MAX];
	uint64_t last_heartbeats[LAUNCHERS]; /* heartbeats of the others, while an end is pending */
	int64_t looked_ns; /* time of the last poll, or of the first pending end */
	int64_t woke_ns;   /* time when it last stood still */
};

static struct launcher launchers[LAUNCHERS];
static struct membership membership;
static int64_t now_ns;
static int64_t step_ends_ns;
static uint32_t steps;

static bool runs(const struct launcher *one)
{
	return !one->killed && !one->stopped;
}

static void start_rank(struct launcher *one)
{
	uint32_t number;

	do {
		number = one->numbered++ % MEMBERSHIP_LAUNCHER_RANKS;
	} while ((one->alive >> number & 1) != 0);
	one->alive |= 1ull << number;
	one->trains &= ~(1ull << number);
}

static void kill_rank(struct launcher *one, uint32_t number)
{
	one->alive &= ~(1ull << number);
	if (one->n == 0) {
		one->looked_ns = now_ns;
		memset(one->last_heartbeats, 0, sizeof(one->last_heartbeats));
	}
	one->pending[one->n++] = (struct run_joint_pending){
		.end = {.number = (uint32_t)(one - launchers) * MEMBERSHIP_LAUNCHER_RANKS + number,
			.exit = {.status = 137}},
		.ended_ns = now_ns,
	};
}

/* Ends a step. If a rank that trains lives, the membership then has all live ranks, newcomers
 * included. */
static void make_step(struct rng *rng)
{
	uint64_t trains = 0;

	step_ends_ns = now_ns + 1 + (int64_t)rng_below(rng, STEP_MAX_NS);
	for (uint32_t i = 0; i < LAUNCHERS; i++) {
		trains |= launchers[i].trains & launchers[i].alive;
	}
	if (trains == 0) {
		return;
	}
	steps++;
	membership.n = 0;
	for (uint32_t i = 0; i < LAUNCHERS * MEMBERSHIP_LAUNCHER_RANKS; i++) {
		struct launcher *one = &launchers[i / MEMBERSHIP_LAUNCHER_RANKS];

		if ((one->alive >> i % MEMBERSHIP_LAUNCHER_RANKS & 1) != 0) {
			one->trains |= 1ull << i % MEMBERSHIP_LAUNCHER_RANKS;
			membership.numbers[membership.n++] = i;
		}
	}
}

static void happen(struct rng *rng)
{
	struct launcher *one = &launchers[rng_below(rng, LAUNCHERS)];
	uint32_t number = (uint32_t)rng_below(rng, 4 * MEMBERSHIP_LAUNCHER_RANKS);

	if (one->killed) {
		return;
	}
	switch (rng_below(rng, 6000)) {
	case 0:
		one->killed = true;
		one->alive = 0;
		break;
	case 1:
	case 2:
		one->stopped = !one->stopped;
		break;
	case 3:
		one->mute = !one->mute;
		break;
	default:
		if (number < MEMBERSHIP_LAUNCHER_RANKS && (one->alive >> number & 1) != 0 &&
			one->n < PENDING_MAX) {
			kill_rank(one, number);
		}
	}
}

static void show(struct launcher *one)
{
	uint64_t listed = run_joint_member_mask(&membership, (uint32_t)(one - launchers));
	bool shows = runs(one) && !one->mute && (one->alive & listed) != 0;

	one->shows_ns = !shows ? 0 : one->shows_ns != 0 ? one->shows_ns : now_ns;
	if (runs(one) && !one->mute && one->alive != 0) {
		one->seen_ns = now_ns;
	}
	if (!runs(one) || now_ns - one->heartbeat_ns < times_ns(TIME_RUN_HEARTBEAT)) {
		return;
	}
	one->heartbeat_ns = now_ns;
	if (one->alive == 0) {
		one->shown = (struct membership_alive){0};
	} else if (!one->mute) {
		one->shown = (struct membership_alive){(uint64_t)now_ns, one->alive};
	}
}

static bool listen(struct launcher *one)
{
	bool lives = false;

	for (uint32_t i = 0; i < LAUNCHERS; i++) {
		lives = (one != &launchers[i] &&
				run_joint_check_heartbeat(&one->last_heartbeats[i],
					&launchers[i].shown,
					run_joint_member_mask(&membership, i))) ||
			lives;
	}
	return lives;
}

/* Checks that no launcher gives up while others show that they go on, and that none waits for
 * ever. */
static void check(const struct launcher *one, enum run_verdict verdict, int64_t since_ns)
{
	for (uint32_t i = 0; i < LAUNCHERS; i++) {
		const struct launcher *other = &launchers[i];

		if (other == one) {
			continue;
		}
		since_ns = other->seen_ns > since_ns ? other->seen_ns : since_ns;
		if (verdict == RUN_VERDICT_NONE_LEFT && other->shows_ns != 0) {
			assert_true(now_ns - other->shows_ns < times_ns(TIME_JOINT_WAIT));
		}
	}
	if (verdict == RUN_VERDICT_UNKNOWN) {
		assert_true(now_ns - since_ns < times_ns(TIME_JOINT_WAIT) +
				times_ns(TIME_RUN_HEARTBEAT) + times_ns(TIME_JOINT_PEERS));
	}
}

static enum run_verdict look(struct launcher *one)
{
	const struct run_joint_pending *pending = &one->pending[0];
	const struct run_joint_ranks ours = {
		.first = (uint32_t)(one - launchers) * MEMBERSHIP_LAUNCHER_RANKS,
		.alive = one->alive,
		.joins = one != launchers,
		.seen_others = true,
	};
	enum run_verdict verdict =
		run_joint_judge(&ours, &membership, &pending->end, &pending->liveness);

	check(one, verdict, pending->ended_ns > one->woke_ns ? pending->ended_ns : one->woke_ns);
	return verdict;
}

/* Returns true if the launcher gives up. */
static bool live(struct launcher *one)
{
	bool lives;

	if (!runs(one)) {
		one->woke_ns = now_ns;
		return false;
	}
	lives = now_ns % times_ns(TIME_JOINT_PEERS) == 0 && listen(one);
	for (uint32_t i = 0; i < one->n; i++) {
		run_joint_advance(&one->pending[i].liveness, now_ns - one->looked_ns, lives);
	}
	one->looked_ns = now_ns;
	while (one->n > 0) {
		enum run_verdict verdict = look(one);

		if (verdict == RUN_VERDICT_UNKNOWN) {
			return false;
		}
		if (verdict == RUN_VERDICT_NONE_LEFT) {
			return true;
		}
		assert_int_equal(verdict, RUN_VERDICT_GO_ON);
		start_rank(one);
		one->n--;
		memmove(&one->pending[0], &one->pending[1], one->n * sizeof(one->pending[0]));
	}
	return false;
}

/* Returns whether a launcher gave up. */
static bool run_history(struct rng *rng)
{
	memset(launchers, 0, sizeof(launchers));
	membership = (struct membership){.state = MEMBERSHIP_OPEN};
	now_ns = 1000 * S;
	for (uint32_t i = 0; i < LAUNCHERS * RANKS; i++) {
		start_rank(&launchers[i % LAUNCHERS]);
	}
	launchers[0].trains = launchers[0].alive;
	make_step(rng);
	for (uint32_t tick = 0; tick < TICKS; tick++) {
		now_ns += TICK_NS;
		happen(rng);
		if (now_ns >= step_ends_ns) {
			make_step(rng);
		}
		for (uint32_t i = 0; i < LAUNCHERS; i++) {
			show(&launchers[i]);
		}
		for (uint32_t i = 0; i < LAUNCHERS; i++) {
			if (live(&launchers[i])) {
				return true;
			}
		}
	}
	return false;
}

static void nobody_gives_up_while_others_live(void **state)
{
	const char *given = getenv("PAWL_TEST_SEED");
	uint64_t seed = given != NULL ? strtoull(given, NULL, 10) : 20261125;
	uint32_t gave_up = 0;

	print_message("seed %llu\n", (unsigned long long)seed);
	for (uint64_t i = 0; i < HISTORIES; i++) {
		struct rng rng = {seed + i};

		gave_up += run_history(&rng);
	}
	print_message("%u of %u gave up, %u steps\n", gave_up, HISTORIES, steps);
	/* Both outcomes were tried. */
	assert_true(given != NULL || (gave_up > 0 && gave_up < HISTORIES));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(live_ranks_are_written_and_read, make_folder,
			remove_folder),
		cmocka_unit_test_setup_teardown(others_stay_if_they_live_and_do_not_leave,
			make_folder, remove_folder),
		cmocka_unit_test_setup_teardown(what_is_left_is_removed, make_folder,
			remove_folder),
		cmocka_unit_test_setup_teardown(a_launcher_shows_its_ranks_until_it_ends,
			make_folder, remove_folder),
		cmocka_unit_test_setup_teardown(where_it_cannot_be_written_nothing_ends,
			make_folder, remove_folder),
		cmocka_unit_test(nobody_gives_up_while_others_live),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
