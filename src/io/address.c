/* Addresses of this host: see address.h for the contract. */
#include "io/address.h"

#include "base/err.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

_Static_assert(ADDRESS_MAX >= INET6_ADDRSTRLEN + IF_NAMESIZE, "an address with its interface fits");

#define UNUSED_ADDRESS                                                                             \
	"192.0.2.1" /* an address that no host has (RFC 5737); nothing is sent there */

static bool write_address(const struct sockaddr *at, char *address)
{
	socklen_t len = at->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
						  : sizeof(struct sockaddr_in);

	return getnameinfo(at, len, address, ADDRESS_MAX, NULL, 0, NI_NUMERICHOST) == 0;
}

/* Finds an address of the interface, IPv4 before IPv6 in whatever order the system lists them. */
static int find_interface(const char *name, char *address, struct pawl_err *err)
{
	struct ifaddrs *all = NULL;
	bool found = false;

	if (getifaddrs(&all) != 0) {
		return pawl_err_sys(err, "list interfaces");
	}
	for (int family = AF_INET; !found; family = AF_INET6) {
		for (const struct ifaddrs *i = all; i && !found; i = i->ifa_next) {
			found = i->ifa_addr && i->ifa_addr->sa_family == family &&
				strcmp(i->ifa_name, name) == 0 &&
				write_address(i->ifa_addr, address);
		}
		if (family == AF_INET6) {
			break;
		}
	}
	freeifaddrs(all);
	return found ? 0
		     : pawl_err_set(err, PAWL_EINVAL,
			       "PAWL_IFNAME=%s: there is no such interface, or it has "
			       "no address",
			       name);
}

/* Finds the own address on the route to a host. Nothing is sent: a connected datagram socket knows
 * the route. */
static bool find_route(const struct addrinfo *to, char *address)
{
	struct sockaddr_storage own = {0};
	socklen_t len = sizeof(own);
	int fd = socket(to->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool found = fd >= 0 && connect(fd, to->ai_addr, to->ai_addrlen) == 0 &&
		getsockname(fd, (struct sockaddr *)&own, &len) == 0 &&
		write_address((struct sockaddr *)&own, address);

	if (fd >= 0) {
		close(fd);
	}
	return found;
}

int address_find(const char *route_to, char *address, struct pawl_err *err)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_DGRAM};
	const char *name = getenv("PAWL_IFNAME");
	struct addrinfo *to = NULL;
	bool found = false;
	int rv;

	if (name && *name) {
		return find_interface(name, address, err);
	}
	rv = getaddrinfo(route_to, "9", &hints, &to);
	if (rv != 0) {
		return pawl_err_set(err, PAWL_ENOENT, "%s: %s", route_to, gai_strerror(rv));
	}
	for (const struct addrinfo *i = to; i && !found; i = i->ai_next) {
		found = find_route(i, address);
	}
	freeaddrinfo(to);
	return found ? 0
		     : pawl_err_set(err, PAWL_ENOENT,
			       "no interface leads to %s: name one with "
			       "PAWL_IFNAME",
			       route_to);
}

bool address_is_local(const char *address)
{
	return strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0 ||
		strncmp(address, "fe80:", 5) == 0;
}

int address_own(char *address, struct pawl_err *err)
{
	const char *interface = getenv("PAWL_IFNAME");
	char name[256] = "";
	const char *const targets[] = {name, UNUSED_ADDRESS};
	char found[ADDRESS_MAX];
	int rv;

	if (interface && *interface) {
		return find_interface(interface, address, err);
	}
	gethostname(name, sizeof(name) - 1);
	for (size_t i = 0; i < sizeof(targets) / sizeof(targets[0]); i++) {
		rv = address_find(targets[i], found, err);
		if (rv == 0 && !address_is_local(found)) {
			memcpy(address, found, sizeof(found));
			return 0;
		}
	}
	return pawl_err_set(err, PAWL_ENOENT,
		"no address is known by which other hosts reach this one: name an interface with "
		"PAWL_IFNAME");
}
