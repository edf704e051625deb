/*
 * A bucket whose speed is known: the tests' S3 server in a process of its own, for bench/bucket.py
 * and bench/replicate.py. An argument is the address that it listens at, instead of 127.0.0.1. It
 * prints its URL, and then carries out commands, a line each, and answers each by a line:
 *
 *   set CONN_MIB LINK_MIB HOLD_MS   speeds of each connection and of all together, in MiB a second,
 *                                   and how long each request waits for its answer; 0: no limit
 *   fill N FOLDER                   puts N small objects, as a root with so many tags has them
 *   reset                           begins to count anew
 *   counts                          requests by their kind, and seconds of CPU, as JSON
 *
 * Of long objects it keeps the length alone: it is to take bytes, and not to store them.
 */
#include "s3_server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define MIB (1024.0 * 1024.0)

static double cpu_s(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
		(double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static void set(struct s3_server *server, double conn_mib, double link_mib, int hold_ms)
{
	const struct s3_settings settings = {.drops_bytes = true,
		.hold_ms = hold_ms,
		.conn_bytes_s = (uint64_t)(conn_mib * MIB),
		.link_bytes_s = (uint64_t)(link_mib * MIB)};

	s3_server_set(server, &settings);
}

static void fill(struct s3_server *server, unsigned n, const char *folder)
{
	for (unsigned i = 1; i <= n; i++) {
		char key[512];

		snprintf(key, sizeof(key), "%s/global_step%u", folder, i);
		s3_server_put(server, key, "x", 1);
	}
}

static void print_counts(struct s3_server *server)
{
	static const char *const names[S3_KINDS] = {
		[S3_PUT] = "put",
		[S3_GET] = "get",
		[S3_HEAD] = "head",
		[S3_DELETE] = "delete",
		[S3_LIST] = "list",
		[S3_BEGIN] = "begin",
		[S3_PART_PUT] = "part",
		[S3_COMPLETE] = "complete",
		[S3_ABORT] = "abort",
		[S3_UPLOADS] = "uploads",
	};
	struct s3_counts counts;

	s3_server_get_counts(server, &counts);
	printf("{\"cpu_s\": %.6f, \"requests\": {\"all\": %u", cpu_s(), counts.all);
	for (unsigned kind = 0; kind < S3_KINDS; kind++) {
		if (names[kind] != NULL) {
			printf(", \"%s\": %u", names[kind], counts.of[kind]);
		}
	}
	printf("}}\n");
}

/* Carries a command out. Returns false if there is none such. */
static bool obey(struct s3_server *server, const char *line)
{
	double conn_mib, link_mib;
	int hold_ms;
	unsigned n;
	char folder[256];

	if (sscanf(line, "set %lf %lf %d", &conn_mib, &link_mib, &hold_ms) == 3) {
		set(server, conn_mib, link_mib, hold_ms);
	} else if (sscanf(line, "fill %u %255s", &n, folder) == 2) {
		fill(server, n, folder);
	} else if (strcmp(line, "reset\n") == 0) {
		s3_server_reset(server);
	} else if (strcmp(line, "counts\n") == 0) {
		print_counts(server);
		return true;
	} else {
		return false;
	}
	printf("{}\n");
	return true;
}

int main(int argc, char **argv)
{
	struct s3_server *server = argc > 1 ? s3_server_start_at(argv[1]) : s3_server_start();
	char line[512];
	int status = 0;

	set(server, 0, 0, 0);
	printf("%s\n", s3_server_endpoint(server));
	fflush(stdout);
	while (status == 0 && fgets(line, sizeof(line), stdin) != NULL) {
		if (!obey(server, line)) {
			fprintf(stderr, "bucket_server: no such command: %s", line);
			status = 2;
		}
		fflush(stdout);
	}
	s3_server_stop(server);
	return status;
}
