/*
 * Links of this node's agent to those of the other nodes: see agent/peer/peers.h. They are opened
 * when nodes.c first asks for their port, as the address of this node is known only then.
 */
#include "agent/agent.h"
#include "agent/peer/peers.h"
#include "base/log.h"
#include "launch/run_impl.h"
#include "pawl/err.h"

#include <stdio.h>
#include <string.h>

/* Opens the links at an address, once. Without them the job runs on. */
static void open_at(struct run *run, const char *address)
{
	const struct peers_options options = {.job = run->plan.job,
		.token = run->plan.token[0] != '\0' ? run->plan.token : NULL,
		.address = address,
		.domain = run->plan.domain};
	struct pawl_err err;

	snprintf(run->peers_address, sizeof(run->peers_address), "%s", address);
	if (peers_open(&run->peers, &options, &err) != 0) {
		log_line(LOG_WARNING, "other nodes cannot hold this node's checkpoints: %s",
			err.msg);
		return;
	}
	agent_set_peers(run->agent, run->peers);
}

uint32_t run_peers_port(void *user, const char *address)
{
	struct run *run = user;

	if (run->peers_address[0] == '\0') {
		open_at(run, address);
	}
	if (run->peers == NULL) {
		return 0;
	}
	if (strcmp(address, run->peers_address) != 0) {
		log_line(LOG_WARNING,
			"other nodes cannot hold this node's checkpoints: its address is %s now, "
			"and its agent listens at %s",
			address, run->peers_address);
		return 0;
	}
	return peers_port(run->peers);
}

void run_peers_start(struct run *run, const struct node_frame *start)
{
	if (run->peers != NULL) {
		peers_set_leader(run->peers, start->address, start->peer_port);
	}
}

void run_peers_close(struct run *run)
{
	peers_close(run->peers);
}
