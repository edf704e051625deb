/*
 * Messages between the agents of one job on several hosts, one note (agree_notes.h) each;
 * docs/format.md has the bytes. Also the choice of a run's members from these messages. Pure.
 */
#ifndef AGENT_PERSIST_AGREE_MSG_H
#define AGENT_PERSIST_AGREE_MSG_H

#include "agent/peer/place.h"
#include "agent/peer/recover.h"
#include "base/wire.h"
#include "ckpt/format/manifest.h"

#define AGREE_HOSTS_MAX (PEER_HOSTS_MAX - 1u) /* hosts in one job besides rank 0's, at most */
#define AGREE_HELD_MAX  128u                  /* parts of saves that one host offers, at most */
#define AGREE_WHY_MAX   256u

/* A host, as far as the other hosts must know it. */
struct agree_member {
	uint32_t first_rank; /* lowest rank of the host */
	uint32_t ranks;      /* number of ranks, consecutive from first_rank */
	uint64_t nonce; /* random number of the ranks' start; another number: they began anew */
	char address[PEER_ADDRESS_MAX]; /* "host:port" of its links; "": it has none */
	char domain[PEER_DOMAIN_MAX];   /* failure domain; "": unknown */
	uint32_t replicas;              /* as in struct peer_host, like parity */
	bool parity;
};

/* A host's ranks have begun. */
struct agree_msg_join {
	struct agree_member member;
	uint32_t world;         /* ranks of the job, from this host's workers */
	char job[CKPT_JOB_MAX]; /* job id */
};

/* The leader lists the members of the new run, by rank. */
struct agree_msg_run {
	uint64_t run;                                 /* random number of the run */
	struct agree_member leader;                   /* rank 0's host */
	uint32_t members_n;                           /* number of entries in members */
	struct agree_member members[AGREE_HOSTS_MAX]; /* the others */
};

/* Any other message: each round uses the fields that it needs. What the pointers lead to is the
 * caller's. It is sent; or, when a message is received, filled in. NULL: nothing of that kind is
 * sent, or kept. */
struct agree_msg_status {
	int code;                 /* PAWL_E code of the failure; 0: none */
	char why[AGREE_WHY_MAX];  /* reason, for users */
	char part[CKPT_NAME_MAX]; /* a partition that differs between ranks, or "" */
	uint8_t verdict;          /* vote: enum proto_verdict */
	bool has_step;            /* restore: only asked_step will do */
	uint64_t asked_step;      /* restore: step of the request, with has_step */
	bool found;               /* offered: there is a checkpoint */
	uint64_t step;            /* step of the offer */
	char tag[CKPT_TAG_MAX];   /* tag of the offer */
	uint32_t held_n;          /* number of entries in held, at most AGREE_HELD_MAX */
	struct peer_part *held;   /* restore: parts that the host has in memory; room for all */
	bool memory; /* offered: the checkpoint is in the memory of the hosts, see plan */
	/* With memory: where it lies. A message that is received has step and tag as above in it;
	 * without memory it is not touched. */
	struct recover_plan *plan;
};

/* A shared partition, equal on all ranks, as one host's lowest rank has it. */
struct agree_msg_shared {
	char name[CKPT_NAME_MAX]; /* partition name */
	uint64_t size_bytes;      /* size of the partition's file */
	uint32_t sums_n;          /* number of entries in sums; 0: none were taken */
	uint32_t *sums;           /* CRC-32C of each storage; owned by the message */
};

/* A host's part of a save. */
struct agree_msg_part {
	struct agree_msg_status status;  /* code and why, if the part failed */
	uint32_t shared_n;               /* number of entries in shared */
	struct agree_msg_shared *shared; /* owned */
	struct manifest manifest; /* lists the part's files; owned. Empty if the part failed */
};

void agree_msg_put_join(struct wire_out *out, const struct agree_msg_join *join);
void agree_msg_put_run(struct wire_out *out, const struct agree_msg_run *run);
void agree_msg_put_status(struct wire_out *out, const struct agree_msg_status *status);
void agree_msg_put_part(struct wire_out *out, const struct agree_msg_part *part);
/* The getters: PAWL_ECORRUPT if bytes are no such message, PAWL_ENOTSUP for another version. */
int agree_msg_get_join(const void *bytes, size_t len_bytes, struct agree_msg_join *join,
	struct pawl_err *err);
int agree_msg_get_run(const void *bytes, size_t len_bytes, struct agree_msg_run *run,
	struct pawl_err *err);
int agree_msg_get_status(const void *bytes, size_t len_bytes, struct agree_msg_status *status,
	struct pawl_err *err);
/* The caller calls agree_msg_part_deinit when done, also after an error. */
int agree_msg_get_part(const void *bytes, size_t len_bytes, struct agree_msg_part *part,
	struct pawl_err *err);
void agree_msg_part_deinit(struct agree_msg_part *part);

/*
 * Chooses, among the hosts that joined, those that make up the ranks from own->first + own->ranks
 * up to world, each rank once and in order; own has rank 0. Hosts with their
 * nonce of the run before (old) are left out, since its end means that all begin anew. Returns the
 * number of members; 0 if ranks are missing, the first of which is *missing.
 */
uint32_t agree_choose_members(const struct agree_member *own, uint32_t world,
	const struct agree_msg_join *joins, uint32_t joins_n, const struct agree_msg_run *old,
	struct agree_member *members, uint32_t *missing);

#endif
