/*
 * How the ranks of a group find each other: by cards, which say what host a rank is on, and how it
 * is reached from there.
 *
 * A host is a kernel, with the process and network namespaces: what cannot open each other's
 * memory, or has another network, is another host.
 */
#include "base/err.h"
#include "base/fault.h"
#include "coll/group_impl.h"
#include "coll/shm.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CARD_KIND "pawl-1" /* the version of cards, and of all that is said afterwards */
#define HOST_MAX  96u      /* bytes of a host's name, terminator included */

/* "3f0c…:4026531836:4026531840" */
static int name_host(char *host, struct pawl_err *err)
{
	struct stat pid_ns;
	struct stat net_ns;
	char boot[64] = "";
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, boot, sizeof(boot) - 1) : -1;

	if (fd >= 0) {
		close(fd);
	}
	if (n <= 0 || stat("/proc/self/ns/pid", &pid_ns) != 0 ||
		stat("/proc/self/ns/net", &net_ns) != 0) {
		return pawl_err_sys(err, "collectives: find out which host this is");
	}
	boot[strcspn(boot, "\n")] = '\0';
	snprintf(host, HOST_MAX, "%s:%llu:%llu", boot, (unsigned long long)pid_ns.st_ino,
		(unsigned long long)net_ns.st_ino);
	return 0;
}

int pawl_group_open(struct pawl_group **out, uint32_t rank, uint32_t ranks, char *card,
	struct pawl_err *err)
{
	struct coll_port *port;
	char host[HOST_MAX];
	char name[COLL_SHM_NAME];
	int rv;

	if (rank >= ranks || ranks > COLL_RANKS_MAX) {
		return pawl_err_set(err, PAWL_EINVAL, "collectives: rank %u of %u; %u at most",
			rank, ranks, COLL_RANKS_MAX);
	}
	rv = name_host(host, err);
	if (rv == 0) {
		rv = coll_shm_open(&port, rank, ranks, name, err);
	}
	if (rv == 0) {
		rv = coll_group_make(out, rank, ranks, port, err);
	}
	if (rv == 0) {
		snprintf(card, PAWL_CARD_MAX, "%s %s %s", CARD_KIND, host, name);
	}
	return rv;
}

/* The host on a card, and where on it. */
static int read_card(const char *card, uint32_t rank, char *host, char *name, struct pawl_err *err)
{
	char kind[16];

	if (strlen(card) >= PAWL_CARD_MAX ||
		sscanf(card, "%15s %95s %63s", kind, host, name) != 3 ||
		strcmp(kind, CARD_KIND) != 0) {
		return pawl_err_set(err, PAWL_EINVAL,
			"collectives: rank %u says that it is at \"%.60s\": is it another version "
			"of Pawl?",
			rank, card);
	}
	return 0;
}

/* names: where each rank is reached; where: of its host, the least rank. */
static int read_cards(const char *const *cards, uint32_t ranks, char (*names)[COLL_SHM_NAME],
	uint32_t *where, struct pawl_err *err)
{
	char(*hosts)[HOST_MAX] = FAULT_MEM("coll.group", calloc(ranks, HOST_MAX));
	int rv = hosts ? 0 : pawl_err_set(err, PAWL_ENOMEM, "no memory for %u ranks", ranks);

	for (uint32_t r = 0; r < ranks && rv == 0; r++) {
		rv = read_card(cards[r], r, hosts[r], names[r], err);
		for (where[r] = 0; rv == 0 && strcmp(hosts[where[r]], hosts[r]) != 0; where[r]++) {
		}
		if (rv == 0 && where[r] != 0) {
			rv = pawl_err_set(err, PAWL_ENOTSUP,
				"collectives: ranks 0 and %u are on different hosts (or "
				"containers), "
				"and this version of Pawl reduces inside one",
				r);
		}
	}
	free(hosts);
	return rv;
}

int pawl_group_join(struct pawl_group *group, const char *const *cards, struct pawl_err *err)
{
	uint32_t n = group->ranks;
	char(*names)[COLL_SHM_NAME] = FAULT_MEM("coll.group", calloc(n, COLL_SHM_NAME));
	uint32_t *where = FAULT_MEM("coll.group", calloc(n, sizeof(*where)));
	const char **at = FAULT_MEM("coll.group", calloc(n, sizeof(*at)));
	int rv;

	if (!names || !where || !at) {
		rv = pawl_err_set(err, PAWL_ENOMEM, "no memory for %u ranks", n);
	} else {
		rv = read_cards(cards, n, names, where, err);
	}
	for (uint32_t r = 0; r < n && rv == 0; r++) {
		at[r] = names[r];
	}
	if (rv == 0) {
		rv = coll_shm_join(group->port, at, err);
	}
	if (rv == 0) {
		rv = coll_group_start(group, where, err);
	}
	free(names);
	free(where);
	free(at);
	return rv;
}
