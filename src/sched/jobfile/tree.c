/*
 * Builds a tree from the parser's events: see tree.h.
 *
 * A list or mapping is counted and attached to its parent when it ends. So an alias finds nodes of
 * known size, and the nodes that it would add are checked before they are added. Nothing is ever
 * copied.
 */
#include "sched/jobfile/tree.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <yaml.h>

#define STR_TAG "tag:yaml.org,2002:str" /* the only tag that is understood */

struct anchor {
	const struct anchor *next; /* the anchor named before this one */
	const char *name;
	struct tree_node *node; /* complete */
};

/* A list or mapping that has not ended. */
struct open {
	struct tree_node *node;
	struct tree_node *key; /* key that waits for its value; NULL: a key, or an item, is next */
	const char *anchor;    /* anchor of node; NULL: none */
	yaml_mark_t mark;      /* position at which node begins */
};

struct builder {
	yaml_parser_t yaml;
	struct sched_arena *arena;        /* the caller's */
	struct remarks *remarks;          /* the caller's */
	struct open open[TREE_DEPTH_MAX]; /* open lists and mappings, the outermost first */
	uint32_t depth;                   /* number of entries in open */
	uint32_t nodes;                   /* nodes so far, those of aliases counted each time */
	yaml_mark_t document;             /* position at which the newest document begins */
	uint32_t anchors_n;               /* anchors so far */
	const struct anchor *anchors;     /* list of anchors, the newest first */
	const struct tree_node *root;     /* the tree, once it is complete */
	bool refused;                     /* the file was refused; remarks say why */
	bool done;                        /* the file is at its end */
};

__attribute__((format(printf, 3, 4))) static void refuse(struct builder *b, yaml_mark_t mark,
	const char *fmt, ...)
{
	char text[REMARK_TEXT_MAX];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	remarks_add(b->remarks, (uint32_t)mark.line + 1, (uint32_t)mark.column + 1, "%s", text);
	b->refused = true;
}

/* Counts n more nodes; refuses if they are too many. */
static bool count_nodes(struct builder *b, uint32_t n, yaml_mark_t mark)
{
	ASSERT(b->nodes <= TREE_NODES_MAX);
	if (n > TREE_NODES_MAX - b->nodes) {
		refuse(b, mark, "more than %u values, those of aliases counted each time",
			TREE_NODES_MAX);
		return false;
	}
	b->nodes += n;
	return true;
}

static struct tree_node *new_node(struct builder *b, enum tree_kind kind, yaml_mark_t mark)
{
	struct tree_node *node;

	if (!count_nodes(b, 1, mark)) {
		return NULL;
	}
	node = sched_arena_alloc(b->arena, sizeof(*node));
	if (node) {
		node->kind = kind;
		node->line = (uint32_t)mark.line + 1;
		node->column = (uint32_t)mark.column + 1;
		node->nodes = 1;
		node->height = kind >= TREE_LIST;
	}
	return node;
}

/* ---- attaching a node to its parent ---- */

static const struct tree_item *find_key(const struct tree_node *map, const struct tree_node *key)
{
	const struct tree_item *item = map->items;

	while (item &&
		(item->key->len_bytes != key->len_bytes ||
			memcmp(item->key->text, key->text, key->len_bytes) != 0)) {
		item = item->next;
	}
	return item;
}

/* Returns false if the key is there already. */
static bool is_new_key(struct builder *b, const struct tree_node *map, const struct tree_node *key)
{
	const struct tree_item *same = find_key(map, key);
	char shown[REMARK_SHOW_MAX];

	if (same) {
		remarks_add(b->remarks, key->line, key->column,
			"the key %s is given twice, first in line %u: keep one of them",
			remark_show(shown, key->text, key->len_bytes), same->key->line);
	}
	return !same;
}

static void add_item(struct builder *b, struct tree_node *parent, struct tree_node *key,
	struct tree_node *value, yaml_mark_t mark)
{
	struct tree_item *item;

	if (parent->items_n == TREE_ITEMS_MAX) {
		refuse(b, mark, "more than %u items in one list or mapping", TREE_ITEMS_MAX);
		return;
	}
	if (key && !is_new_key(b, parent, key)) {
		return;
	}
	item = sched_arena_alloc(b->arena, sizeof(*item));
	if (!item) {
		return;
	}
	item->key = key;
	item->value = value;
	if (parent->last) {
		parent->last->next = item;
	} else {
		parent->items = item;
	}
	parent->last = item;
	parent->items_n++;
	parent->nodes += value->nodes + (key ? key->nodes : 0);
	if (value->height >= parent->height) {
		parent->height = value->height + 1;
	}
	/* What aliases add was checked before. */
	ASSERT(parent->height <= TREE_DEPTH_MAX && parent->nodes <= b->nodes);
}

static void set_key(struct builder *b, struct open *open, struct tree_node *key, yaml_mark_t mark)
{
	if (key->kind >= TREE_LIST) {
		refuse(b, mark,
			"a list or mapping as a key: a key is a word; if the file has {{ }}, fill "
			"in the template first");
	} else if (key->kind == TREE_TEXT && strcmp(key->text, "<<") == 0) {
		refuse(b, mark,
			"<< (merging a mapping into another) is not supported: write its "
			"keys out");
	} else {
		open->key = key;
	}
}

static void attach(struct builder *b, struct tree_node *node, yaml_mark_t mark)
{
	struct open *open = b->depth > 0 ? &b->open[b->depth - 1] : NULL;

	if (!open && node->kind == TREE_NULL) {
		b->root = b->root ? b->root : node; /* an empty document */
	} else if (!open && b->root && b->root->kind != TREE_NULL) {
		refuse(b, b->document,
			"a second document (---): pipelines and groups of jobs are not supported "
			"yet: a file is one job; submit each by itself");
	} else if (!open) {
		b->root = node;
	} else if (open->node->kind == TREE_LIST) {
		add_item(b, open->node, NULL, node, mark);
	} else if (!open->key) {
		set_key(b, open, node, mark);
	} else {
		add_item(b, open->node, open->key, node, mark);
		open->key = NULL;
	}
}

/* ---- events ---- */

static void remember_anchor(struct builder *b, const char *name, struct tree_node *node,
	yaml_mark_t mark)
{
	struct anchor *anchor;

	if (b->anchors_n == TREE_ANCHORS_MAX) {
		refuse(b, mark, "more than %u anchors", TREE_ANCHORS_MAX);
		return;
	}
	anchor = sched_arena_alloc(b->arena, sizeof(*anchor));
	if (anchor) {
		*anchor = (struct anchor){b->anchors, name, node};
		b->anchors = anchor;
		b->anchors_n++;
		node->shared = true;
	}
}

/* Checks an explicit tag: only !!str is supported. Returns false for another one. */
static bool is_known_tag(struct builder *b, const yaml_char_t *tag, bool scalar, yaml_mark_t mark)
{
	char shown[REMARK_SHOW_MAX];
	const char *text = (const char *)tag;

	if (!text || (scalar && (strcmp(text, STR_TAG) == 0 || strcmp(text, "!") == 0))) {
		return true;
	}
	refuse(b, mark, "the tag %s: no tag but !!str is supported",
		remark_show(shown, text, strlen(text)));
	return false;
}

static const char *copy_anchor(struct builder *b, const yaml_char_t *name)
{
	return name ? sched_arena_copy_text(b->arena, name, strlen((const char *)name)) : NULL;
}

static void take_scalar(struct builder *b, const yaml_event_t *event)
{
	const char *text = (const char *)event->data.scalar.value;
	size_t len_bytes = event->data.scalar.length;
	bool plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE && !event->data.scalar.tag;
	const char *anchor = copy_anchor(b, event->data.scalar.anchor);
	struct tree_node *node;

	if (!is_known_tag(b, event->data.scalar.tag, true, event->start_mark)) {
		return;
	}
	node = new_node(b, plain ? tree_text_kind(text, len_bytes) : TREE_TEXT, event->start_mark);
	if (!node) {
		return;
	}
	node->text = sched_arena_copy_text(b->arena, text, len_bytes);
	node->len_bytes = len_bytes;
	if (anchor) {
		remember_anchor(b, anchor, node, event->start_mark);
	}
	if (node->text && !b->refused) {
		attach(b, node, event->start_mark);
	}
}

static void begin(struct builder *b, enum tree_kind kind, const yaml_char_t *anchor,
	const yaml_char_t *tag, yaml_mark_t mark)
{
	struct tree_node *node;

	if (!is_known_tag(b, tag, false, mark)) {
		return;
	}
	if (b->depth == TREE_DEPTH_MAX) {
		refuse(b, mark, "more than %u lists or mappings inside each other", TREE_DEPTH_MAX);
		return;
	}
	node = new_node(b, kind, mark);
	if (node) {
		b->open[b->depth++] = (struct open){node, NULL, copy_anchor(b, anchor), mark};
	}
}

static void end(struct builder *b)
{
	struct open *open;

	ASSERT(b->depth > 0); /* the parser ends only what it began */
	open = &b->open[--b->depth];
	if (open->anchor) {
		remember_anchor(b, open->anchor, open->node, open->mark);
	}
	if (!b->refused) {
		attach(b, open->node, open->mark);
	}
}

static void take_alias(struct builder *b, const yaml_event_t *event)
{
	const char *name = (const char *)event->data.alias.anchor;
	const struct anchor *anchor = b->anchors;
	char shown[REMARK_SHOW_MAX];

	remark_show(shown, name, strlen(name));
	for (uint32_t i = 0; i < b->depth; i++) {
		if (b->open[i].anchor && strcmp(b->open[i].anchor, name) == 0) {
			refuse(b, event->start_mark, "*%s is inside of &%s: it would have no end",
				shown, shown);
			return;
		}
	}
	while (anchor && strcmp(anchor->name, name) != 0) {
		anchor = anchor->next;
	}
	if (!anchor) {
		refuse(b, event->start_mark, "*%s: there is no &%s before it", shown, shown);
	} else if (anchor->node->height + b->depth > TREE_DEPTH_MAX) {
		refuse(b, event->start_mark,
			"*%s: more than %u lists or mappings inside each other", shown,
			TREE_DEPTH_MAX);
	} else if (count_nodes(b, anchor->node->nodes, event->start_mark)) {
		attach(b, anchor->node, event->start_mark);
	}
}

static void take_event(struct builder *b, const yaml_event_t *event)
{
	switch (event->type) {
	case YAML_DOCUMENT_START_EVENT:
		b->document = event->start_mark;
		break;
	case YAML_SCALAR_EVENT:
		take_scalar(b, event);
		break;
	case YAML_SEQUENCE_START_EVENT:
		begin(b, TREE_LIST, event->data.sequence_start.anchor,
			event->data.sequence_start.tag, event->start_mark);
		break;
	case YAML_MAPPING_START_EVENT:
		begin(b, TREE_MAP, event->data.mapping_start.anchor, event->data.mapping_start.tag,
			event->start_mark);
		break;
	case YAML_SEQUENCE_END_EVENT:
	case YAML_MAPPING_END_EVENT:
		end(b);
		break;
	case YAML_ALIAS_EVENT:
		take_alias(b, event);
		break;
	case YAML_STREAM_END_EVENT:
		b->done = true;
		break;
	default:
		break;
	}
}

/* ---- the parser ---- */

static int parse_event(struct builder *b, yaml_event_t *event, struct pawl_err *err)
{
	bool short_of = FAULT_MEM("sched.yaml", 1) == 0;
	const yaml_parser_t *yaml = &b->yaml;

	if (!short_of && yaml_parser_parse(&b->yaml, event)) {
		return 0;
	}
	if (short_of || yaml->error == YAML_MEMORY_ERROR) {
		return pawl_err_set(err, PAWL_ENOMEM, "job file: no memory for the parser");
	}
	refuse(b, yaml->problem_mark, "%s%s%s", yaml->context ? yaml->context : "",
		yaml->context ? ": " : "", yaml->problem ? yaml->problem : "not YAML");
	return 0;
}

static int build(struct builder *b, struct pawl_err *err)
{
	while (!b->done && !b->refused) {
		yaml_event_t event = {0};
		int rv = parse_event(b, &event, err);

		if (rv != 0) {
			return rv;
		}
		if (!b->refused) {
			take_event(b, &event);
			yaml_event_delete(&event);
		}
		if (b->arena->failed) {
			return pawl_err_set(err, PAWL_ENOMEM, "job file: no memory for its values");
		}
	}
	return b->refused ? pawl_err_set(err, PAWL_EINVAL, "job file: it cannot be read") : 0;
}

int tree_parse(const struct tree_node **root, const void *bytes, size_t len_bytes,
	struct sched_arena *arena, struct remarks *remarks, struct pawl_err *err)
{
	struct builder b = {.arena = arena, .remarks = remarks};
	int rv;

	if (len_bytes > TREE_BYTES_MAX) {
		remarks_add(remarks, 1, 1, "more than %u bytes: this is not a job file",
			TREE_BYTES_MAX);
		return pawl_err_set(err, PAWL_EINVAL, "job file: it is too long");
	}
	if (!tree_text_check(bytes, len_bytes, remarks)) {
		return pawl_err_set(err, PAWL_EINVAL, "job file: it is not text");
	}
	if (FAULT_MEM("sched.yaml", yaml_parser_initialize(&b.yaml)) == 0) {
		return pawl_err_set(err, PAWL_ENOMEM, "job file: no memory for the parser");
	}
	yaml_parser_set_input_string(&b.yaml, bytes, len_bytes);
	rv = build(&b, err);
	yaml_parser_delete(&b.yaml);
	if (rv == 0) {
		ASSERT(b.depth == 0 && b.anchors_n <= TREE_ANCHORS_MAX);
		*root = b.root;
	}
	return rv;
}
