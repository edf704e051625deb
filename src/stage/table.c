/* Values by number: see table.h for the contract. Pure. */
#include "stage/table.h"

#include "base/assert.h"
#include "base/fault.h"

#include <stdlib.h>
#include <string.h>

#define SLAB_VALUES 64u        /* values that are allocated together */
#define BUCKETS_MIN 64u        /* buckets of a table that is not empty */
#define BUCKETS_MAX (1u << 24) /* with more values, lists become longer */

struct table_slab {
	struct table_slab *next; /* next slab of the table */
	struct stage_value values[SLAB_VALUES];
};

void stage_table_deinit(struct stage_table *table)
{
	while (table->slabs) {
		struct table_slab *slab = table->slabs;

		table->slabs = slab->next;
		free(slab);
	}
	free(table->buckets);
	*table = (struct stage_table){0};
}

/* The multiplier is 2^64 divided by the golden ratio: it spreads consecutive numbers. */
static struct stage_value **bucket_of(const struct stage_table *table, uint64_t id)
{
	uint64_t mixed = id * 0x9e3779b97f4a7c15u;

	return &table->buckets[(mixed >> 32) & (table->buckets_n - 1)];
}

/* Doubles the number of buckets. Without memory, the lists only become longer; false: there are no
 * buckets at all. */
static bool grow_buckets(struct stage_table *table)
{
	struct stage_table larger = *table;

	larger.buckets_n = table->buckets_n == 0 ? BUCKETS_MIN : table->buckets_n * 2;
	larger.buckets =
		FAULT_MEM("stage.table", calloc(larger.buckets_n, sizeof(struct stage_value *)));
	if (!larger.buckets) {
		return table->buckets_n > 0;
	}
	for (uint32_t b = 0; b < table->buckets_n; b++) {
		while (table->buckets[b]) {
			struct stage_value *value = table->buckets[b];
			struct stage_value **to = bucket_of(&larger, value->value.id);

			table->buckets[b] = value->next;
			value->next = *to;
			*to = value;
		}
	}
	free(table->buckets);
	*table = larger;
	return true;
}

static bool add_slab(struct stage_table *table)
{
	struct table_slab *slab = FAULT_MEM("stage.table", malloc(sizeof(*slab)));

	if (!slab) {
		return false;
	}
	slab->next = table->slabs;
	table->slabs = slab;
	for (uint32_t i = 0; i < SLAB_VALUES; i++) {
		slab->values[i].next = table->spare;
		table->spare = &slab->values[i];
	}
	table->spare_n += SLAB_VALUES;
	return true;
}

int stage_table_reserve(struct stage_table *table, uint32_t n)
{
	while (table->spare_n < n) {
		if (!add_slab(table)) {
			return PAWL_ENOMEM;
		}
	}
	return table->buckets_n > 0 || grow_buckets(table) ? 0 : PAWL_ENOMEM;
}

struct stage_value *stage_table_find(const struct stage_table *table, uint64_t id)
{
	struct stage_value *value = table->buckets_n > 0 ? *bucket_of(table, id) : NULL;

	while (value && value->value.id != id) {
		value = value->next;
	}
	return value;
}

struct stage_value *stage_table_add(struct stage_table *table, uint64_t id)
{
	struct stage_value *value = stage_table_find(table, id);
	struct stage_value **bucket;

	if (value || stage_table_reserve(table, 1) != 0) {
		return value;
	}
	if (table->values_n >= table->buckets_n && table->buckets_n < BUCKETS_MAX) {
		grow_buckets(table);
	}
	value = table->spare;
	table->spare = value->next;
	table->spare_n--;
	memset(value, 0, sizeof(*value));
	value->value.id = id;
	bucket = bucket_of(table, id);
	value->next = *bucket;
	*bucket = value;
	table->values_n++;
	return value;
}

static uint64_t stage_bytes(const struct stage_value *value)
{
	return value->present && value->memory ? value->value.len_bytes : 0;
}

void stage_table_place(struct stage_table *table, struct stage_value *value,
	const struct pawl_stage_value *content, struct pawl_stage_memory *memory)
{
	ASSERT(!value->present && value->value.id == content->id);
	value->value = *content;
	value->memory = memory;
	value->present = true;
	table->present_n++;
	table->bytes_now += stage_bytes(value);
	if (table->bytes_now > table->bytes_most) {
		table->bytes_most = table->bytes_now;
	}
}

/* Moves a value that is in no bucket any more to gone. */
static void drop(struct stage_table *table, struct stage_value *value)
{
	ASSERT(value->claims == 0 && !value->needs && !value->pushes);
	table->values_n--;
	table->present_n -= value->present;
	table->bytes_now -= stage_bytes(value);
	value->next = NULL;
	if (table->gone_last) {
		table->gone_last->next = value;
	} else {
		table->gone_first = value;
	}
	table->gone_last = value;
}

void stage_table_settle(struct stage_table *table, struct stage_value *value)
{
	struct stage_value **at;

	if (!value->present || !value->freed || value->claims > 0) {
		return;
	}
	at = bucket_of(table, value->value.id);
	while (*at != value) {
		at = &(*at)->next;
	}
	*at = value->next;
	drop(table, value);
}

void stage_table_unclaim(struct stage_table *table, struct stage_value *value)
{
	ASSERT(value->claims > 0);
	value->claims--;
	stage_table_settle(table, value);
}

void stage_table_clear(struct stage_table *table)
{
	for (uint32_t b = 0; b < table->buckets_n; b++) {
		while (table->buckets[b]) {
			struct stage_value *value = table->buckets[b];

			table->buckets[b] = value->next;
			drop(table, value);
		}
	}
}

struct stage_value *stage_table_take_gone(struct stage_table *table)
{
	struct stage_value *value = table->gone_first;

	if (value) {
		table->gone_first = value->next;
		table->gone_last = table->gone_first ? table->gone_last : NULL;
	}
	return value;
}

void stage_table_recycle(struct stage_table *table, struct stage_value *value)
{
	value->next = table->spare;
	table->spare = value;
	table->spare_n++;
}
