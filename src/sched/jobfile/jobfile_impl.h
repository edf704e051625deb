/* Declarations that the files jobfile*.c share. */
#ifndef SCHED_JOBFILE_JOBFILE_IMPL_H
#define SCHED_JOBFILE_JOBFILE_IMPL_H

#include "sched/jobfile/jobfile.h"
#include "sched/jobfile/tree.h"

#define JOBFILE_IGNORED_MAX 48u /* ignored keys, in all tables together */

/* A file that is being read. */
struct jobfile {
	struct sched_spec *spec;           /* being filled */
	const struct jobfile_given *given; /* the caller's */
	struct remarks *remarks;           /* the caller's */
	struct remarks *notes;             /* the caller's; NULL: not wanted */
	struct sched_arena *arena;         /* spec's */
	bool hidden;                       /* values are secrets: no message shows them */
	/* Places of keys in the file, down to retries; NULL: the key is not there. */
	const struct tree_node *num_nodes;
	const struct tree_node *replicas;
	const struct tree_node *spot;
	const struct tree_node *use_spot;
	const struct tree_node *priority;
	const struct tree_node *retries;
	const char *ignored[JOBFILE_IGNORED_MAX]; /* ignored keys that were noted */
	uint32_t ignored_n;                       /* number of entries in ignored */
	bool unsized;                             /* num_nodes or replicas has no valid value */
	struct sched_var *vars;                   /* spec's */
	size_t vars_max;                          /* entries that vars has room for */
	struct sched_choice *choices;             /* spec's */
};

/* A key of a mapping. A table of keys ends with a zero one. */
struct jobfile_key {
	const char *name; /* NULL: the table's end */
	/* Reads the value, which is not null, into *into. NULL: the key is not supported, and why
	 * gives the reason. */
	void (*read)(struct jobfile *f, const char *key, const struct tree_node *value, void *into);
	const char *why; /* reason why the key is not supported, and what to do instead */
	bool ignored;    /* an unsupported key is accepted, whatever its value; else refused */
};

/* ---- jobfile_walk.c ---- */

void jobfile_add_error(struct jobfile *f, const struct tree_node *at, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Notes something that is accepted and may be a surprise; an error if the caller is strict. */
void jobfile_add_note(struct jobfile *f, const struct tree_node *at, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Notes that the key is ignored, once, however often the file has it. key: must live as long as the
 * program. */
void jobfile_add_ignored(struct jobfile *f, const char *key, const struct tree_node *at,
	const char *why);
/* Reports a wrong value: "num_nodes: "four" is a string; a whole number from 1 to 4096 is
 * needed". */
void jobfile_bad_value(struct jobfile *f, const char *key, const struct tree_node *value,
	const char *needed);
/* Reads each key of map, and reports keys that are refused or unknown. elsewhere: keys of another
 * mapping, called where, in case a user gives them here; or NULL. */
void jobfile_walk(struct jobfile *f, const struct tree_node *map, const struct jobfile_key *keys,
	const struct jobfile_key *elsewhere, const char *where, void *into);

/* ---- jobfile_values.c: each returns whether into is set; if not, it has reported why ---- */

/* Reads text without NULs, not empty, at most cap_bytes with its NUL. */
bool jobfile_text(struct jobfile *f, const char *key, const struct tree_node *value,
	size_t cap_bytes, const char **into);
/* Returns the text of a scalar, whether YAML takes it for a string, a number or a boolean; NULL if
 * it has NULs or is not a scalar. */
const char *jobfile_scalar(const struct tree_node *value);
bool jobfile_bool(struct jobfile *f, const char *key, const struct tree_node *value, bool *into);
/* Returns the value of a YAML boolean. */
bool jobfile_is_true(const struct tree_node *value);
bool jobfile_int(struct jobfile *f, const char *key, const struct tree_node *value, int64_t least,
	int64_t most, int64_t *into);
/* Reads a range: "2..8", or "4" for 4..4. */
bool jobfile_range(struct jobfile *f, const char *key, const struct tree_node *value,
	uint32_t least, uint32_t most, struct sched_range *into);
/* Reads a number of processors: "4", "4+", "0.5". */
bool jobfile_cpus(struct jobfile *f, const char *key, const struct tree_node *value,
	uint32_t *into_milli);
/* Reads a size: "32", "32+", "64GB", "1.5TB"; in GiB if there is no unit. */
bool jobfile_size(struct jobfile *f, const char *key, const struct tree_node *value,
	uint64_t *into_bytes);
/* Reads a time: "90s", "12h", "1d12h", "36:00:00". */
bool jobfile_duration(struct jobfile *f, const char *key, const struct tree_node *value,
	uint32_t *into_s);

/* ---- jobfile.c ---- */

extern const struct jobfile_key jobfile_top_keys[];
/* Read keys that may be in two places, with one value. into: not used. */
void jobfile_read_priority(struct jobfile *f, const char *key, const struct tree_node *value,
	void *into);
void jobfile_read_retries(struct jobfile *f, const char *key, const struct tree_node *value,
	void *into);

/* ---- jobfile_resources.c ---- */

extern const struct jobfile_key jobfile_resource_keys[];
/* Fills spec's choices from the mapping; NULL: there is none. */
void jobfile_resources(struct jobfile *f, const struct tree_node *map);
/* Whether two choices are equal, except for spot nodes. */
bool jobfile_same_choice(const struct sched_choice *a, const struct sched_choice *b);

/* ---- jobfile_vars.c ---- */

/* Fills spec's variables from both mappings (NULL: not there) and from those given. */
void jobfile_vars(struct jobfile *f, const struct tree_node *envs, const struct tree_node *secrets);
/* Returns the text with ${NAME} and $NAME replaced by values of envs; NULL: that failed, and was
 * reported. */
const char *jobfile_expand(struct jobfile *f, const char *key, const struct tree_node *at,
	const char *text);

/* ---- jobfile_mounts.c ---- */

/* Fills spec's mounts, once its size is known. */
void jobfile_mounts(struct jobfile *f, const struct tree_node *map);

#endif
