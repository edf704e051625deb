/*
 * What a YAML file says, as a tree: one document, of bounded size and depth, aliases as the nodes
 * they stand for. Pure.
 *
 * Scalars keep the text that was written, and are told apart as YAML 1.1 does, whose rules are
 * those of the tools that people write such files for: yes and off are booleans, 1:30 is a number.
 */
#ifndef SCHED_TREE_H
#define SCHED_TREE_H

#include "pawl/err.h"
#include "sched/pool.h"
#include "sched/remarks.h"

#include <stdbool.h>
#include <stdint.h>

#define TREE_BYTES_MAX   (1u << 20) /* of a file */
#define TREE_NODES_MAX   10000u     /* of a tree, those of aliases counted each time */
#define TREE_DEPTH_MAX   32u        /* of lists and mappings in each other, likewise */
#define TREE_ITEMS_MAX   1000u      /* of one list or mapping */
#define TREE_ANCHORS_MAX 256u       /* of a file */

enum tree_kind { TREE_NULL, TREE_BOOL, TREE_NUMBER, TREE_TEXT, TREE_LIST, TREE_MAP };

/* Of a list or a mapping. */
struct tree_item {
	const struct tree_item *next; /* NULL: it is the last */
	const struct tree_node *key;  /* a scalar; NULL in a list */
	const struct tree_node *value;
};

struct tree_node {
	enum tree_kind kind;
	uint32_t line;           /* where it begins, from 1 */
	uint32_t column;         /* likewise, in characters */
	bool shared;             /* an anchor names it: it may be in several places */
	uint32_t nodes;          /* it and all below it */
	uint32_t height;         /* of the lists and mappings in each other here; 0: a scalar */
	const char *text;        /* of a scalar, valid UTF-8, a NUL behind it */
	size_t len_bytes;        /* of text, which may have NULs in it */
	struct tree_item *items; /* of a list or a mapping, in order; keys of one mapping differ */
	struct tree_item *last;  /* of them; NULL: there is none */
	uint32_t items_n;        /* of them */
};

/*
 * The file's tree; its memory is the pool's. NULL root: the file says nothing. What is wrong is
 * told in remarks: PAWL_EINVAL if there is no tree because of it; a key that is there twice is a
 * remark, too, and its first value counts. PAWL_ENOMEM.
 */
int tree_parse(const struct tree_node **root, const void *bytes, size_t len_bytes,
	struct pool *pool, struct remarks *remarks, struct pawl_err *err);

/* ---- tree_text.c ---- */

/* Where text is not what YAML allows: not UTF-8, or a control character. Returns false and tells
 * it in remarks. */
bool tree_text_check(const uint8_t *bytes, size_t len_bytes, struct remarks *remarks);
/* Of a scalar without quotes. */
enum tree_kind tree_text_kind(const char *text, size_t len_bytes);

#endif
