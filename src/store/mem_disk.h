/*
 * The disk behind the memory store: files and directories, each as it is now and as it is durable.
 * Pure: it knows no paths, counts no operations and cannot fail (running out of memory aborts: this
 * is for tests).
 *
 * A file consists of the bytes of its last sync and, in order, the writes since. A directory
 * consists of the names of its last sync and, in order, the edits since; the edits of one operation
 * (both halves of a rename) carry its number and, while none of them is synced, are kept or lost
 * together. Nothing else is ordered: a later edit may survive an earlier one. Nodes are freed with
 * the disk, not before, since a removed node may come back.
 */
#ifndef STORE_MEM_DISK_H
#define STORE_MEM_DISK_H

#include "store/mem.h"

/* A piece of memory that grows. */
struct mem_bytes {
	uint8_t *at;      /* owned */
	size_t len_bytes; /* bytes of content */
	size_t cap_bytes; /* bytes allocated */
};

/* A change of a file's bytes, not synced yet. */
struct mem_write {
	struct mem_write *next; /* the next write */
	uint64_t off_bytes;     /* offset of the bytes; for a resize: the new size */
	size_t len_bytes;       /* number of bytes */
	bool resize;            /* cut or extend with zeros; bytes is empty */
	uint8_t bytes[];        /* the bytes to write */
};

/* A name in a directory. */
struct mem_entry {
	struct mem_entry *next;    /* the next name, in no order */
	struct mem_node *node;     /* node that it leads to */
	char name[STORE_NAME_MAX]; /* one path component */
};

/* A change of a directory's names, not synced yet. */
struct mem_edit {
	struct mem_edit *next;     /* the next edit */
	uint64_t op;               /* number of the operation it belongs to */
	struct mem_node *node;     /* node that the name leads to from now on; NULL: removed */
	char name[STORE_NAME_MAX]; /* one path component */
};

/* A file or a directory; the fields of the other kind stay empty. */
struct mem_node {
	struct mem_node *next; /* list of all nodes of the disk */
	enum store_kind kind;  /* never changes */

	struct mem_bytes now;          /* file: the content that a read sees */
	struct mem_bytes synced;       /* file: the content that is durable */
	struct mem_write *writes;      /* file: from synced to now, oldest first */
	struct mem_write **writes_end; /* file: where the next write is linked */

	struct mem_entry *entries;   /* directory: names that a listing sees */
	struct mem_entry *durable;   /* directory: names as of the last sync */
	struct mem_edit *edits;      /* directory: from durable to entries, oldest first */
	struct mem_edit **edits_end; /* directory: where the next edit is linked */
};

struct mem_disk {
	struct mem_node *nodes; /* owned, all of them */
	struct mem_node *root;  /* a directory */
};

void mem_disk_init(struct mem_disk *disk);
void mem_disk_deinit(struct mem_disk *disk);
struct mem_node *mem_node_new(struct mem_disk *disk, enum store_kind kind);

void mem_file_write(struct mem_node *file, uint64_t off_bytes, const void *bytes, size_t len_bytes);
void mem_file_resize(struct mem_node *file, uint64_t size_bytes);
void mem_file_sync(struct mem_node *file);

/* Returns the node of a name; NULL if there is no such name. */
struct mem_node *mem_dir_get(const struct mem_node *dir, const char *name);
/* Sets the node of a name; NULL removes the name. */
void mem_dir_set(struct mem_node *dir, uint64_t op, const char *name, struct mem_node *node);
void mem_dir_sync(struct mem_node *dir);

/* Fills after (initialised, empty) with what the disk holds after a power loss. Only MEM_TEAR uses
 * rng. Names more than STORE_NEST_MAX deep are left out. */
void mem_disk_crash(const struct mem_disk *from, enum mem_crash how, struct rng *rng,
	struct mem_disk *after);

#endif
