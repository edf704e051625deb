/*
 * A bucket in a process of its own, for tests in Python and for benchmarks: the S3 server of the
 * tests, with a speed that is known, which counts requests, and does wrong what it is told to. An
 * argument is the address that it listens at, instead of 127.0.0.1. It prints its URL, and then
 * carries out commands, a line each, and answers each by a line:
 *
 *   set CONN_MIB LINK_MIB HOLD_MS   speeds of each connection and of all together, in MiB a second,
 *                                   and how long each request waits for its answer; 0: no limit
 *   drop 0|1                        whether only the length of long objects is kept: then it takes
 *                                   bytes, and stores none
 *   weather WAY PERCENT SEED        part of the requests goes wrong, in a way of s3_weather.h, or
 *                                   in "any"
 *   sessions S                      keys come from GET /creds, and are good for S seconds; 0: any
 *                                   keys are
 *   ignore 0|1                      whether conditions of PUTs are ignored
 *   fill N FOLDER                   puts N small objects, as a root with so many tags has them
 *   idle                            waits until all connections are closed
 *   reset                           begins to count anew
 *   counts                          requests by their kind, uploads that are open, blocks of
 *                                   Azure's that are in no blob, and seconds of CPU, as JSON
 */
#include "s3_server.h"
#include "s3_weather.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define MIB (1024.0 * 1024.0)

static struct s3_settings settings;
static struct s3_weather weather; /* the server's, while it is the hook's */

static double cpu_s(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
		(double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static void set(double conn_mib, double link_mib, int hold_ms)
{
	settings.hold_ms = hold_ms;
	settings.conn_bytes_s = (uint64_t)(conn_mib * MIB);
	settings.link_bytes_s = (uint64_t)(link_mib * MIB);
}

/* Returns false if there is no such way. */
static bool begin_weather(struct s3_server *server, const char *way, unsigned percent,
	uint64_t seed)
{
	const struct s3_weather_way *only = s3_weather_find(way);

	if (only == NULL && strcmp(way, "any") != 0) {
		return false;
	}
	settings.hook = NULL;
	s3_server_set(server, &settings); /* the hook is not running any more */
	weather = (struct s3_weather){{seed}, only, percent};
	settings.hook = s3_weather_blow;
	settings.user = &weather;
	return true;
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
		[S3_PARTS] = "parts",
		[S3_CREDS] = "creds",
	};
	struct s3_counts counts;

	s3_server_get_counts(server, &counts);
	printf("{\"cpu_s\": %.6f, \"open\": %u, \"blocks\": %u, \"spoiled\": %u, \"stale\": %u, "
	       "\"requests\": {\"all\": %u",
		cpu_s(), counts.uploads, counts.blocks, counts.spoiled, counts.stale, counts.all);
	for (unsigned kind = 0; kind < S3_KINDS; kind++) {
		if (names[kind] != NULL) {
			printf(", \"%s\": %u", names[kind], counts.of[kind]);
		}
	}
	printf("}}\n");
}

/* Changes how the server behaves. Returns false if the command is another one. */
static bool change(struct s3_server *server, const char *line)
{
	double conn_mib, link_mib;
	int hold_ms, yes;
	unsigned n;
	uint64_t seed;
	char way[32];

	if (sscanf(line, "set %lf %lf %d", &conn_mib, &link_mib, &hold_ms) == 3) {
		set(conn_mib, link_mib, hold_ms);
	} else if (sscanf(line, "drop %d", &yes) == 1) {
		settings.drops_bytes = yes != 0;
	} else if (sscanf(line, "ignore %d", &yes) == 1) {
		settings.ignores_conditions = yes != 0;
	} else if (sscanf(line, "sessions %u", &n) == 1) {
		settings.session_s = n;
	} else if (sscanf(line, "weather %31s %u %" SCNu64, way, &n, &seed) != 3 ||
		!begin_weather(server, way, n, seed)) {
		return false;
	}
	s3_server_set(server, &settings);
	return true;
}

/* Carries a command out. Returns false if there is none such. */
static bool obey(struct s3_server *server, const char *line)
{
	unsigned n;
	char folder[256];

	if (strcmp(line, "counts\n") == 0) {
		print_counts(server);
		return true;
	}
	if (sscanf(line, "fill %u %255s", &n, folder) == 2) {
		fill(server, n, folder);
	} else if (strcmp(line, "reset\n") == 0) {
		s3_server_reset(server);
	} else if (strcmp(line, "idle\n") == 0) {
		s3_server_wait_idle(server);
	} else if (!change(server, line)) {
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
