/* Placement: what must hold for any cluster, jobs and choices, and results that are known. */
#include "base/fault.h"
#include "close.h"
#include "each_fault.h"
#include "sched/policy/place.h"
#include "seed.h"

#include <string.h>

#define CASES     100000u
#define NODES_MAX 7u
#define JOBS_MAX  9u
#define SLOTS_MAX 8u
#define ALL_MAX   (NODES_MAX * SLOTS_MAX)

static uint64_t first_seed;

/* A cluster, its jobs, the choice for them, and where it is placed. */
struct room {
	struct sched_view view;
	struct sched_node nodes[NODES_MAX];
	struct sched_job jobs[JOBS_MAX];
	uint32_t now[JOBS_MAX][ALL_MAX];
	struct sched_choice choices[JOBS_MAX * 3 * (ALL_MAX + 1)];
	uint32_t first[JOBS_MAX + 1];
	struct sched_problem problem;
	bool kept[JOBS_MAX];
	uint32_t left[NODES_MAX];
	uint32_t chosen[JOBS_MAX];
	uint32_t granted[JOBS_MAX][ALL_MAX];
	struct sched_grant grants[JOBS_MAX];
};

static uint32_t below(struct rng *rng, uint32_t n)
{
	return (uint32_t)rng_below(rng, n);
}

/* Gives jobs some slots of one type each, packed or strewn, also where they are not allowed to
 * be. */
static void make_jobs(struct rng *rng, struct room *room)
{
	uint32_t left[NODES_MAX];

	for (uint32_t node = 0; node < room->view.nodes_n; node++) {
		left[node] = room->nodes[node].slots;
	}
	for (uint32_t j = 0; j < room->view.jobs_n; j++) {
		struct sched_job *job = &room->jobs[j];
		uint32_t type = below(rng, 3);
		uint32_t wanted = below(rng, 10);
		bool strewn = below(rng, 8) == 0;

		*job = (struct sched_job){.id = j,
			.least = 1 + below(rng, 3) * below(rng, 2),
			.pinned = below(rng, 6) == 0,
			.nodes = room->now[j]};
		job->most = job->least + below(rng, 20);
		for (uint32_t node = 0; node < room->view.nodes_n; node++) {
			uint32_t most = strewn ? 1 : wanted;

			while (room->nodes[node].type == type && left[node] > 0 && most > 0 &&
				job->replicas < wanted) {
				room->now[j][job->replicas++] = node;
				left[node]--;
				most--;
			}
		}
	}
	if (below(rng, 4) == 0 && room->view.nodes_n > 0) { /* A node goes away. */
		room->nodes[below(rng, room->view.nodes_n)].slots = below(rng, 2);
	}
}

static uint32_t list_type(struct rng *rng, struct room *room, uint32_t j, uint32_t type, uint32_t n)
{
	for (uint32_t r = room->jobs[j].least; r <= room->jobs[j].most; r++) {
		if (below(rng, 3) > 0) {
			room->choices[n++] = (struct sched_choice){type, r, 0};
		}
	}
	return n;
}

static void make_choices(struct rng *rng, struct room *room)
{
	uint32_t n = 0;

	for (uint32_t j = 0; j < room->view.jobs_n; j++) {
		room->first[j] = n;
		room->choices[n++] = (struct sched_choice){0, 0, 0};
		for (uint32_t t = 0; t < 3 && !room->kept[j]; t++) {
			n = list_type(rng, room, j, t, n);
		}
	}
	room->first[room->view.jobs_n] = n;
	room->problem = (struct sched_problem){.choices = room->choices,
		.first = room->first,
		.jobs_n = room->view.jobs_n};
}

/* Chooses any sizes that fit the slots of their types; half of the jobs keep their size. */
static void choose(struct rng *rng, struct room *room)
{
	uint32_t all[SCHED_TYPES_MAX];
	uint32_t largest[SCHED_TYPES_MAX];

	sched_place_sum(&room->view, room->left, all, largest);
	for (uint32_t j = 0; j < room->view.jobs_n; j++) {
		uint32_t n = room->first[j + 1] - room->first[j];
		bool keeps = below(rng, 2) == 0;

		room->chosen[j] = room->first[j];
		for (uint32_t c = 0; c < 3 * n; c++) {
			uint32_t at = room->first[j] + below(rng, n);
			const struct sched_choice *choice = &room->choices[at];

			if (choice->replicas <= all[choice->type] &&
				(!keeps || choice->replicas == room->jobs[j].replicas)) {
				room->chosen[j] = at;
				all[choice->type] -= choice->replicas;
				break;
			}
		}
	}
}

static void make_room(struct rng *rng, struct room *room)
{
	bool equal = below(rng, 2) == 0;
	uint32_t slots = 1 + below(rng, SLOTS_MAX);

	memset(room, 0, sizeof(*room));
	room->view = (struct sched_view){.nodes = room->nodes,
		.nodes_n = below(rng, NODES_MAX + 1),
		.jobs = room->jobs,
		.jobs_n = below(rng, JOBS_MAX + 1)};
	for (uint32_t node = 0; node < room->view.nodes_n; node++) {
		room->nodes[node] =
			(struct sched_node){.slots = equal ? slots : below(rng, SLOTS_MAX + 1),
				.type = below(rng, 3)};
	}
	make_jobs(rng, room);
	sched_place_keep(&room->view, room->kept, room->left);
	make_choices(rng, room);
	choose(rng, room);
	for (uint32_t j = 0; j < JOBS_MAX; j++) {
		room->grants[j].nodes = room->granted[j];
	}
}

/* ---- what must hold ---- */

static bool is_spread(const uint32_t *nodes, uint32_t n)
{
	for (uint32_t i = 1; i < n; i++) {
		if (nodes[i] != nodes[0]) {
			return true;
		}
	}
	return false;
}

static void assert_nodes_hold(const struct room *room)
{
	for (uint32_t node = 0; node < room->view.nodes_n; node++) {
		uint32_t used = 0;
		uint32_t spread = 0;
		uint32_t pinned = 0;

		for (uint32_t j = 0; j < room->view.jobs_n; j++) {
			const struct sched_grant *grant = &room->grants[j];
			uint32_t on = 0;

			for (uint32_t i = 0; i < grant->replicas; i++) {
				on += grant->nodes[i] == node;
			}
			used += on;
			if (on > 0 && is_spread(grant->nodes, grant->replicas)) {
				spread++;
				pinned += room->kept[j];
			}
		}
		assert_true(used <= room->nodes[node].slots);
		assert_true(spread <= 1 || spread == pinned);
	}
}

static void assert_jobs_hold(const struct room *room, const uint32_t *wanted)
{
	uint32_t all[SCHED_TYPES_MAX];
	uint32_t largest[SCHED_TYPES_MAX];

	sched_place_sum(&room->view, room->left, all, largest);
	for (uint32_t j = 0; j < room->view.jobs_n; j++) {
		const struct sched_job *job = &room->jobs[j];
		const struct sched_grant *grant = &room->grants[j];
		const struct sched_choice *choice = &room->choices[room->chosen[j]];
		const struct sched_choice *was = &room->choices[wanted[j]];

		if (room->kept[j]) {
			assert_int_equal(grant->replicas, job->replicas);
			assert_memory_equal(grant->nodes, job->nodes,
				job->replicas * sizeof(uint32_t));
			continue;
		}
		assert_in_range(room->chosen[j], room->first[j], wanted[j]);
		assert_int_equal(grant->replicas, choice->replicas);
		assert_true(grant->replicas == 0 ||
			(grant->replicas >= job->least && grant->replicas <= job->most));
		assert_true(choice->replicas == 0 || choice->type == was->type);
		for (uint32_t i = 0; i < grant->replicas; i++) {
			assert_int_equal(room->nodes[grant->nodes[i]].type, choice->type);
		}
		if (grant->replicas <= largest[choice->type] &&
			is_spread(grant->nodes, grant->replicas)) {
			assert_memory_equal(grant->nodes, job->nodes,
				job->replicas * sizeof(uint32_t)); /* only a job that stays */
		}
	}
}

static void any_cluster_holds(void **state)
{
	struct rng rng = {first_seed};
	struct room room;
	uint64_t chosen = 0;
	uint64_t smaller = 0;
	uint64_t could_stay = 0;
	uint64_t stayed = 0;

	for (uint32_t i = 0; i < CASES; i++) {
		uint32_t wanted[JOBS_MAX];

		make_room(&rng, &room);
		memcpy(wanted, room.chosen, sizeof(wanted));
		assert_int_equal(sched_place(&room.view, room.kept, room.left, &room.problem,
					 room.chosen, room.grants, NULL),
			0);
		assert_nodes_hold(&room);
		assert_jobs_hold(&room, wanted);
		for (uint32_t j = 0; j < room.view.jobs_n; j++) {
			uint32_t r = room.choices[wanted[j]].replicas;

			chosen += r > 0;
			smaller += room.chosen[j] != wanted[j];
			could_stay += r > 0 && r == room.jobs[j].replicas;
			stayed += r > 0 && r == room.jobs[j].replicas &&
				memcmp(room.granted[j], room.now[j], r * sizeof(r)) == 0;
		}
	}
	printf("of %llu choices %llu were made smaller; of %llu jobs %llu stayed\n",
		(unsigned long long)chosen, (unsigned long long)smaller,
		(unsigned long long)could_stay, (unsigned long long)stayed);
}

/* Powers of two on nodes of a power of two, or whole nodes: these always fit. */
static void even_sizes_are_never_made_smaller(void **state)
{
	struct rng rng = {first_seed};
	struct room room;

	for (uint32_t i = 0; i < CASES / 10; i++) {
		uint32_t slots = 1u << below(&rng, 4);
		uint32_t wanted[JOBS_MAX];
		uint32_t left;

		make_room(&rng, &room);
		left = slots * room.view.nodes_n;
		for (uint32_t node = 0; node < room.view.nodes_n; node++) {
			room.nodes[node] = (struct sched_node){.slots = slots};
		}
		for (uint32_t j = 0; j < room.view.jobs_n; j++) {
			uint32_t r = 1u << below(&rng, 4);

			r = r > slots ? slots * (1 + below(&rng, 3)) : r;
			r = r > left ? 0 : r;
			left -= r;
			room.jobs[j].pinned = false;
			room.first[j] = 2 * j;
			room.choices[2 * j] = (struct sched_choice){0};
			room.choices[2 * j + 1] = (struct sched_choice){0, r, 0};
			room.chosen[j] = 2 * j + (r > 0);
		}
		memcpy(wanted, room.chosen, sizeof(wanted));
		sched_place_keep(&room.view, room.kept, room.left);
		assert_int_equal(sched_place(&room.view, room.kept, room.left, &room.problem,
					 room.chosen, room.grants, NULL),
			0);
		assert_memory_equal(wanted, room.chosen, room.view.jobs_n * sizeof(*wanted));
		assert_nodes_hold(&room);
	}
}

/* ---- by hand ---- */

/* Places jobs of one type by hand, on nodes of 4 slots. now: where each job is; wanted: its new
 * size. */
static void place_by_hand(struct room *room, uint32_t nodes_n, const char *const *now,
	const uint32_t *wanted, uint32_t jobs_n)
{
	memset(room, 0, sizeof(*room));
	room->view = (struct sched_view){.nodes = room->nodes,
		.nodes_n = nodes_n,
		.jobs = room->jobs,
		.jobs_n = jobs_n};
	for (uint32_t node = 0; node < nodes_n; node++) {
		room->nodes[node].slots = 4;
	}
	for (uint32_t j = 0; j < jobs_n; j++) {
		room->jobs[j] = (struct sched_job){.id = j, .least = 1, .most = 64};
		room->jobs[j].nodes = room->now[j];
		for (const char *at = now[j]; *at != '\0'; at++) {
			room->now[j][room->jobs[j].replicas++] = (uint32_t)(*at - '0');
		}
		room->first[j] = 2 * j;
		room->choices[2 * j + 1] = (struct sched_choice){0, wanted[j], 0};
		room->chosen[j] = 2 * j + 1;
		room->grants[j].nodes = room->granted[j];
	}
	room->problem = (struct sched_problem){.choices = room->choices,
		.first = room->first,
		.jobs_n = jobs_n};
	sched_place_keep(&room->view, room->kept, room->left);
	assert_int_equal(sched_place(&room->view, room->kept, room->left, &room->problem,
				 room->chosen, room->grants, NULL),
		0);
}

static void assert_grant(const struct room *room, uint32_t job, const char *nodes)
{
	char text[ALL_MAX + 1] = {0};

	for (uint32_t i = 0; i < room->grants[job].replicas; i++) {
		text[i] = (char)('0' + room->grants[job].nodes[i]);
	}
	assert_string_equal(text, nodes);
}

static void those_of_the_same_size_stay(void **state)
{
	const char *now[] = {"00", "1111", "2", "33"};
	const uint32_t wanted[] = {2, 4, 1, 1};
	struct room room;

	place_by_hand(&room, 4, now, wanted, 4);
	assert_grant(&room, 0, "00");
	assert_grant(&room, 1, "1111");
	assert_grant(&room, 2, "2");
	assert_grant(&room, 3, "0"); /* the node with the least room left */
}

static void the_smallest_makes_room(void **state)
{
	const char *now[] = {"00", "1", ""};
	const uint32_t wanted[] = {2, 1, 4};
	struct room room;

	place_by_hand(&room, 2, now, wanted, 3);
	assert_grant(&room, 0, "00");
	assert_grant(&room, 1, "0");
	assert_grant(&room, 2, "1111");
}

static void two_on_several_nodes_share_none(void **state)
{
	const char *now[] = {"", ""};
	const uint32_t wanted[] = {6, 6};
	struct room room;

	place_by_hand(&room, 3, now, wanted, 2); /* 4 and 2, twice: the twos would meet */
	assert_grant(&room, 0, "000011");
	assert_grant(&room, 1, "");
	place_by_hand(&room, 4, now, wanted, 2);
	assert_int_equal(room.grants[0].replicas, 6);
	assert_int_equal(room.grants[1].replicas, 6);
}

static void every_allocation_may_fail(void **state)
{
	struct rng rng = {first_seed};
	struct room room;
	uint64_t n;

	make_room(&rng, &room);
	for (n = 1; each_fault(n); n++) {
		int rv;

		fault_arm("sched.place", n, ENOMEM, false);
		rv = sched_place(&room.view, room.kept, room.left, &room.problem, room.chosen,
			room.grants, NULL);
		fault_disarm();
		assert_true(rv == 0 || (rv == PAWL_ENOMEM && fault_reached(n)));
	}
	assert_true(n > 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(any_cluster_holds),
		cmocka_unit_test(even_sizes_are_never_made_smaller),
		cmocka_unit_test(those_of_the_same_size_stay),
		cmocka_unit_test(the_smallest_makes_room),
		cmocka_unit_test(two_on_several_nodes_share_none),
		cmocka_unit_test(every_allocation_may_fail),
	};

	first_seed = test_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
