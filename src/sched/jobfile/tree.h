/*
 * A YAML file as a tree: one document, of bounded size and depth, with each alias replaced by its
 * node. Pure.
 *
 * Scalars keep the text that was written. Their kinds follow YAML 1.1, the rules of the tools for
 * which people write such files: yes and off are booleans, 1:30 is a number.
 */
#ifndef SCHED_JOBFILE_TREE_H
#define SCHED_JOBFILE_TREE_H

#include "pawl/err.h"
#include "sched/jobfile/arena.h"
#include "sched/jobfile/remarks.h"

#include <stdbool.h>
#include <stdint.h>

#define TREE_BYTES_MAX (1u << 20) /* bytes of a file */
#define TREE_NODES_MAX 10000u     /* nodes of a tree, those of aliases counted each time */
/* Nesting of lists and mappings, those of aliases included. */
#define TREE_DEPTH_MAX   32u
#define TREE_ITEMS_MAX   1000u /* items of one list or mapping */
#define TREE_ANCHORS_MAX 256u  /* anchors of a file */

enum tree_kind { TREE_NULL, TREE_BOOL, TREE_NUMBER, TREE_TEXT, TREE_LIST, TREE_MAP };

/* An item of a list or a mapping. */
struct tree_item {
	const struct tree_item *next; /* NULL: the last item */
	const struct tree_node *key;  /* a scalar; NULL in a list */
	const struct tree_node *value;
};

struct tree_node {
	enum tree_kind kind;
	uint32_t line;    /* line in which the node begins, from 1 */
	uint32_t column;  /* column in which the node begins, in characters, from 1 */
	bool shared;      /* an anchor names the node, so it may be in several places */
	uint32_t nodes;   /* number of nodes here: the node and all below it */
	uint32_t height;  /* levels of nested lists and mappings here; 0: a scalar */
	const char *text; /* text of a scalar, valid UTF-8, a NUL behind it */
	size_t len_bytes; /* bytes of text, which may have NULs in it */
	/* Items of a list or a mapping, in order; keys of one mapping differ. */
	struct tree_item *items;
	struct tree_item *last; /* last item; NULL: there is none */
	uint32_t items_n;       /* number of items */
};

/*
 * Parses a file; the tree's memory is the arena's. NULL root: the file is empty. remarks has the
 * errors: PAWL_EINVAL if there is no tree because of them. A key that is given twice is a remark,
 * too, and its first value counts. PAWL_ENOMEM.
 */
int tree_parse(const struct tree_node **root, const void *bytes, size_t len_bytes,
	struct sched_arena *arena, struct remarks *remarks, struct pawl_err *err);

/* ---- tree_text.c ---- */

/* Checks that text is what YAML allows. If it is not UTF-8, or has a control character, adds a
 * remark with the place and returns false. */
bool tree_text_check(const uint8_t *bytes, size_t len_bytes, struct remarks *remarks);
/* Returns the kind of a scalar without quotes. */
enum tree_kind tree_text_kind(const char *text, size_t len_bytes);

#endif
