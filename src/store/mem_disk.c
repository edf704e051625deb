/* Files and directories that remember what was synced: see mem_disk.h. */
#include "store/mem_disk.h"

#include "base/assert.h"
#include "base/rng.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECTOR_BYTES 512u /* a disk writes a sector whole or not at all */

static void *must_alloc(size_t len_bytes)
{
	void *p = calloc(1, len_bytes);

	ASSERT(p != NULL);
	return p;
}

/* ---- nodes ---- */

struct mem_node *mem_node_new(struct mem_disk *disk, enum store_kind kind)
{
	struct mem_node *node = must_alloc(sizeof(*node));

	node->kind = kind;
	node->writes_end = &node->writes;
	node->edits_end = &node->edits;
	node->next = disk->nodes;
	disk->nodes = node;
	return node;
}

void mem_disk_init(struct mem_disk *disk)
{
	disk->nodes = NULL;
	disk->root = mem_node_new(disk, STORE_DIR);
}

static void free_entries(struct mem_entry *list)
{
	while (list != NULL) {
		struct mem_entry *next = list->next;

		free(list);
		list = next;
	}
}

static void drop_writes(struct mem_node *file)
{
	while (file->writes != NULL) {
		struct mem_write *next = file->writes->next;

		free(file->writes);
		file->writes = next;
	}
	file->writes_end = &file->writes;
}

static void drop_edits(struct mem_node *dir)
{
	while (dir->edits != NULL) {
		struct mem_edit *next = dir->edits->next;

		free(dir->edits);
		dir->edits = next;
	}
	dir->edits_end = &dir->edits;
}

void mem_disk_deinit(struct mem_disk *disk)
{
	while (disk->nodes != NULL) {
		struct mem_node *node = disk->nodes;

		disk->nodes = node->next;
		free(node->now.at);
		free(node->synced.at);
		drop_writes(node);
		free_entries(node->entries);
		free_entries(node->durable);
		drop_edits(node);
		free(node);
	}
	disk->root = NULL;
}

/* ---- files ---- */

static void resize_bytes(struct mem_bytes *bytes, size_t len_bytes)
{
	if (len_bytes > bytes->cap_bytes) {
		size_t cap = len_bytes > 2 * bytes->cap_bytes ? len_bytes : 2 * bytes->cap_bytes;

		bytes->at = realloc(bytes->at, cap);
		ASSERT(bytes->at != NULL);
		bytes->cap_bytes = cap;
	}
	if (len_bytes > bytes->len_bytes) {
		memset(bytes->at + bytes->len_bytes, 0, len_bytes - bytes->len_bytes);
	}
	bytes->len_bytes = len_bytes;
}

/* Applies the bytes [from, to) of w. */
static void apply_part(struct mem_bytes *bytes, const struct mem_write *w, size_t from, size_t to)
{
	ASSERT(from <= to && to <= w->len_bytes);
	if (w->resize) {
		resize_bytes(bytes, w->off_bytes);
		return;
	}
	if (from == to) {
		return;
	}
	if (w->off_bytes + to > bytes->len_bytes) {
		resize_bytes(bytes, w->off_bytes + to);
	}
	ASSERT(bytes->at != NULL); /* a write that is not empty has made room */
	memcpy(bytes->at + w->off_bytes + from, w->bytes + from, to - from);
}

static void apply_write(struct mem_bytes *bytes, const struct mem_write *w)
{
	apply_part(bytes, w, 0, w->len_bytes);
}

static void push_write(struct mem_node *file, struct mem_write *w)
{
	ASSERT(file->kind == STORE_FILE);
	apply_write(&file->now, w);
	*file->writes_end = w;
	file->writes_end = &w->next;
}

void mem_file_write(struct mem_node *file, uint64_t off_bytes, const void *bytes, size_t len_bytes)
{
	struct mem_write *w = must_alloc(sizeof(*w) + len_bytes);

	w->off_bytes = off_bytes;
	w->len_bytes = len_bytes;
	if (len_bytes > 0) {
		memcpy(w->bytes, bytes, len_bytes);
	}
	push_write(file, w);
}

void mem_file_resize(struct mem_node *file, uint64_t size_bytes)
{
	struct mem_write *w = must_alloc(sizeof(*w));

	w->off_bytes = size_bytes;
	w->resize = true;
	push_write(file, w);
}

void mem_file_sync(struct mem_node *file)
{
	for (const struct mem_write *w = file->writes; w != NULL; w = w->next) {
		apply_write(&file->synced, w);
	}
	drop_writes(file);
}

/* ---- directories ---- */

static struct mem_entry **find_entry(struct mem_entry **list, const char *name)
{
	while (*list != NULL && strcmp((*list)->name, name) != 0) {
		list = &(*list)->next;
	}
	return list;
}

static void set_entry(struct mem_entry **list, const char *name, struct mem_node *node)
{
	struct mem_entry **at = find_entry(list, name);
	struct mem_entry *entry = *at;

	if (node == NULL) {
		if (entry != NULL) {
			*at = entry->next;
			free(entry);
		}
		return;
	}
	if (entry == NULL) {
		entry = must_alloc(sizeof(*entry));
		snprintf(entry->name, sizeof(entry->name), "%s", name);
		*at = entry;
	}
	entry->node = node;
}

struct mem_node *mem_dir_get(const struct mem_node *dir, const char *name)
{
	struct mem_entry *list = dir->entries;
	struct mem_entry *entry = *find_entry(&list, name);

	return entry != NULL ? entry->node : NULL;
}

void mem_dir_set(struct mem_node *dir, uint64_t op, const char *name, struct mem_node *node)
{
	struct mem_edit *edit = must_alloc(sizeof(*edit));

	ASSERT(dir->kind == STORE_DIR && strlen(name) < STORE_NAME_MAX);
	set_entry(&dir->entries, name, node);
	edit->op = op;
	edit->node = node;
	snprintf(edit->name, sizeof(edit->name), "%s", name);
	*dir->edits_end = edit;
	dir->edits_end = &edit->next;
}

void mem_dir_sync(struct mem_node *dir)
{
	for (const struct mem_edit *edit = dir->edits; edit != NULL; edit = edit->next) {
		set_entry(&dir->durable, edit->name, edit->node);
	}
	drop_edits(dir);
}

/* ---- power loss ---- */

/* One power loss. */
struct crash {
	struct mem_disk *after; /* the disk that it leaves */
	struct rng *rng;        /* random numbers for writes */
	uint64_t name_seed;     /* for names: decides each operation's fate, with its number */
	enum mem_crash how;
};

static bool is_name_kept(const struct crash *crash, uint64_t op)
{
	struct rng r = {crash->name_seed ^ op};

	return crash->how == MEM_KEEP || (crash->how == MEM_TEAR && rng_u64(&r) % 2 == 0);
}

/* Keeps or loses a write, or keeps one side of a sector boundary of the file and loses the
 * other. */
static void tear_write(struct rng *rng, struct mem_bytes *bytes, const struct mem_write *w)
{
	enum { KEPT, LOST, HEAD, TAIL } fate = rng_below(rng, w->resize ? HEAD : TAIL + 1);
	size_t cut = SECTOR_BYTES * (1 + rng_below(rng, w->len_bytes / SECTOR_BYTES + 1)) -
		w->off_bytes % SECTOR_BYTES;

	cut = cut < w->len_bytes ? cut : w->len_bytes;
	if (fate == KEPT || fate == HEAD) {
		apply_part(bytes, w, 0, fate == HEAD ? cut : w->len_bytes);
	} else if (fate == TAIL) {
		apply_part(bytes, w, cut, w->len_bytes);
	}
}

static void crash_file(const struct crash *crash, const struct mem_node *from, struct mem_node *to)
{
	resize_bytes(&to->synced, from->synced.len_bytes);
	if (from->synced.len_bytes > 0) {
		memcpy(to->synced.at, from->synced.at, from->synced.len_bytes);
	}
	for (const struct mem_write *w = from->writes; w != NULL; w = w->next) {
		if (crash->how == MEM_KEEP) {
			apply_write(&to->synced, w);
		} else if (crash->how == MEM_TEAR) {
			tear_write(crash->rng, &to->synced, w);
		}
	}
	resize_bytes(&to->now, to->synced.len_bytes);
	if (to->synced.len_bytes > 0) {
		memcpy(to->now.at, to->synced.at, to->synced.len_bytes);
	}
}

/* Copies the names that survive in a directory. A node that the crash left at two names becomes two
 * nodes, with one fate each: a linked node was synced before, so they are the same. */
static void crash_dir(const struct crash *crash, const struct mem_node *from, struct mem_node *to,
	unsigned depth)
{
	struct mem_entry *names = NULL;

	for (const struct mem_entry *e = from->durable; e != NULL; e = e->next) {
		set_entry(&names, e->name, e->node);
	}
	for (const struct mem_edit *edit = from->edits; edit != NULL; edit = edit->next) {
		if (is_name_kept(crash, edit->op)) {
			set_entry(&names, edit->name, edit->node);
		}
	}
	for (const struct mem_entry *e = names; depth < STORE_NEST_MAX && e != NULL; e = e->next) {
		struct mem_node *node = mem_node_new(crash->after, e->node->kind);

		if (node->kind == STORE_DIR) {
			crash_dir(crash, e->node, node, depth + 1);
		} else {
			crash_file(crash, e->node, node);
		}
		set_entry(&to->entries, e->name, node);
		set_entry(&to->durable, e->name, node);
	}
	free_entries(names);
}

void mem_disk_crash(const struct mem_disk *from, enum mem_crash how, struct rng *rng,
	struct mem_disk *after)
{
	struct crash crash = {.after = after, .rng = rng, .how = how};

	ASSERT(how != MEM_TEAR || rng != NULL);
	crash.name_seed = how == MEM_TEAR ? rng_u64(rng) : 0;
	crash_dir(&crash, from->root, after->root, 0);
}
