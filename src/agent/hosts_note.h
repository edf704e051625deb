/*
 * What the agents of one job on several hosts write to each other through the store, one small file
 * a note: docs/format.md has the bytes. And, out of what they wrote, who is in a run. Pure.
 */
#ifndef AGENT_HOSTS_NOTE_H
#define AGENT_HOSTS_NOTE_H

#include "base/wire.h"
#include "ckpt/manifest.h"

#define HOSTS_MAX     256u /* of one job */
#define HOSTS_WHY_MAX 256u

/* A host, as far as the others must know it. */
struct hosts_member {
	uint32_t first; /* its lowest rank */
	uint32_t ranks; /* of them, consecutive */
	uint64_t nonce; /* of its ranks' start; another one: they began anew */
};

/* A host's agent says that its ranks have begun. */
struct note_join {
	struct hosts_member member;
	uint32_t world;         /* ranks of the job, as it was told */
	char job[CKPT_JOB_MAX]; /* id */
};

/* The host with rank 0 says who takes part from now on, but for itself. */
struct note_run {
	uint64_t run;       /* random */
	uint32_t members_n; /* of members */
	struct hosts_member members[HOSTS_MAX];
};

/* Anything else that is said: each kind of note uses what it needs. */
struct note_word {
	int code;                 /* PAWL_E code of what failed; 0: it did not */
	char why[HOSTS_WHY_MAX];  /* for people */
	char part[CKPT_NAME_MAX]; /* a partition that differs between ranks, or "" */
	uint8_t verdict;          /* of a vote: enum proto_verdict */
	bool has_step;            /* asked for: this step and no other */
	uint64_t asked;           /* that step */
	bool found;               /* offered: there is one */
	uint64_t step;            /* offered */
	char tag[CKPT_TAG_MAX];   /* offered */
};

/* A partition that all ranks say they hold alike, as one host's lowest rank has it. */
struct note_shared {
	char name[CKPT_NAME_MAX]; /* of the partition */
	uint64_t size_bytes;      /* of its file */
	uint32_t sums_n;          /* 0: none were taken */
	uint32_t *sums;           /* CRC-32C of each storage; owned by the note it is in */
};

/* A host's part of a save. */
struct note_part {
	struct note_word word;      /* code and why, if it failed */
	uint32_t shared_n;          /* of shared */
	struct note_shared *shared; /* owned */
	struct manifest manifest;   /* of its files; owned. Not if it failed */
};

void note_put_join(struct wire_out *out, const struct note_join *join);
void note_put_run(struct wire_out *out, const struct note_run *run);
void note_put_word(struct wire_out *out, const struct note_word *word);
void note_put_part(struct wire_out *out, const struct note_part *part);
/* All: PAWL_ECORRUPT if it is not one, PAWL_ENOTSUP for a newer version. */
int note_get_join(const void *bytes, size_t len_bytes, struct note_join *join,
	struct pawl_err *err);
int note_get_run(const void *bytes, size_t len_bytes, struct note_run *run, struct pawl_err *err);
int note_get_word(const void *bytes, size_t len_bytes, struct note_word *word,
	struct pawl_err *err);
/* note_part_deinit when done, also after an error. */
int note_get_part(const void *bytes, size_t len_bytes, struct note_part *part,
	struct pawl_err *err);
void note_part_deinit(struct note_part *part);

/*
 * Who of those that joined make up the ranks own->first + own->ranks and up to world, each once, in
 * order; own has rank 0. Left out are those who are in the run before (old), since its end means
 * that all begin anew. Returns how many; 0 if ranks are missing: which first, in *missing.
 */
uint32_t hosts_plan(const struct hosts_member *own, uint32_t world, const struct note_join *joins,
	uint32_t joins_n, const struct note_run *old, struct hosts_member *members,
	uint32_t *missing);

#endif
