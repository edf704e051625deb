/*
 * The API server of kube_server.h in a process of its own, for tests in Python. It prints its URL,
 * and then carries out commands, a line each, and answers "ok" to each:
 *
 *   compact    forgets all changes so far
 *   bookmark   sends one to all watches
 *   end        ends all watches
 */
#include "kube_server.h"

#include <stdio.h>
#include <string.h>

/* Returns false if there is no such command. */
static bool obey(struct kube_server *server, const char *line)
{
	if (strcmp(line, "compact\n") == 0) {
		kube_server_compact(server);
	} else if (strcmp(line, "bookmark\n") == 0) {
		kube_server_bookmark(server);
	} else if (strcmp(line, "end\n") == 0) {
		kube_server_end_watches(server);
	} else {
		return false;
	}
	return true;
}

int main(void)
{
	struct kube_server *server = kube_server_start();
	char line[64];
	int status = 0;

	printf("%s\n", kube_server_url(server));
	fflush(stdout);
	while (status == 0 && fgets(line, sizeof(line), stdin) != NULL) {
		if (obey(server, line)) {
			printf("ok\n");
			fflush(stdout);
		} else {
			fprintf(stderr, "kube_api: no such command: %s", line);
			status = 2;
		}
	}
	kube_server_stop(server);
	return status;
}
