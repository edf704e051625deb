/*
 * Simulates plans of an all-reduce in virtual time: hosts send one message after the other, in the
 * order of their lists, and receive one after the other, at the link's rate; a message is sent on
 * when all of it has arrived, and adding takes no time.
 */
#ifndef TEST_CARRY_H
#define TEST_CARRY_H

#include "coll/plan/cost.h"

/* Computes, for each of links_n links, the seconds until the last host is done, without servers.
 * The hosts' lists are the same for all links. algorithm must suit the number of hosts. */
void carry_all_reduce(double *took_s, const struct coll_link *links, uint32_t links_n,
	uint32_t hosts, enum coll_algorithm algorithm, uint64_t len_bytes);

#endif
