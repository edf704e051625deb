/* Traces of a group's operations: see group_trace.h for the contract. */
#include "coll/group/group_trace.h"

#include "base/clock.h"
#include "base/crc.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/log.h"
#include "coll/group/trace.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINK_MIN (256u << 10) /* least bytes of a link record; the kernel buffers fewer at once */

struct group_trace {
	uint8_t *bytes; /* mapped file; TRACE_FILE_BYTES */
	uint64_t count; /* number of records written, ever */
};

/* ---- opening ---- */

/* Returns the number of the group: no other group has these endpoints. */
static uint64_t digest(const struct pawl_group *group, const char *const *endpoints)
{
	uint32_t high = 0;
	uint32_t low = 0;

	for (uint32_t r = 0; r < group->ranks; r++) {
		high = crc32c(high, endpoints[r], strlen(endpoints[r]));
		low = crc32_zip(low, endpoints[r], strlen(endpoints[r]));
	}
	return (uint64_t)high << 32 | low;
}

static void put_header(uint8_t *bytes, const struct pawl_group *group, uint64_t id)
{
	const char *job = getenv("PAWL_JOB_ID");
	struct trace_header header = {.group = id,
		.rank = group->rank,
		.ranks = group->ranks,
		.peers = group->peers,
		.host = group->topo.host_of[group->rank],
		.hosts = group->topo.hosts,
		.pid = (uint32_t)group->pid,
		.mono_ns = clock_mono_ns(),
		.wall_ns = clock_wall_ns()};

	gethostname(header.hostname, sizeof(header.hostname) - 1);
	snprintf(header.job, sizeof(header.job), "%s", job ? job : "");
	trace_header_encode(bytes, &header);
}

/* Makes, allocates and maps a file. Without the allocation, a full disk would end the process on
 * the first write to a page. */
static uint8_t *map_file(const char *path, struct pawl_err *err)
{
	int fd = FAULT_SYS("coll.trace", open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
	uint8_t *bytes = NULL;
	int sys;

	if (fd < 0) {
		pawl_err_sys(err, "%s", path);
		return NULL;
	}
	sys = FAULT_SYS("coll.trace", posix_fallocate(fd, 0, (off_t)TRACE_FILE_BYTES));
	if (sys == 0) {
		bytes = FAULT_SYS("coll.trace",
			mmap(NULL, TRACE_FILE_BYTES, PROT_READ | PROT_WRITE,
				MAP_SHARED | MAP_POPULATE, fd, 0));
		sys = errno;
	}
	if (bytes == NULL || bytes == MAP_FAILED) {
		errno = sys == -1 ? errno : sys;
		pawl_err_sys(err, "%s: %zu bytes", path, TRACE_FILE_BYTES);
		unlink(path);
		bytes = NULL;
	}
	close(fd);
	return bytes;
}

void group_trace_open(struct pawl_group *group, const char *const *endpoints)
{
	const char *folder = getenv("PAWL_TRACE");
	uint64_t id = digest(group, endpoints);
	struct group_trace *trace;
	char path[PATH_MAX];
	struct pawl_err err;

	if (!folder || *folder == '\0' || group->ranks == 1) {
		return;
	}
	trace = FAULT_MEM("coll.trace", calloc(1, sizeof(*trace)));
	if (!trace) {
		return;
	}
	snprintf(path, sizeof(path), "%s/group-%016" PRIx64 "-rank%u%s", folder, id, group->rank,
		TRACE_SUFFIX);
	mkdir(folder, 0777); /* may exist already; if it fails otherwise, open reports why */
	trace->bytes = map_file(path, &err);
	if (!trace->bytes) {
		log_line(LOG_WARNING, "collectives: nothing is traced: %s", err.msg);
		free(trace);
		return;
	}
	put_header(trace->bytes, group, id);
	pthread_mutex_lock(&group->state);
	group->stats.trace = trace;
	pthread_mutex_unlock(&group->state);
}

void group_trace_close(struct group_trace *trace)
{
	if (trace) {
		munmap(trace->bytes, TRACE_FILE_BYTES);
		free(trace);
	}
}

/* ---- recording ---- */

/* Writes a record, then the count: see trace.h. */
static void put_record(struct group_trace *trace, const struct trace_record *record)
{
	uint64_t place = trace->count % TRACE_CAP;
	uint64_t *count = (uint64_t *)(void *)(trace->bytes + TRACE_COUNT_AT);

	trace_record_encode(trace->bytes + TRACE_RECORDS_AT + place * TRACE_RECORD_BYTES, record,
		trace->count);
	trace->count++;
	__atomic_store_n(count, htole64(trace->count), __ATOMIC_RELEASE);
}

/* Sets all times but the last to the beginning. */
static void set_times(struct trace_record *record, int64_t from_ns, int64_t to_ns)
{
	for (int t = 0; t < TRACE_TIMES; t++) {
		record->at_ns[t] = t == TRACE_DONE ? to_ns : from_ns;
	}
}

static struct trace_record describe(enum trace_type type, const struct pawl_work *work,
	int64_t from_ns, int64_t to_ns)
{
	const struct pawl_coll_call *call = &work->call;
	struct trace_record record = {.type = type,
		.kind = call->kind,
		.op = call->op,
		.dtype = call->dtype,
		.mean = call->mean,
		.number = work->number,
		.peer = is_message(call) ? work->from : PAWL_ANY_RANK,
		.root = call->root,
		.bytes = call->len_bytes};

	set_times(&record, from_ns, to_ns);
	return record;
}

static void put_links(struct pawl_group *group, const struct pawl_work *work,
	const struct group_slot *slot)
{
	for (uint32_t p = 0; p < slot->exec.peers; p++) {
		const struct group_header *header = &slot->headers[p];
		struct trace_record record =
			describe(TRACE_LINK, work, header->from_ns, header->to_ns);

		if (header->sending_ns > 0 && slot->exec.send_total_bytes[p] >= LINK_MIN) {
			record.peer = p;
			record.bytes = slot->exec.send_total_bytes[p];
			record.busy_ns = header->sending_ns;
			put_record(group->stats.trace, &record);
		}
	}
}

void group_trace_done(struct pawl_group *group, struct pawl_work *work, int64_t first_ns)
{
	const struct group_slot *slot = is_message(&work->call) ? NULL : priv_of(work)->slot;
	int64_t from_ns = priv_of(work)->submitted_ns;
	struct trace_record record = describe(TRACE_OPERATION, work, from_ns,
		group->now_ns > from_ns ? group->now_ns : from_ns);

	if (slot) {
		const struct group_times *times = &slot->times;

		record.algorithm = slot->algorithm;
		record.peer = times->last;
		record.at_ns[TRACE_FIRST] = first_ns;
		record.at_ns[TRACE_BEGUN] = times->begun_ns;
		record.at_ns[TRACE_ALL_BEGUN] = times->all_begun_ns;
		record.at_ns[TRACE_REMOTE] = times->remote_ns > times->all_begun_ns
			? times->remote_ns
			: times->all_begun_ns;
		record.busy_ns = times->added_ns;
	}
	put_record(group->stats.trace, &record);
	if (slot && group->topo.hosts > 1) {
		put_links(group, work, slot);
	}
}

void group_trace_waited(struct pawl_group *group, const struct pawl_work *work, int64_t from_ns,
	int64_t to_ns)
{
	struct trace_record record = describe(TRACE_WAIT, work, from_ns, to_ns);

	put_record(group->stats.trace, &record);
}

void group_trace_step(struct pawl_group *group, uint64_t number, int64_t from_ns, int64_t to_ns,
	int64_t busy_ns, int64_t planned_ns)
{
	struct trace_record record = {.type = TRACE_STEP,
		.number = number,
		.peer = PAWL_ANY_RANK,
		.bytes = (uint64_t)planned_ns,
		.busy_ns = busy_ns};

	set_times(&record, from_ns, to_ns);
	pthread_mutex_lock(&group->state);
	if (group->stats.trace) {
		put_record(group->stats.trace, &record);
	}
	pthread_mutex_unlock(&group->state);
}
