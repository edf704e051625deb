/* What the files of jobfile_*.c share. */
#ifndef SCHED_JOBFILE_IMPL_H
#define SCHED_JOBFILE_IMPL_H

#include "sched/jobfile.h"
#include "sched/tree.h"

/* A file that is being read. */
struct jobfile {
	struct sched_spec *spec;           /* being filled */
	const struct jobfile_given *given; /* the caller's */
	struct remarks *remarks;           /* the caller's */
	struct pool *pool;                 /* spec's */
	bool hidden;                       /* values are secrets: no message shows them */
	const struct tree_node *num_nodes; /* where it stands; NULL: nowhere; likewise: */
	const struct tree_node *replicas;
	const struct tree_node *spot;
	const struct tree_node *use_spot;
	bool unsized;                 /* one of the first two is not as it must be */
	struct sched_var *vars;       /* spec's */
	struct sched_choice *choices; /* spec's */
};

/* A key of a mapping. A table of them ends with a zero one. */
struct jobfile_key {
	const char *name; /* NULL: the table's end */
	/* Reads its value, which is not null, into into. NULL: why says why it is refused. */
	void (*read)(struct jobfile *f, const char *key, const struct tree_node *value, void *into);
	const char *why; /* it is not ours, and what to do instead */
};

/* ---- jobfile_keys.c ---- */

void jobfile_say(struct jobfile *f, const struct tree_node *at, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* "num_nodes: "four" is a string; a whole number from 1 to 4096 is needed" */
void jobfile_want(struct jobfile *f, const char *key, const struct tree_node *value,
	const char *needed);
/* Reads each key of map, and says which are refused or unknown. elsewhere: keys of another mapping,
 * called where, for who puts them here; or NULL. */
void jobfile_walk(struct jobfile *f, const struct tree_node *map, const struct jobfile_key *keys,
	const struct jobfile_key *elsewhere, const char *where, void *into);

/* ---- jobfile_values.c: each returns whether into is set; else it was said why ---- */

/* Text without NULs, not empty, at most cap_bytes with its NUL. */
bool jobfile_text(struct jobfile *f, const char *key, const struct tree_node *value,
	size_t cap_bytes, const char **into);
/* What is written in a scalar, whether it is a string, a number or a boolean to YAML; NULL if it
 * has NULs or is none. */
const char *jobfile_word(const struct tree_node *value);
bool jobfile_bool(struct jobfile *f, const char *key, const struct tree_node *value, bool *into);
bool jobfile_int(struct jobfile *f, const char *key, const struct tree_node *value, int64_t least,
	int64_t most, int64_t *into);
/* "2..8", or "4" for 4..4. */
bool jobfile_range(struct jobfile *f, const char *key, const struct tree_node *value,
	uint32_t least, uint32_t most, struct sched_range *into);
/* "4", "4+", "0.5" */
bool jobfile_cpus(struct jobfile *f, const char *key, const struct tree_node *value,
	uint32_t *into_milli);
/* "32", "32+", "64GB", "1.5TB": of GiB where no unit is said. */
bool jobfile_size(struct jobfile *f, const char *key, const struct tree_node *value,
	uint64_t *into_bytes);
/* "90s", "12h", "1d12h", "36:00:00" */
bool jobfile_duration(struct jobfile *f, const char *key, const struct tree_node *value,
	uint32_t *into_s);

/* ---- jobfile.c ---- */

extern const struct jobfile_key jobfile_top_keys[];

/* ---- jobfile_resources.c ---- */

extern const struct jobfile_key jobfile_resource_keys[];
/* Fills spec's choices of the mapping, or (NULL) of nothing. */
void jobfile_resources(struct jobfile *f, const struct tree_node *map);

/* ---- jobfile_vars.c ---- */

/* Fills spec's variables, of both mappings (NULL: not there) and of what was given. */
void jobfile_vars(struct jobfile *f, const struct tree_node *envs, const struct tree_node *secrets);
/* Text with ${NAME} and $NAME replaced by values of envs; NULL if it was said why not. */
const char *jobfile_expand(struct jobfile *f, const char *key, const struct tree_node *at,
	const char *text);
/* Fills spec's mounts. */
void jobfile_mounts(struct jobfile *f, const struct tree_node *map);

#endif
