/* A free port for MASTER_PORT. */
#ifndef LAUNCH_RUN_PORT_H
#define LAUNCH_RUN_PORT_H

#include <stdint.h>

struct pawl_err;

/*
 * Finds a port that nobody listens on, for address's family (IPv4, IPv6), and holds it by binding
 * it without listening. The system then gives it to no other process, but a listener that sets
 * SO_REUSEADDR, as every rendezvous store does, can still bind it. *fd becomes the socket, to be
 * closed by the caller; the socket that it was before (-1: none) is closed.
 */
int run_port_hold(int *fd, const char *address, uint32_t *port, struct pawl_err *err);
/* Finds an IPv4 port that is free now, for a listener that does not set SO_REUSEADDR. The port
 * is not held, so others may still take it. */
int run_port_find(uint32_t *port, struct pawl_err *err);

#endif
