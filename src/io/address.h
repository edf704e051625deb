/* Finds the address by which other hosts reach this one. */
#ifndef IO_ADDRESS_H
#define IO_ADDRESS_H

#include <stdbool.h>

struct pawl_err;

#define ADDRESS_MAX 64u /* bytes of an address, terminator included */

/* Finds the address of the interface that PAWL_IFNAME names; else of the interface on the route to
 * route_to, a host or address that all callers know. The result is numeric, IPv4 or IPv6.
 * PAWL_EINVAL: there is no such interface, or it has no address; PAWL_ENOENT: there is no
 * route. */
int address_find(const char *route_to, char *address, struct pawl_err *err);
/* Finds this host's address without a host that all callers know: the address of the interface that
 * PAWL_IFNAME names; else that of this host's name; else that of the default route. Skips local
 * addresses (address_is_local). PAWL_EINVAL as above; PAWL_ENOENT: there is none. */
int address_own(char *address, struct pawl_err *err);
/* Whether the address is a loopback one, or a link-local one, which needs an interface name. */
bool address_is_local(const char *address);

#endif
