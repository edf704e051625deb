/* The values of a stage: random histories against a plain list; values go exactly when nothing
 * keeps them; allocations that fail. */
#include "stage/table.h"

#include "base/fault.h"
#include "base/rng.h"
#include "seed.h"

#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#define IDS       600u
#define HISTORIES 40u
#define ACTIONS   4000u

static uint64_t first_seed;

/* What the model knows of a number. */
struct told {
	bool known, present, freed;
	uint32_t claims;
	uint64_t bytes; /* bytes of memory of the stage */
	void *held;     /* the caller's object */
};

static struct told told[IDS];

static uint64_t id_of(uint64_t i)
{
	return i % 3 == 0 ? i << 40 : i; /* not only consecutive numbers */
}

/* The table must never look into memory. */
static struct pawl_stage_memory *some_memory(void)
{
	return (struct pawl_stage_memory *)(uintptr_t)64;
}

/* Takes what has gone: exactly the values that nothing kept. */
static uint32_t take_gone(struct stage_table *table, uint64_t seen[IDS])
{
	struct stage_value *value;
	uint32_t n = 0;

	while ((value = stage_table_take_gone(table)) != NULL) {
		seen[n++] = value->value.id;
		assert_true(value->memory == NULL || value->memory == some_memory());
		stage_table_recycle(table, value);
	}
	return n;
}

/* Expects that value i goes now, if nothing keeps it, and no other does. */
static void settle(struct stage_table *table, uint64_t i)
{
	struct told *t = &told[i];
	bool goes = t->present && t->freed && t->claims == 0;
	uint64_t seen[IDS] = {0};
	uint32_t n = take_gone(table, seen);

	assert_int_equal(n, goes ? 1 : 0);
	if (goes) {
		assert_int_equal(seen[0], id_of(i));
		*t = (struct told){0};
	}
}

static void act(struct stage_table *table, struct rng *rng)
{
	uint64_t i = rng_below(rng, IDS);
	struct told *t = &told[i];
	struct stage_value *value = stage_table_find(table, id_of(i));
	struct pawl_stage_value content = {.id = id_of(i)};

	assert_int_equal(value != NULL, t->known);
	if (!value) {
		value = stage_table_add(table, id_of(i));
		assert_non_null(value);
		t->known = true;
	}
	assert_ptr_equal(stage_table_add(table, id_of(i)), value);
	assert_int_equal(value->claims, t->claims);
	switch (rng_below(rng, 5)) {
	case 0:
		if (!t->present) {
			bool ours = rng_below(rng, 2) == 0;

			content.len_bytes = rng_below(rng, 100);
			content.held = ours ? NULL : (void *)t;
			stage_table_place(table, value, &content, ours ? some_memory() : NULL);
			t->present = true;
			t->bytes = ours ? content.len_bytes : 0;
			stage_table_settle(table, value);
		}
		break;
	case 1:
		value->claims++;
		t->claims++;
		break;
	case 2:
	case 3:
		if (t->claims > 0) {
			t->claims--;
			stage_table_unclaim(table, value);
		}
		break;
	default:
		value->freed = t->freed = true;
		stage_table_settle(table, value);
		break;
	}
	settle(table, i);
}

static void expect_totals(const struct stage_table *table)
{
	uint64_t present = 0;
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < IDS; i++) {
		present += told[i].present;
		bytes += told[i].bytes;
	}
	assert_int_equal(table->present_n, present);
	assert_int_equal(table->bytes_now, bytes);
	assert_true(table->bytes_most >= bytes);
}

static void values_go_when_nothing_keeps_them(void **state)
{
	struct stage_table table = {0};
	uint64_t seen[IDS];

	for (uint32_t h = 0; h < HISTORIES; h++) {
		struct rng rng = {first_seed + h};
		uint32_t known = 0;

		memset(told, 0, sizeof(told));
		for (uint32_t a = 0; a < ACTIONS; a++) {
			act(&table, &rng);
		}
		expect_totals(&table);
		for (uint32_t i = 0; i < IDS; i++) { /* the end of the step */
			struct stage_value *value = stage_table_find(&table, id_of(i));

			known += told[i].known;
			if (value) {
				value->claims = 0;
			}
		}
		stage_table_clear(&table);
		assert_int_equal(take_gone(&table, seen), known);
		assert_int_equal(table.values_n, 0);
		assert_int_equal(table.bytes_now, 0);
	}
	stage_table_deinit(&table);
}

/* An allocation that fails leaves the table as it was. */
static void no_memory(void **state)
{
	struct stage_table table = {0};
	uint32_t failed = 0;
	uint64_t seen[IDS];

	for (uint64_t i = 0; i < IDS; i++) {
		for (uint64_t nth = 1; !stage_table_find(&table, i); nth++) {
			struct stage_value *value;

			fault_arm("stage.table", nth, ENOMEM, false);
			value = stage_table_add(&table, i);
			fault_disarm();
			failed += value == NULL;
			assert_int_equal(table.values_n, i + (value != NULL));
		}
	}
	assert_true(failed >= 2);
	fault_arm("stage.table", 1, ENOMEM, true);
	assert_int_equal(stage_table_reserve(&table, table.spare_n), 0);
	assert_int_equal(stage_table_reserve(&table, table.spare_n + 1), PAWL_ENOMEM);
	fault_disarm();
	assert_int_equal(stage_table_reserve(&table, table.spare_n + 100), 0);
	stage_table_clear(&table);
	assert_int_equal(take_gone(&table, seen), IDS);
	stage_table_deinit(&table);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(values_go_when_nothing_keeps_them),
		cmocka_unit_test(no_memory),
	};

	first_seed = test_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
