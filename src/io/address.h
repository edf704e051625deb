/* Finds the address by which other hosts reach this one. */
#ifndef IO_ADDRESS_H
#define IO_ADDRESS_H

#include <stdbool.h>

struct pawl_err;

#define ADDRESS_MAX 64u /* bytes of an address, terminator included */

/* Finds the address of the interface that PAWL_IFNAME names; else of the interface that leads to
 * toward, a host or address that all callers know. The result is numeric, IPv4 or IPv6.
 * PAWL_EINVAL: there is no such interface, or it has no address; PAWL_ENOENT: nothing leads
 * there. */
int address_find(const char *route_to, char *address, struct pawl_err *err);
/* Finds this host's address where there is no host that all callers know: the address of the
 * interface that PAWL_IFNAME names; else one that this host's name stands for, or that leads out of
 * here, except addresses that only this host reaches. PAWL_EINVAL as above; PAWL_ENOENT: there is
 * none. */
int address_own(char *address, struct pawl_err *err);
/* Whether only this host reaches the address, or others only with an interface's name behind it. */
bool address_is_local(const char *address);

#endif
