/* Which of this host's addresses others reach it by. */
#ifndef BASE_ADDRESS_H
#define BASE_ADDRESS_H

#include <stdbool.h>

struct pawl_err;

#define ADDRESS_MAX 64u /* bytes of an address, terminator included */

/* Of the interface that PAWL_IFNAME names; else the one that leads toward a host or address, which
 * all who ask know. Numeric, IPv4 or IPv6. PAWL_EINVAL: there is no such interface, or it has no
 * address; PAWL_ENOENT: nothing leads there. */
int address_find(const char *toward, char *address, struct pawl_err *err);
/* Where there is nobody that all know: of the interface that PAWL_IFNAME names; else of the one
 * that this host's name means, or that leads out of here, but none that only this host reaches.
 * PAWL_EINVAL as above; PAWL_ENOENT: there is none. */
int address_own(char *address, struct pawl_err *err);
/* Only this host reaches it, or only with the name of an interface behind it. */
bool address_is_near(const char *address);

#endif
