/* Finds a free port: see run_port.h. */
#include "launch/run_port.h"

#include "base/err.h"
#include "base/fault.h"

#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int run_port_hold(int *fd, const char *address, uint32_t *port, struct pawl_err *err)
{
	bool six = strchr(address, ':') != NULL;
	struct sockaddr_in6 at6 = {.sin6_family = AF_INET6};
	struct sockaddr_in at4 = {.sin_family = AF_INET};
	struct sockaddr *at = six ? (struct sockaddr *)&at6 : (struct sockaddr *)&at4;
	socklen_t len = six ? sizeof(at6) : sizeof(at4);
	const int yes = 1;

	if (*fd >= 0) {
		close(*fd);
	}
	*fd = FAULT_SYS("run.port", socket(at->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
	if (*fd < 0 || setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) != 0 ||
		bind(*fd, at, len) != 0 || getsockname(*fd, at, &len) != 0) {
		return pawl_err_sys(err, "find a free port");
	}
	*port = ntohs(six ? at6.sin6_port : at4.sin_port);
	return 0;
}

int run_port_find(uint32_t *port, struct pawl_err *err)
{
	int fd = -1;
	int rv = run_port_hold(&fd, "0.0.0.0", port, err);

	if (fd >= 0) {
		close(fd);
	}
	return rv;
}
