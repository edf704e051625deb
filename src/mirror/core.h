/*
 * The state of a mirror: what is in the directory, what is in the bucket, and what to do next.
 * Pure: scans and results come in, one job at a time goes out, and the shell (mirror.c) does it.
 * Times are by one clock that never goes back.
 *
 * A unit goes this way; every change of its files leads back to the first state:
 *
 *   OPEN       being written, or not sealed yet: why says what is missing
 *   PINNED     sealed: the shell holds all its files open, under leases
 *   SHIPPING   being uploaded
 *   COMMITTED  its tag is published, with the files that it has now
 *
 * A unit that only loses files is being removed by the program: what was sealed stays sealed, and
 * what is in the bucket stays there, until a newer unit of its group is committed.
 */
#ifndef MIRROR_CORE_H
#define MIRROR_CORE_H

#include "mirror/units.h"

struct pawl_err;

#define CORE_UNITS_MAX 10000u  /* units of one directory */
#define CORE_LOOSE_MAX 100000u /* files outside of units */
#define CORE_PATH_MAX  1024u   /* bytes of a path in the directory, terminator included */

/* ---- what the shell tells ---- */

/* Facts about one unit or one loose file, by a scan. */
struct core_seen {
	const char *path; /* path in the directory */
	const uint64_t
		*files;      /* a number for each file, by its path, inode, size and time; sorted */
	uint32_t files_n;    /* number of files; 1 of a loose file */
	uint64_t size_bytes; /* total size */
	void *user;          /* passed to inspect */
};

/* Looks into a unit whose files have changed. */
struct core_inspect {
	/* Sets kind, and best ("": it names none). Returns whether the unit can be sealed as far as
	 * its files say; else why says what is missing, and *never that waiting will not help. */
	bool (*look)(void *user, const struct core_seen *seen, enum unit_kind *kind,
		char best[CKPT_TAG_MAX], bool *never, char why[UNIT_WHY_MAX]);
	void *user;
};

struct core_options {
	int64_t quiet_ns;     /* a unit without a last file, and a loose file, is quiet by then */
	int64_t settle_ns;    /* a unit that has its last file is settled by then */
	int64_t loose_max_ns; /* a loose file that changes for ever is shipped after that */
	int64_t retry_ns;     /* before something that failed is tried again; doubled each time */
	int64_t retry_max_ns; /* longest time before that */
	uint64_t local_max_bytes; /* pins hold at most so many bytes; 0: no limit */
	uint32_t keep_remote;     /* units that the bucket keeps; 0: those that the directory has */
};

/* ---- the state ---- */

/* How far a unit has come. */
enum core_state { CORE_OPEN, CORE_PINNED, CORE_SHIPPING, CORE_COMMITTED, CORE_STATES_N };

/* A set of files, as sorted numbers. */
struct core_files {
	uint64_t *at; /* owned; NULL if n is 0 */
	uint32_t n;
};

struct core_unit {
	char path[CKPT_TAG_MAX]; /* path in the directory */
	char tag[CKPT_TAG_MAX];  /* tag; "": no tag can have the name */
	enum unit_kind kind;     /* kind, by the newest scan */
	enum core_state state;   /* how far it has come */
	uint64_t step;           /* step of its tag */
	bool stepped;            /* step is known */
	bool present;            /* the directory has files of it */
	bool was_here;           /* the directory had it at some time */
	bool in_bucket;          /* the tag is in the bucket, of these files or of others */
	bool complete;           /* the files themselves say that it is whole */
	bool never;              /* no tag can hold these files */
	bool shrunk;             /* files were removed since it was whole */
	bool stale;              /* files have changed since it was pinned */
	bool recorded;           /* CORE_RECORD was given for whole */
	bool pruned;             /* removed from the bucket by keep_remote, until it changes */
	bool loose_pin;          /* too large to be pinned: dropped when the program removes it */
	struct core_files files; /* files by the newest scan */
	struct core_files whole; /* files when it was sealed or found whole the last time */
	uint64_t size_bytes;     /* size of files */
	uint64_t pinned_bytes;   /* size when it was pinned */
	uint64_t sent_bytes;     /* bytes uploaded so far */
	uint64_t order;          /* units are shipped in this order, from 1; 0: not sealed */
	int64_t changed_ns;      /* time of the last change */
	int64_t shrunk_ns;       /* time when it became shrunk, or shrank further */
	int64_t dirty_ns;        /* since when it is not committed as it is */
	int64_t again_ns;        /* not tried before */
	uint32_t failures;       /* failures of its upload, one after another */
	char best[CKPT_TAG_MAX]; /* unit of its group that it calls the best; "": none */
	char why[UNIT_WHY_MAX];  /* why it is not committed; "" */
};

struct core_loose {
	char *path;          /* owned */
	uint64_t file;       /* number of the file, by the newest scan */
	uint64_t shipped;    /* number when it was shipped the last time; 0: never */
	uint64_t size_bytes; /* size */
	bool present;        /* the directory has it */
	bool was_here;       /* the directory had it at some time */
	bool in_bucket;      /* the bucket has some version of it */
	bool shipping;       /* a job for it is under way */
	bool skipped;        /* the file cannot be read: not tried again before it changes */
	int64_t changed_ns;  /* last change, or when it vanished */
	int64_t dirty_ns;    /* since when it is not shipped as it is */
	int64_t again_ns;    /* not tried before */
	uint32_t failures;   /* failures one after another */
};

struct core {
	struct core_options options;
	struct core_unit **units;  /* sorted by path; owned */
	uint32_t units_n;          /* number of units */
	struct core_loose **loose; /* sorted by path; owned */
	uint32_t loose_n;          /* number of loose files */
	uint64_t orders;           /* units sealed so far */
	uint64_t pinned_bytes;     /* bytes of all pinned units */
	uint32_t pinned_n;         /* number of pinned units */
	bool busy;                 /* a job is under way */
	bool last_was_unit;        /* the last job shipped a unit */
	bool ended;                /* the program has ended */
	bool ended_well;           /* with exit code 0 */
	bool stopped;              /* no more jobs: another process has the root */
	bool full;                 /* pins are at their limit */
	bool overflow;             /* more units or files than the limits */
	bool gone;                 /* the directory itself was removed: so nothing else is */
	int64_t flush_ns;          /* somebody waits for a flush since then; 0: nobody does */
};

void core_init(struct core *core, const struct core_options *options);
void core_deinit(struct core *core);
/* Finds a unit or a loose file by its path; NULL. */
struct core_unit *core_find_unit(const struct core *core, const char *path);
struct core_loose *core_find_loose(const struct core *core, const char *path);

/* Notes a tag of the bucket at start. PAWL_ENOMEM. */
int core_add_tag(struct core *core, const char *path, uint64_t step, struct pawl_err *err);
/* Notes that a tag of the bucket is damaged: as if it were not there. */
void core_lose_tag(struct core *core, const char *path);
/* Notes that a unit is not as it is in the bucket, though core_have_unit said so. */
void core_doubt_unit(struct core *core, const char *path, int64_t now_ns);
/* Notes a loose file of the bucket at start. PAWL_ENOMEM. */
int core_add_object(struct core *core, const char *path, struct pawl_err *err);
/* Notes that the directory has a unit of the bucket, with these files, as it is in the bucket.
 * PAWL_ENOMEM. */
int core_have_unit(struct core *core, const char *path, const uint64_t *files, uint32_t files_n,
	struct pawl_err *err);
/* Notes that a loose file in the directory is as in the bucket. PAWL_ENOMEM. */
int core_have_loose(struct core *core, const char *path, uint64_t file, struct pawl_err *err);

/* Takes a scan of the whole directory: units and loose files, each sorted by path. PAWL_ENOMEM: the
 * scan may be taken again. */
int core_scan(struct core *core, const struct core_seen *units, uint32_t units_n,
	const struct core_seen *loose, uint32_t loose_n, const struct core_inspect *inspect,
	int64_t now_ns, struct pawl_err *err);
void core_end(struct core *core, bool well, int64_t now_ns); /* the program has ended */

/* ---- what to do ---- */

enum core_job_kind {
	CORE_NOTHING,
	CORE_RECORD,       /* record that unit was whole with the files in whole */
	CORE_PIN,          /* open the files of unit, under leases: core_pinned */
	CORE_SHIP,         /* upload unit, which is pinned: core_shipped */
	CORE_SHIP_LOOSE,   /* upload loose: core_loose_done */
	CORE_REMOVE,       /* remove the tag of unit: core_removed */
	CORE_REMOVE_LOOSE, /* remove the object of loose: core_loose_done */
};

struct core_job {
	enum core_job_kind kind;
	struct core_unit *unit;   /* the core's, until it is closed */
	struct core_loose *loose; /* the core's, until it is closed */
	bool forced;              /* ship the loose file even if it goes on changing */
};

/* Returns the next job, and begins it. CORE_NOTHING, and sets *due_ns to when to ask again at the
 * latest (INT64_MAX: after the next event). Records and pins are made at once, other jobs one at a
 * time. */
struct core_job core_next(struct core *core, int64_t now_ns, int64_t *due_ns);
/* A pin was taken, or not: why. whole: files that it holds. */
void core_pinned(struct core *core, struct core_unit *unit, bool pinned, const char *why,
	int64_t now_ns);
/* Returns whether the shell must give up the pin of a unit, which has changed. The core has it open
 * again, unless it is being shipped: then stop that, and core_shipped follows. */
bool core_must_unpin(struct core *core, struct core_unit *unit, bool broken, int64_t now_ns);
/* A unit's upload has ended. The shell gives its pin up if it is not pinned any more. */
void core_shipped(struct core *core, struct core_unit *unit, bool committed, bool canceled,
	const char *why, int64_t now_ns);
/* Notes that a unit cannot be pinned, whatever time passes, until its files change: why. */
void core_refuse_unit(struct core_unit *unit, const char *why);
/* Notes that a loose file cannot be read, whatever time passes, until it changes. Its job ends. */
void core_skip_loose(struct core *core, struct core_loose *loose);
void core_removed(struct core *core, struct core_unit *unit, bool removed, const char *why,
	int64_t now_ns);
/* done: the object is there, with the file's number when it was read, or removed. later: not tried,
 * for a reason that passes. */
void core_loose_done(struct core *core, struct core_loose *loose, bool done, bool later,
	uint64_t file, int64_t now_ns);

/* ---- what is not done ---- */

/* Sums over what is not in the bucket. */
struct core_left {
	uint32_t units;       /* units of the directory that are not committed as they are */
	uint32_t loose;       /* loose files that are not shipped as they are */
	uint64_t dirty_bytes; /* bytes of both */
	int64_t oldest_ns;    /* since when the oldest of them waits; INT64_MAX: none does */
	uint32_t hopeless;    /* units among them that nothing but a change of their files helps */
};

void core_count_left(const struct core *core, struct core_left *left);
/* Returns whether all that can be shipped is: units that wait for their own files do not count if
 * the program has ended, nor do loose files that were shipped since the flush began, nor what can
 * never be shipped. */
bool core_is_flushed(const struct core *core);
/* Returns whether the unit of this path may still be committed as it is now. */
bool core_is_coming(const struct core *core, const struct core_unit *unit);

#endif
