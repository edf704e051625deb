/* Encodes fields one after the other, behind a magic number, a version and a checksum: see
 * slurm_form.h. */
#include "engine/slurm/slurm_form.h"

#include "base/assert.h"
#include "base/crc.h"
#include "base/err.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERSION      3u
#define WANT_MAGIC   0x544e4157u /* "WANT" */
#define HAVE_MAGIC   0x45564148u /* "HAVE" */
#define RECORD_MAGIC 0x534a5753u /* "SWJS" */
#define HEADER_BYTES 12u

_Static_assert(SLURM_PILOT_LEFT <= UINT8_MAX && SLURM_ENDED <= UINT8_MAX, "stored as bytes");
_Static_assert(SLURM_END_NODE_LOST <= UINT8_MAX && CORE_END_UNKNOWN <= UINT8_MAX,
	"stored as bytes");

static void begin(struct wire_out *out, uint32_t magic)
{
	wire_out_reset(out);
	wire_put_u32(out, magic);
	wire_put_u32(out, VERSION);
	wire_put_u32(out, 0);
}

static void finish(struct wire_out *out)
{
	if (!out->failed) {
		ASSERT(out->len_bytes >= HEADER_BYTES); /* begin has written it */
		wire_patch_u32(out, 8,
			crc32c(0, out->bytes + HEADER_BYTES, out->len_bytes - HEADER_BYTES));
	}
}

static int open_form(struct wire_in *in, const void *bytes, size_t len_bytes, uint32_t magic,
	struct pawl_err *err)
{
	uint32_t version;
	uint32_t crc;

	wire_in_init(in, bytes, len_bytes);
	if (wire_get_u32(in) != magic) {
		return pawl_err_set(err, PAWL_ECORRUPT, "the file is of another kind");
	}
	version = wire_get_u32(in);
	if (!in->failed && version != VERSION) {
		return pawl_err_set(err, PAWL_ECORRUPT,
			"the file has version %u, and this Pawl reads version %u: all nodes must "
			"run the same Pawl",
			version, VERSION);
	}
	crc = wire_get_u32(in);
	if (in->failed || crc != crc32c(0, in->at, wire_in_left(in))) {
		return pawl_err_set(err, PAWL_ECORRUPT, "the file has a wrong checksum");
	}
	return 0;
}

static int close_form(const struct wire_in *in, struct pawl_err *err)
{
	return wire_in_done(in) ? 0
				: pawl_err_set(err, PAWL_ECORRUPT, "the file has malformed fields");
}

static bool get_flag(struct wire_in *in)
{
	uint8_t v = wire_get_u8(in);

	in->failed = in->failed || v > 1;
	return v == 1;
}

static uint8_t get_kind(struct wire_in *in, uint8_t most)
{
	uint8_t v = wire_get_u8(in);

	in->failed = in->failed || v > most;
	return in->failed ? 0 : v;
}

/* Reads the number of items, each of which takes at least least_bytes, and allocates them. NULL: in
 * has failed, or out of memory. */
static void *get_room(struct wire_in *in, uint32_t *n, uint32_t most, size_t least_bytes,
	size_t item_bytes)
{
	void *room;

	*n = wire_get_u32(in);
	if (in->failed || *n > most || *n * least_bytes > wire_in_left(in)) {
		in->failed = true;
		*n = 0;
		return NULL;
	}
	room = calloc(*n > 0 ? *n : 1, item_bytes);
	*n = room ? *n : 0;
	return room;
}

void slurm_pilot_name(char name[CORE_NAME_MAX], const struct slurm_have *have)
{
	char number[40];
	size_t len;

	len = (size_t)snprintf(number, sizeof(number), ".%" PRIu64, have->slurm_job);
	if (have->restart > 0) {
		len += (size_t)snprintf(number + len, sizeof(number) - len, ".%u", have->restart);
	}
	_Static_assert(sizeof(number) < CORE_NAME_MAX, "a number leaves room for a name");
	ASSERT(len < sizeof(number));
	snprintf(name, CORE_NAME_MAX, "%.*s%s", (int)(CORE_NAME_MAX - 1 - len), have->host, number);
}

/* ---- programs ---- */

static void put_text(struct wire_out *out, const char *text)
{
	wire_put_blob(out, text ? text : "", text ? (uint32_t)strlen(text) + 1 : 1);
}

void slurm_program_encode(const struct slurm_program *program, struct wire_out *out)
{
	const struct wire_out *const lists[] = {&program->mounts, &program->setup, &program->run,
		&program->scale, &program->setup_env, &program->env};

	put_text(out, program->cwd);
	put_text(out, program->log);
	put_text(out, program->membership_path);
	put_text(out, program->scratch);
	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
		out->failed = out->failed || lists[i]->failed;
		wire_put_blob(out, lists[i]->bytes, (uint32_t)lists[i]->len_bytes);
	}
}

static const char *get_text(struct wire_in *in)
{
	uint32_t len_bytes;
	const uint8_t *text = wire_get_blob(in, &len_bytes);

	if (!text || len_bytes == 0 || memchr(text, 0, len_bytes) != text + len_bytes - 1) {
		in->failed = true;
		return NULL;
	}
	return (const char *)text;
}

/* Reads a list as a NULL-terminated array. *memory becomes false if out of memory. */
static char **get_list(struct wire_in *in, bool *memory)
{
	uint32_t len_bytes;
	const uint8_t *text = wire_get_blob(in, &len_bytes);
	uint32_t n = 0;
	char **list;

	for (uint32_t i = 0; text && i < len_bytes; i++) {
		n += text[i] == 0;
	}
	if (!text || n > SLURM_ARGS_MAX || (len_bytes > 0 && text[len_bytes - 1] != 0)) {
		in->failed = true;
		return NULL;
	}
	list = calloc(n + 1, sizeof(*list));
	*memory = *memory && list;
	for (uint32_t i = 0; list && i < n; i++) {
		list[i] = (char *)(uintptr_t)text;
		text += strlen(list[i]) + 1;
	}
	return list;
}

int slurm_program_decode(const void *bytes, size_t len_bytes, struct slurm_program_view *view,
	struct pawl_err *err)
{
	struct wire_in in;
	bool memory = true;

	wire_in_init(&in, bytes, len_bytes);
	view->cwd = get_text(&in);
	view->log = get_text(&in);
	view->membership_path = get_text(&in);
	view->scratch = get_text(&in);
	view->mounts = get_list(&in, &memory);
	view->setup = get_list(&in, &memory);
	view->run = get_list(&in, &memory);
	view->scale = get_list(&in, &memory);
	view->setup_env = get_list(&in, &memory);
	view->env = get_list(&in, &memory);
	if (!wire_in_done(&in) || !memory || !view->run[0]) {
		slurm_program_view_deinit(view);
		return memory ? pawl_err_set(err, PAWL_ECORRUPT, "a program has malformed fields")
			      : pawl_err_set(err, PAWL_ENOMEM, "out of memory");
	}
	return 0;
}

void slurm_program_view_deinit(struct slurm_program_view *view)
{
	free(view->mounts);
	free(view->setup);
	free(view->run);
	free(view->scale);
	free(view->setup_env);
	free(view->env);
	*view = (struct slurm_program_view){0};
}

/* ---- want ---- */

void slurm_want_encode(const struct slurm_want *want, struct wire_out *out)
{
	begin(out, WANT_MAGIC);
	wire_put_u8(out, want->leave);
	wire_put_u32(out, want->slots);
	wire_put_u32(out, want->parts_n);
	for (uint32_t i = 0; i < want->parts_n; i++) {
		const struct slurm_want_part *part = &want->parts[i];

		wire_put_u64(out, part->job);
		wire_put_u64(out, part->generation);
		wire_put_u64(out, part->sizing);
		wire_put_u32(out, part->slots);
		wire_put_u8(out, part->leave);
		wire_put_u8(out, part->stop);
		wire_put_u64(out, (uint64_t)part->grace_ns);
		wire_put_blob(out, part->program, part->len_bytes);
	}
	finish(out);
}

int slurm_want_decode(const void *bytes, size_t len_bytes, struct slurm_want *want,
	struct pawl_err *err)
{
	struct wire_in in;
	int rv = open_form(&in, bytes, len_bytes, WANT_MAGIC, err);

	*want = (struct slurm_want){0};
	if (rv != 0) {
		return rv;
	}
	want->leave = get_flag(&in);
	want->slots = wire_get_u32(&in);
	in.failed = in.failed || want->slots > CORE_SLOTS_MAX;
	want->parts = get_room(&in, &want->parts_n, SLURM_PARTS_MAX, 42, sizeof(*want->parts));
	if (!want->parts && !in.failed) {
		return pawl_err_set(err, PAWL_ENOMEM, "out of memory");
	}
	for (uint32_t i = 0; i < want->parts_n; i++) {
		struct slurm_want_part *part = &want->parts[i];

		part->job = wire_get_u64(&in);
		part->generation = wire_get_u64(&in);
		part->sizing = wire_get_u64(&in);
		part->slots = wire_get_u32(&in);
		part->leave = get_flag(&in);
		part->stop = get_flag(&in);
		part->grace_ns = (int64_t)wire_get_u64(&in);
		part->program = wire_get_blob(&in, &part->len_bytes);
		in.failed = in.failed || part->grace_ns < 0 || part->slots > CORE_SLOTS_MAX;
	}
	rv = close_form(&in, err);
	if (rv != 0) {
		free(want->parts);
		*want = (struct slurm_want){0};
	}
	return rv;
}

/* ---- have ---- */

void slurm_have_encode(const struct slurm_have *have, struct wire_out *out)
{
	begin(out, HAVE_MAGIC);
	wire_put_u64(out, have->slurm_job);
	wire_put_u32(out, have->restart);
	wire_put_str(out, have->host);
	wire_put_str(out, have->address);
	wire_put_u64(out, have->scratch_bytes);
	wire_put_u8(out, (uint8_t)have->state);
	wire_put_u64(out, (uint64_t)have->remaining_ns);
	wire_put_u32(out, have->parts_n);
	for (uint32_t i = 0; i < have->parts_n; i++) {
		const struct slurm_have_part *part = &have->parts[i];

		wire_put_u64(out, part->job);
		wire_put_u64(out, part->generation);
		wire_put_u64(out, part->sized);
		wire_put_u64(out, part->refused_sizing);
		wire_put_u8(out, (uint8_t)part->state);
		wire_put_u8(out, (uint8_t)part->end_cause);
		wire_put_u32(out, (uint32_t)part->exit_code);
	}
	finish(out);
}

int slurm_have_decode(const void *bytes, size_t len_bytes, struct slurm_have *have,
	struct pawl_err *err)
{
	struct wire_in in;
	int rv = open_form(&in, bytes, len_bytes, HAVE_MAGIC, err);

	*have = (struct slurm_have){0};
	if (rv != 0) {
		return rv;
	}
	have->slurm_job = wire_get_u64(&in);
	have->restart = wire_get_u32(&in);
	wire_get_str(&in, have->host, sizeof(have->host));
	wire_get_str(&in, have->address, sizeof(have->address));
	have->scratch_bytes = wire_get_u64(&in);
	have->state = (enum slurm_pilot_state)get_kind(&in, SLURM_PILOT_LEFT);
	have->remaining_ns = (int64_t)wire_get_u64(&in);
	in.failed = in.failed || have->remaining_ns < 0;
	have->parts = get_room(&in, &have->parts_n, SLURM_PARTS_MAX, 38, sizeof(*have->parts));
	if (!have->parts && !in.failed) {
		return pawl_err_set(err, PAWL_ENOMEM, "out of memory");
	}
	for (uint32_t i = 0; i < have->parts_n; i++) {
		struct slurm_have_part *part = &have->parts[i];

		part->job = wire_get_u64(&in);
		part->generation = wire_get_u64(&in);
		part->sized = wire_get_u64(&in);
		part->refused_sizing = wire_get_u64(&in);
		part->state = (enum slurm_part_state)get_kind(&in, SLURM_ENDED);
		part->end_cause = (enum slurm_end_cause)get_kind(&in, SLURM_END_NODE_LOST);
		part->exit_code = (int32_t)wire_get_u32(&in);
	}
	rv = close_form(&in, err);
	if (rv != 0) {
		free(have->parts);
		*have = (struct slurm_have){0};
	}
	return rv;
}

/* ---- records ---- */

void slurm_record_encode(const struct slurm_record *record, struct wire_out *out)
{
	begin(out, RECORD_MAGIC);
	wire_put_u64(out, record->job);
	wire_put_u64(out, record->generation);
	wire_put_u64(out, record->rescale);
	wire_put_u64(out, record->rescaled);
	wire_put_u8(out, record->dynamic_nodes);
	wire_put_u8(out, record->elastic);
	wire_put_u8(out, record->runs);
	wire_put_u64(out, record->stopped);
	wire_put_u8(out, record->over);
	wire_put_u8(out, record->stop_requested);
	wire_put_u8(out, (uint8_t)record->end_cause);
	wire_put_u32(out, (uint32_t)record->exit_code);
	wire_put_u64(out, (uint64_t)record->over_wall_ns);
	wire_put_u64(out, (uint64_t)record->grace_ns);
	wire_put_u32(out, record->nodes_n);
	for (uint32_t i = 0; i < record->nodes_n; i++) {
		wire_put_str(out, record->nodes[i].node);
		wire_put_u32(out, record->nodes[i].replicas);
		wire_put_u64(out, record->nodes[i].sizing);
		wire_put_u32(out, record->nodes[i].number);
		wire_put_u8(out, record->nodes[i].joins);
		wire_put_u8(out, record->nodes[i].leaves);
		wire_put_blob(out, record->nodes[i].program, record->nodes[i].len_bytes);
	}
	finish(out);
}

/* Returns false if out of memory. */
static bool get_job_node(struct wire_in *in, struct slurm_job_node *job_node)
{
	const uint8_t *program;

	wire_get_str(in, job_node->node, sizeof(job_node->node));
	job_node->replicas = wire_get_u32(in);
	job_node->sizing = wire_get_u64(in);
	job_node->number = wire_get_u32(in);
	job_node->joins = get_flag(in);
	job_node->leaves = get_flag(in);
	program = wire_get_blob(in, &job_node->len_bytes);
	if (in->failed) {
		return true;
	}
	job_node->program = malloc(job_node->len_bytes > 0 ? job_node->len_bytes : 1);
	if (job_node->program) {
		memcpy(job_node->program, program, job_node->len_bytes);
	}
	return job_node->program != NULL;
}

int slurm_record_decode(const void *bytes, size_t len_bytes, struct slurm_record *record,
	struct pawl_err *err)
{
	struct wire_in in;
	int rv = open_form(&in, bytes, len_bytes, RECORD_MAGIC, err);

	*record = (struct slurm_record){0};
	if (rv != 0) {
		return rv;
	}
	record->job = wire_get_u64(&in);
	record->generation = wire_get_u64(&in);
	record->rescale = wire_get_u64(&in);
	record->rescaled = wire_get_u64(&in);
	record->dynamic_nodes = get_flag(&in);
	record->elastic = get_flag(&in);
	record->runs = get_flag(&in);
	record->stopped = wire_get_u64(&in);
	record->over = get_flag(&in);
	record->stop_requested = get_flag(&in);
	record->end_cause = (enum core_end_cause)get_kind(&in, CORE_END_UNKNOWN);
	record->exit_code = (int32_t)wire_get_u32(&in);
	record->over_wall_ns = (int64_t)wire_get_u64(&in);
	record->grace_ns = (int64_t)wire_get_u64(&in);
	record->nodes = get_room(&in, &record->nodes_n, CORE_MOST_MAX, 26, sizeof(*record->nodes));
	if (!record->nodes && !in.failed) {
		return pawl_err_set(err, PAWL_ENOMEM, "out of memory");
	}
	for (uint32_t i = 0; i < record->nodes_n && rv == 0; i++) {
		rv = get_job_node(&in, &record->nodes[i])
			? 0
			: pawl_err_set(err, PAWL_ENOMEM, "out of memory");
	}
	rv = rv == 0 ? close_form(&in, err) : rv;
	if (rv != 0) {
		slurm_record_deinit(record);
	}
	return rv;
}

void slurm_record_deinit(struct slurm_record *record)
{
	for (uint32_t i = 0; i < record->nodes_n; i++) {
		free(record->nodes[i].program);
	}
	free(record->nodes);
	*record = (struct slurm_record){0};
}
