/*
 * This process's end of the links between the agents of a job: listens, and serves what other hosts
 * put here or ask for, a thread for each connection. One for each agent, for all its roots.
 *
 * Rank 0's host leads: its notes and rounds are those of the job. All functions may be called by
 * any thread, except open and close.
 */
#ifndef AGENT_PEER_PEERS_H
#define AGENT_PEER_PEERS_H

#include "agent/peer/peer_msg.h"

struct held;
struct notes;
struct peers;
struct rounds;
struct tls;

struct peers_options {
	const char *job;     /* job id; clients of other jobs are refused */
	const char *token;   /* as for `pawl run`; NULL: none */
	const char *address; /* numeric address of this host, to listen at */
	const char *domain;  /* failure domain of this host, or "" */
};

/* Listens at a free port and starts the thread that accepts. Strings are copied. */
int peers_open(struct peers **out, const struct peers_options *options, struct pawl_err *err);
/* Ends all connections and threads. No link or held part may be in use. */
void peers_close(struct peers *peers); /* NULL is fine */
/* A thread that hangs may still use the peers: peers_close ends connections and threads as always,
 * and frees nothing. */
void peers_outlive(struct peers *peers);

const char *peers_address(const struct peers *peers); /* "host:port" of this end */
const char *peers_domain(const struct peers *peers);
const char *peers_job(const struct peers *peers);
uint32_t peers_port(const struct peers *peers);
struct tls *peers_tls(struct peers *peers);
bool peers_has_token(const struct peers *peers);
/* What this host holds of saves. */
struct held *peers_held(struct peers *peers);
/* Rounds of replication, and notes: those of the job if this host leads. */
struct rounds *peers_rounds(struct peers *peers);
struct notes *peers_notes(struct peers *peers);

/* Sets where rank 0's host listens in this start of the ranks; port 0: unknown. */
void peers_set_leader(struct peers *peers, const char *address, uint32_t port);
/* Fills in "host:port" of rank 0's host. PAWL_ENOENT: unknown. */
int peers_leader(struct peers *peers, char address[PEER_ADDRESS_MAX], struct pawl_err *err);
/* Whether the leader is this process. */
bool peers_is_leader(struct peers *peers);

#endif
