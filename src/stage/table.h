/*
 * The values of a stage: found by their numbers, kept as long as somebody claims them. Pure.
 *
 * A value is in the table from the first time that anybody names it: a need, a push, a free, or its
 * bytes. It goes once it is present, freed and without claims.
 */
#ifndef STAGE_TABLE_H
#define STAGE_TABLE_H

#include "pawl/stage.h"

struct stage_push;
struct order_call;

/* A call's need of a value that is not present yet. */
struct stage_need {
	struct stage_need *next; /* next need of the same value */
	struct order_call *call; /* call that waits */
};

struct stage_value {
	struct pawl_stage_value value;    /* number; once present, the rest */
	struct pawl_stage_memory *memory; /* owned; memory of the stage with the bytes, or NULL */
	struct stage_value *next;         /* next in its bucket, in gone, or in spare */
	struct stage_value *to_report;    /* next watched value that is to be reported */
	struct stage_value *to_want;      /* next value whose bytes are to be asked for */
	struct stage_push *pushes;        /* owned; pushes that wait until its bytes are there */
	struct stage_need *needs;         /* needs that wait until it is present */
	uint32_t claims;                  /* calls, pushes and watches that still need it */
	uint32_t watches;                 /* reports that somebody has asked for */
	bool present;                     /* calls may take it */
	bool wanted;                      /* somebody was asked for the bytes */
	bool freed;                       /* the driver has freed it */
};

/* Values that were allocated together. */
struct table_slab;

struct stage_table {
	struct stage_value **buckets; /* owned; lists of values with like numbers */
	uint32_t buckets_n;           /* number of buckets; a power of 2, or 0 */
	uint32_t values_n;            /* values in the buckets */
	uint32_t spare_n;             /* values in spare */
	struct stage_value *spare;    /* values that are not in use */
	struct table_slab *slabs;     /* owned; memory of all values */
	struct stage_value *gone_first,
		*gone_last;  /* values that have gone, for stage_table_take_gone */
	uint64_t present_n;  /* values that are present */
	uint64_t bytes_now;  /* bytes of present values with memory of the stage */
	uint64_t bytes_most; /* most of bytes_now so far */
};

/* A zeroed table is empty. Gone values must have been taken; the others' claims do not count. */
void stage_table_deinit(struct stage_table *table);
/* Makes sure that n more values can be added without memory. PAWL_ENOMEM. */
int stage_table_reserve(struct stage_table *table, uint32_t n);
/* Returns the value with a number; NULL: nobody has named it, or it has gone. */
struct stage_value *stage_table_find(const struct stage_table *table, uint64_t id);
/* As stage_table_find, but adds the value. NULL: no memory. */
struct stage_value *stage_table_add(struct stage_table *table, uint64_t id);
/* Makes a value present. memory: memory of the stage with its bytes, which the value then owns, or
 * NULL. Claims and waiting needs stay as they are: the caller sees to them, then calls
 * stage_table_settle. */
void stage_table_place(struct stage_table *table, struct stage_value *value,
	const struct pawl_stage_value *content, struct pawl_stage_memory *memory);
/* Drops a claim, and the value if this was the last that kept it. */
void stage_table_unclaim(struct stage_table *table, struct stage_value *value);
/* Drops a value that nothing keeps. */
void stage_table_settle(struct stage_table *table, struct stage_value *value);
/* Drops all values; none has a claim. */
void stage_table_clear(struct stage_table *table);
/* Takes a value that has gone; NULL: there is none. The caller releases its memory and object, then
 * calls stage_table_recycle. */
struct stage_value *stage_table_take_gone(struct stage_table *table);
void stage_table_recycle(struct stage_table *table, struct stage_value *value);

#endif
