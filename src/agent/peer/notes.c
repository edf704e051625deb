/*
 * Small messages by path, in memory: see notes.h. One mutex guards all.
 *
 * The list is in the order of roots and paths, with "/" before all other characters: behind the
 * path of a folder come all notes below it, and the names in a folder come in their order.
 */
#include "agent/peer/notes.h"

#include "base/err.h"
#include "base/fault.h"
#include "base/wire.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct note {
	uint64_t root;    /* number of its root */
	char *path;       /* owned; the content lies behind its NUL */
	size_t len_bytes; /* bytes of content */
};

struct notes {
	pthread_mutex_t lock;
	struct note *at;     /* owned */
	size_t n;            /* number of notes */
	size_t cap;          /* notes allocated */
	uint64_t used_bytes; /* bytes of all paths and contents, at most NOTES_BYTES_MAX */
};

int notes_open(struct notes **out, struct pawl_err *err)
{
	struct notes *notes = FAULT_MEM("notes.open", calloc(1, sizeof(*notes)));

	if (!notes) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for notes");
	}
	pthread_mutex_init(&notes->lock, NULL);
	*out = notes;
	return 0;
}

void notes_close(struct notes *notes)
{
	if (!notes) {
		return;
	}
	for (size_t i = 0; i < notes->n; i++) {
		free(notes->at[i].path);
	}
	free(notes->at);
	pthread_mutex_destroy(&notes->lock);
	free(notes);
}

/* ---- the list; the caller holds the lock ---- */

/* Returns where a character comes in the order of paths. */
static int order_of(char c)
{
	return c == '/' ? 1 : c == '\0' ? 0 : 1 + (unsigned char)c;
}

static int compare_paths(const char *a, const char *b)
{
	while (*a == *b && *a != '\0') {
		a++;
		b++;
	}
	return order_of(*a) - order_of(*b);
}

/* Returns the index of the first note that does not come before root and path. */
static size_t find(const struct notes *notes, uint64_t root, const char *path)
{
	size_t lo = 0;
	size_t hi = notes->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		const struct note *note = &notes->at[mid];

		if (note->root < root ||
			(note->root == root && compare_paths(note->path, path) < 0)) {
			lo = mid + 1;
		} else {
			hi = mid;
		}
	}
	return lo;
}

static bool is_at(const struct notes *notes, size_t i, uint64_t root, const char *path)
{
	return i < notes->n && notes->at[i].root == root && strcmp(notes->at[i].path, path) == 0;
}

/* Returns the part of note i's path that lies below the folder, "" for the top, of a root; NULL: it
 * does not lie there. */
static const char *below(const struct notes *notes, size_t i, uint64_t root, const char *folder)
{
	size_t len = strlen(folder);
	const char *path = i < notes->n ? notes->at[i].path : NULL;

	if (!path || notes->at[i].root != root || strncmp(path, folder, len) != 0) {
		return NULL;
	}
	if (len == 0) {
		return path;
	}
	return path[len] == '/' ? path + len + 1 : NULL;
}

static uint64_t size_of(const char *path, size_t len_bytes)
{
	return strlen(path) + 1 + (uint64_t)len_bytes;
}

static void remove_range(struct notes *notes, size_t i, size_t end)
{
	for (size_t k = i; k < end; k++) {
		notes->used_bytes -= size_of(notes->at[k].path, notes->at[k].len_bytes);
		free(notes->at[k].path);
	}
	if (end > i) {
		memmove(&notes->at[i], &notes->at[end], (notes->n - end) * sizeof(*notes->at));
		notes->n -= end - i;
	}
}

/* Makes room for one more note. Returns false if memory is short. */
static bool grow(struct notes *notes)
{
	size_t cap = notes->cap > 0 ? 2 * notes->cap : 64;
	struct note *at;

	if (notes->n < notes->cap) {
		return true;
	}
	at = FAULT_MEM("notes.grow", realloc(notes->at, cap * sizeof(*at)));
	if (!at) {
		return false;
	}
	notes->at = at;
	notes->cap = cap;
	return true;
}

/* Makes a note; its path is NULL if memory is short. */
static struct note make(uint64_t root, const char *path, const void *bytes, size_t len_bytes)
{
	size_t path_bytes = strlen(path) + 1;
	struct note note = {.root = root, .len_bytes = len_bytes};

	note.path = FAULT_MEM("notes.write", malloc(path_bytes + len_bytes));
	if (note.path) {
		memcpy(note.path, path, path_bytes);
	}
	if (note.path && len_bytes > 0) {
		memcpy(note.path + path_bytes, bytes, len_bytes);
	}
	return note;
}

/* Writes a note, in place of the one at i if that has its path. */
static void put(struct notes *notes, size_t i, const struct note *note)
{
	if (is_at(notes, i, note->root, note->path)) {
		remove_range(notes, i, i + 1);
	}
	memmove(&notes->at[i + 1], &notes->at[i], (notes->n - i) * sizeof(*notes->at));
	notes->at[i] = *note;
	notes->n++;
	notes->used_bytes += size_of(note->path, note->len_bytes);
}

/* Returns the bytes of all notes once one is written where i is. */
static uint64_t used_with(const struct notes *notes, size_t i, uint64_t root, const char *path,
	size_t len_bytes)
{
	uint64_t old = is_at(notes, i, root, path) ? size_of(path, notes->at[i].len_bytes) : 0;

	return notes->used_bytes - old + size_of(path, len_bytes);
}

/* ---- for any thread ---- */

int notes_write(struct notes *notes, uint64_t root, const char *path, const void *bytes,
	size_t len_bytes, struct pawl_err *err)
{
	struct note note;
	size_t i;
	int rv = 0;

	pthread_mutex_lock(&notes->lock);
	i = find(notes, root, path);
	if (len_bytes > NOTES_BYTES_MAX ||
		used_with(notes, i, root, path, len_bytes) > NOTES_BYTES_MAX) {
		rv = pawl_err_set(err, PAWL_ELIMIT,
			"note %s: all notes together would have more than %u bytes", path,
			NOTES_BYTES_MAX);
	} else if (!grow(notes) || !(note = make(root, path, bytes, len_bytes)).path) {
		rv = pawl_err_set(err, PAWL_ENOMEM, "note %s: no memory for its %zu bytes", path,
			len_bytes);
	} else {
		put(notes, i, &note);
	}
	pthread_mutex_unlock(&notes->lock);
	return rv;
}

int notes_read(struct notes *notes, uint64_t root, const char *path, struct wire_out *out,
	struct pawl_err *err)
{
	bool found;
	size_t i;

	pthread_mutex_lock(&notes->lock);
	i = find(notes, root, path);
	found = is_at(notes, i, root, path);
	if (found) {
		const struct note *note = &notes->at[i];

		wire_put_raw(out, note->path + strlen(note->path) + 1, note->len_bytes);
	}
	pthread_mutex_unlock(&notes->lock);
	if (!found) {
		return pawl_err_set(err, PAWL_ENOENT, "note %s: there is none", path);
	}
	return out->failed ? wire_out_error(out, "a note", err) : 0;
}

int notes_list(struct notes *notes, uint64_t root, const char *folder, struct wire_out *out,
	struct pawl_err *err)
{
	const char *last = "";
	size_t last_len = 0;
	const char *rest;
	size_t i;

	pthread_mutex_lock(&notes->lock);
	i = find(notes, root, folder);
	i += is_at(notes, i, root, folder);
	for (; (rest = below(notes, i, root, folder)); i++) {
		size_t len = strcspn(rest, "/");

		if (len != last_len || memcmp(rest, last, len) != 0) {
			wire_put_raw(out, rest, len);
			wire_put_u8(out, 0);
			last = rest;
			last_len = len;
		}
	}
	pthread_mutex_unlock(&notes->lock);
	return out->failed ? wire_out_error(out, "a list of notes", err) : 0;
}

void notes_remove(struct notes *notes, uint64_t root, const char *path)
{
	size_t i;
	size_t end;

	pthread_mutex_lock(&notes->lock);
	i = find(notes, root, path);
	end = i + is_at(notes, i, root, path);
	while (below(notes, end, root, path)) {
		end++;
	}
	remove_range(notes, i, end);
	pthread_mutex_unlock(&notes->lock);
}
