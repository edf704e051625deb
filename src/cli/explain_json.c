/*
 * pawl explain: traces as chrome://tracing, and Perfetto, read them ("Trace Event Format").
 *
 * A process stands for a rank, and a thread for one of a group's channels. Messages, waits and
 * links may overlap: they are asynchronous events, in rows of their own.
 */
#include "cli/explain.h"

#include "base/crc.h"
#include "coll/group/group_call.h"
#include "coll/plan/cost.h"
#include "coll/plan/fold.h"
#include "coll/transport/transport.h"

#include <inttypes.h>
#include <string.h>

#define PIDS_MAX 10000000u /* process ids that each host gets: more than a kernel has */
#define HOSTS    1000u     /* numbers of hosts, which are digests of their names */
#define ROWS     8u        /* threads of a group */

/* The rank whose events are written. */
struct place {
	struct explain_json *json;         /* document being written */
	const struct trace_header *header; /* header of the rank's trace */
	int64_t base_ns; /* a record's time plus this is time since json's begin */
	uint64_t pid;    /* id of the rank's process in the document */
	unsigned tid;    /* id of the first row of the group */
	uint64_t id;     /* id of the next asynchronous event */
};

static FILE *begin_event(struct place *place, const char *phase, const char *name, unsigned tid)
{
	FILE *to = place->json->to;

	fprintf(to, "%s\n{\"ph\":\"%s\",\"name\":\"%s\",\"pid\":%" PRIu64 ",\"tid\":%u",
		place->json->has_events ? "," : "", phase, name, place->pid, tid);
	place->json->has_events = true;
	return to;
}

/* Writes a time in microseconds. */
static void put_time(FILE *to, const char *name, int64_t ns)
{
	fprintf(to, ",\"%s\":%" PRId64 ".%03d", name, ns / 1000, (int)(ns % 1000));
}

static void put_slice(struct place *place, const char *name, unsigned tid, int64_t from_ns,
	int64_t to_ns)
{
	FILE *to = begin_event(place, "X", name, tid);

	put_time(to, "ts", place->base_ns + from_ns);
	put_time(to, "dur", to_ns - from_ns);
}

static void put_phase(struct place *place, const struct trace_record *record, const char *name,
	enum trace_time from, enum trace_time to)
{
	unsigned tid = place->tid + (unsigned)(record->number % COLL_CHANNELS);

	if (record->at_ns[to] > record->at_ns[from]) {
		put_slice(place, name, tid, record->at_ns[from], record->at_ns[to]);
		fprintf(place->json->to, ",\"cat\":\"phase\"}");
	}
}

/* Writes both ends of an event that may overlap with others. */
static void put_async(struct place *place, const struct trace_record *record, const char *kind,
	const char *name)
{
	uint64_t id = place->id++;
	FILE *to;

	for (int end = 0; end < 2; end++) {
		to = begin_event(place, end ? "e" : "b", name, place->tid);
		fprintf(to, ",\"cat\":\"%s\",\"id\":\"%u.%" PRIu64 ".%" PRIu64 "\"", kind,
			place->json->groups, place->pid, id);
		put_time(to, "ts",
			place->base_ns + record->at_ns[end ? TRACE_DONE : TRACE_SUBMITTED]);
		fprintf(to, ",\"args\":{\"number\":%" PRIu64 ",\"bytes\":%" PRIu64 "}}",
			record->number, record->bytes);
	}
}

static void put_collective(struct place *place, const struct trace_record *record)
{
	unsigned tid = place->tid + (unsigned)(record->number % COLL_CHANNELS);
	char name[GROUP_CALL_TEXT];
	FILE *to = place->json->to;

	explain_name(record, name);
	put_slice(place, name, tid, record->at_ns[TRACE_FIRST], record->at_ns[TRACE_DONE]);
	fprintf(to,
		",\"cat\":\"collective\",\"args\":{\"group\":\"%016" PRIx64 "\",\"number\":%" PRIu64
		",\"bytes\":%" PRIu64 ",\"dtype\":\"%s\",\"way\":\"%s\"",
		place->header->group, record->number, record->bytes, coll_type_name(record->dtype),
		coll_algorithm_name(record->algorithm));
	if (record->peer != PAWL_ANY_RANK) {
		fprintf(to, ",\"last\":%u", record->peer);
		put_time(to, "late_us",
			record->at_ns[TRACE_ALL_BEGUN] - record->at_ns[TRACE_BEGUN]);
	}
	put_time(to, "queued_us", record->at_ns[TRACE_FIRST] - record->at_ns[TRACE_SUBMITTED]);
	put_time(to, "adding_us", record->busy_ns);
	fprintf(to, "}}");
	put_phase(place, record, "idle", TRACE_FIRST, TRACE_BEGUN);
	put_phase(place, record, "late ranks", TRACE_BEGUN, TRACE_ALL_BEGUN);
	put_phase(place, record, "network", TRACE_ALL_BEGUN, TRACE_REMOTE);
	put_phase(place, record, "memory", TRACE_REMOTE, TRACE_DONE);
}

static void put_record(struct place *place, const struct trace_record *record)
{
	char name[GROUP_CALL_TEXT];
	char text[GROUP_CALL_TEXT + 16];

	explain_name(record, name);
	if (record->type == TRACE_WAIT) {
		snprintf(text, sizeof(text), "wait for %s", name);
		put_async(place, record, "wait", text);
	} else if (record->type == TRACE_LINK) {
		bool server = record->peer >= place->header->ranks;

		snprintf(text, sizeof(text), "to %s %u", server ? "server" : "rank",
			server ? record->peer - place->header->ranks : record->peer);
		put_async(place, record, "link", text);
	} else if (record->type == TRACE_STEP) {
		put_async(place, record, "step", "step of a pipeline");
	} else if (record->kind >= PAWL_SEND) {
		put_async(place, record, "message", name);
	} else {
		put_collective(place, record);
	}
}

static void put_names(struct place *place)
{
	const struct trace_header *header = place->header;
	FILE *to = begin_event(place, "M", "process_name", 0);

	fprintf(to, ",\"args\":{\"name\":\"rank %u of %u on %s, process %u\"}}", header->rank,
		header->ranks, header->hostname, header->pid);
	for (unsigned c = 0; c < COLL_CHANNELS; c++) {
		to = begin_event(place, "M", "thread_name", place->tid + c);
		fprintf(to, ",\"args\":{\"name\":\"group %016" PRIx64 ", channel %u\"}}",
			header->group, c);
	}
}

void explain_json_begin(struct explain_json *json)
{
	fprintf(json->to, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[");
}

void explain_json_group(struct explain_json *json, const struct explain_group *group)
{
	json->groups++;
	for (uint32_t r = 0; r < group->ranks; r++) {
		const struct trace *trace = &group->traces[r];
		const struct trace_header *header = &trace->header;
		uint64_t host = crc32c(0, header->hostname, strlen(header->hostname)) % HOSTS;
		struct place place = {.json = json,
			.header = header,
			.base_ns = group->base_ns[r] - json->begin_ns,
			.pid = host * PIDS_MAX + header->pid,
			.tid = json->groups * ROWS};

		if (header->ranks == 0) {
			continue;
		}
		put_names(&place);
		for (size_t i = 0; i < trace->n; i++) {
			put_record(&place, &trace->records[i]);
		}
	}
}

bool explain_json_end(struct explain_json *json)
{
	fprintf(json->to, "\n]}\n");
	return fflush(json->to) == 0 && !ferror(json->to);
}
