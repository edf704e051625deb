/* Encodes orders and states: see order.h. A state has a fixed size and a checksum, and is written
 * with one call. So a reader detects a state that is being written. */
#include "engine/local/order.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/crc.h"
#include "base/err.h"
#include "base/fault.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

/* Runs of earlier versions may still live: 6 has no boot, 5 no bounds and no priority either, 4 no
 * key either. */
#define ORDER_VERSION 7u
#define ORDER_OLDEST  4u
#define STATE_VERSION 1u
#define STATE_BYTES   512u /* size of the state file */

#define STATE_FIELDS (4u + 4 + 1 + 8 + 8 + 1 + 4 + 4) /* bytes before the text of why */
_Static_assert(STATE_FIELDS + ORDER_TEXT_MAX <= STATE_BYTES, "a state fits its file");
_Static_assert(RUN_ENDED <= UINT8_MAX, "a phase is stored as a byte");
_Static_assert(sizeof(struct run_request) == 24, "shepherds of other versions read it");

void order_encode(struct wire_out *out, const struct order *o)
{
	ASSERT(o->nodes_n <= ORDER_NODES_MAX);
	wire_put_u32(out, ORDER_VERSION);
	wire_put_u64(out, o->job);
	wire_put_u64(out, o->generation);
	wire_put_u32(out, o->starts);
	wire_put_u32(out, o->uid);
	wire_put_u32(out, o->gid);
	wire_put_str(out, o->user);
	wire_put_str(out, o->home);
	wire_put_str(out, o->shell);
	wire_put_str(out, o->run_dir);
	wire_put_str(out, o->job_dir);
	wire_put_str(out, o->task);
	wire_put_str(out, o->cluster);
	wire_put_str(out, o->supervisor);
	wire_put_str(out, o->space);
	wire_put_str(out, o->scratch);
	wire_put_str(out, o->key);
	wire_put_u32(out, o->owner);
	wire_put_u32(out, o->least);
	wire_put_u32(out, o->most);
	wire_put_u32(out, (uint32_t)o->priority);
	wire_put_str(out, o->boot);
	wire_put_u64(out, (uint64_t)o->grace_ns);
	wire_put_u64(out, o->nofile_limit);
	wire_put_u32(out, o->nodes_n);
	for (uint32_t i = 0; i < o->nodes_n; i++) {
		wire_put_str(out, o->nodes[i].name);
		wire_put_u32(out, o->nodes[i].replicas);
	}
	wire_put_blob(out, o->submission, o->submission_bytes);
}

int order_decode(struct order *o, const void *bytes, size_t len_bytes, struct pawl_err *err)
{
	struct wire_in in;
	uint32_t version;

	memset(o, 0, sizeof(*o));
	wire_in_init(&in, bytes, len_bytes);
	version = wire_get_u32(&in);
	o->job = wire_get_u64(&in);
	o->generation = wire_get_u64(&in);
	o->starts = wire_get_u32(&in);
	o->uid = wire_get_u32(&in);
	o->gid = wire_get_u32(&in);
	wire_get_str(&in, o->user, sizeof(o->user));
	wire_get_str(&in, o->home, sizeof(o->home));
	wire_get_str(&in, o->shell, sizeof(o->shell));
	wire_get_str(&in, o->run_dir, sizeof(o->run_dir));
	wire_get_str(&in, o->job_dir, sizeof(o->job_dir));
	wire_get_str(&in, o->task, sizeof(o->task));
	wire_get_str(&in, o->cluster, sizeof(o->cluster));
	wire_get_str(&in, o->supervisor, sizeof(o->supervisor));
	wire_get_str(&in, o->space, sizeof(o->space));
	wire_get_str(&in, o->scratch, sizeof(o->scratch));
	o->owner = o->uid;
	if (version >= 5) {
		wire_get_str(&in, o->key, sizeof(o->key));
		o->owner = wire_get_u32(&in);
	}
	if (version >= 6) {
		o->least = wire_get_u32(&in);
		o->most = wire_get_u32(&in);
		o->priority = (int32_t)wire_get_u32(&in);
	}
	if (version >= 7) {
		wire_get_str(&in, o->boot, sizeof(o->boot));
	}
	o->grace_ns = (int64_t)wire_get_u64(&in);
	o->nofile_limit = wire_get_u64(&in);
	o->nodes_n = wire_get_u32(&in);
	in.failed = in.failed || version < ORDER_OLDEST || version > ORDER_VERSION ||
		o->least > o->most || o->most > CORE_MOST_MAX || o->nodes_n > ORDER_NODES_MAX;
	for (uint32_t i = 0; i < o->nodes_n && !in.failed; i++) {
		wire_get_str(&in, o->nodes[i].name, sizeof(o->nodes[i].name));
		o->nodes[i].replicas = wire_get_u32(&in);
	}
	o->submission = wire_get_blob(&in, &o->submission_bytes);
	if (!wire_in_done(&in) || o->nodes_n == 0) {
		return pawl_err_set(err, PAWL_ECORRUPT, "the order of a run is malformed");
	}
	return 0;
}

static int read_all(int fd, struct wire_out *bytes, const char *path, struct pawl_err *err)
{
	uint8_t part[4096];
	ssize_t n;

	while ((n = read(fd, part, sizeof(part))) > 0 && bytes->len_bytes < ORDER_BYTES_MAX) {
		wire_put_raw(bytes, part, (size_t)n);
	}
	if (bytes->failed) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for the order of a run");
	}
	return n < 0 ? pawl_err_sys(err, "%s", path)
		: n > 0
		? pawl_err_set(err, PAWL_ECORRUPT, "%s is longer than an order may be", path)
		: 0;
}

int order_load(struct order *order, struct wire_out *bytes, const char *run_dir,
	struct pawl_err *err)
{
	char path[PATH_MAX + 16];
	int fd;
	int rv;

	snprintf(path, sizeof(path), "%s/order", run_dir);
	fd = FAULT_SYS("order.load", open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
	if (fd < 0) {
		return pawl_err_sys(err, "%s", path);
	}
	rv = read_all(fd, bytes, path, err);
	close(fd);
	if (rv == 0) {
		rv = order_decode(order, bytes->bytes, bytes->len_bytes, err);
	}
	return rv == PAWL_ECORRUPT ? pawl_err_prefix(err, rv, "%s", path) : rv;
}

int order_make_key(char key[ORDER_KEY_CHARS + 1u], struct pawl_err *err)
{
	uint8_t random[ORDER_KEY_CHARS / 2];

	if (FAULT_SYS("order.key", getrandom(random, sizeof(random), 0)) !=
		(ssize_t)sizeof(random)) {
		return pawl_err_sys(err, "random bytes for a run's key");
	}
	for (size_t i = 0; i < sizeof(random); i++) {
		snprintf(key + 2 * i, 3, "%02x", random[i]);
	}
	return 0;
}

uint32_t order_replicas(const struct order *o)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < o->nodes_n; i++) {
		n += o->nodes[i].replicas;
	}
	return n;
}

int run_state_save(int fd, const struct run_state *state, struct pawl_err *err)
{
	uint8_t record[STATE_BYTES] = {0};
	struct wire_out out = {NULL};
	int rv = 0;

	wire_put_u32(&out, STATE_VERSION);
	wire_put_u8(&out, (uint8_t)state->phase);
	wire_put_u64(&out, state->generation);
	wire_put_u64(&out, state->refused);
	wire_put_u8(&out, state->by_itself);
	wire_put_u32(&out, (uint32_t)state->exit_code);
	wire_put_str(&out, state->why);
	if (out.failed) {
		wire_out_deinit(&out);
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for the state of a run");
	}
	ASSERT(4 + out.len_bytes <= sizeof(record));
	memcpy(record + 4, out.bytes, out.len_bytes);
	wire_out_reset(&out);
	wire_put_u32(&out, crc32c(0, record + 4, sizeof(record) - 4));
	memcpy(record, out.bytes, 4);
	if (FAULT_SYS("run.state", pwrite(fd, record, sizeof(record), 0)) !=
			(ssize_t)sizeof(record) ||
		(state->phase == RUN_ENDED && FAULT_SYS("run.state", fdatasync(fd)) != 0)) {
		rv = pawl_err_sys(err, "write the state of a run");
	}
	wire_out_deinit(&out);
	return rv;
}

int run_state_load(int fd, struct run_state *state, struct pawl_err *err)
{
	uint8_t record[STATE_BYTES];
	struct run_state found = {0};
	struct wire_in in;
	ssize_t got = FAULT_SYS("run.load", pread(fd, record, sizeof(record), 0));

	if (fd >= 0 && got < 0) {
		return pawl_err_sys(err, "read the state of a run");
	}
	wire_in_init(&in, record, got == (ssize_t)sizeof(record) ? sizeof(record) : 0);
	if (wire_get_u32(&in) == 0 || in.failed) {
		return pawl_err_set(err, PAWL_ECORRUPT, "a run has no state");
	}
	wire_in_init(&in, record, sizeof(record));
	if (wire_get_u32(&in) != crc32c(0, record + 4, sizeof(record) - 4) ||
		wire_get_u32(&in) != STATE_VERSION) {
		return pawl_err_set(err, PAWL_ECORRUPT,
			"the state of a run has a wrong checksum or version");
	}
	found.phase = (enum run_phase)wire_get_u8(&in);
	found.generation = wire_get_u64(&in);
	found.refused = wire_get_u64(&in);
	found.by_itself = wire_get_u8(&in) != 0;
	found.exit_code = (int)wire_get_u32(&in);
	wire_get_str(&in, found.why, sizeof(found.why));
	if (in.failed || found.phase > RUN_ENDED) {
		return pawl_err_set(err, PAWL_ECORRUPT, "the state of a run is malformed");
	}
	*state = found;
	return 0;
}

void order_name_task(char task[ORDER_TEXT_MAX], const struct core_job *job, int64_t wall_ns)
{
	time_t seconds = (time_t)(wall_ns / NS_PER_S);
	struct tm tm;
	char stamp[64];

	gmtime_r(&seconds, &tm);
	strftime(stamp, sizeof(stamp), "%Y-%m-%d-%H-%M-%S", &tm);
	snprintf(task, ORDER_TEXT_MAX, "pawl-%s-%06lld_%s_%llu-0", stamp,
		(long long)(wall_ns % NS_PER_S / 1000), job->request.name,
		(unsigned long long)job->id);
}
