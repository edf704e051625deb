/* Encodes and decodes frames between nodes: see node_frame.h. Each kind's fields are listed once,
 * for both. */
#include "launch/nodes/node_frame.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/wire_code.h"

#include <string.h>

#define RANKS_MAX (NODES_MAX * NODE_WORKERS)

_Static_assert(NODE_TEXT_MAX + ADDRESS_MAX + CKPT_JOB_MAX + 128 <= NODE_FRAME_MAX,
	"the strings and numbers of any kind fit a frame");

/* Codes a time left. A negative time fails the frame that is read. */
static void code_time(struct wire_coder *c, int64_t *v)
{
	uint64_t u = (uint64_t)*v;

	wire_code_u64(c, &u);
	*v = (int64_t)u;
	if (c->in && *v < 0) {
		c->in->failed = true;
	}
}

static void code_ledger(struct wire_coder *c, struct node_ledger *ledger)
{
	wire_code_u32(c, &ledger->generation);
	wire_code_u32(c, &ledger->restarts);
	wire_code_u32(c, &ledger->fast_failures);
	wire_code_u32(c, &ledger->attempt);
}

static void code_place(struct wire_coder *c, struct node_frame *f)
{
	wire_code_str(c, f->address, sizeof(f->address));
	wire_code_u32(c, &f->port);
	wire_code_u32(c, &f->peer_port);
	code_ledger(c, &f->ledger);
}

static void code_join(struct wire_coder *c, struct node_frame *f)
{
	wire_code_u64(c, &f->instance_id);
	wire_code_u32(c, &f->nodes);
	wire_code_u32(c, &f->workers);
	wire_code_u32(c, &f->wanted);
	wire_code_u32(c, &f->previous_node);
	wire_code_str(c, f->job, sizeof(f->job));
	code_place(c, f);
}

static void code_start(struct wire_coder *c, struct node_frame *f)
{
	wire_code_u32(c, &f->node);
	wire_code_u32(c, &f->nodes);
	wire_code_u32(c, &f->first);
	wire_code_u32(c, &f->world);
	code_place(c, f);
	wire_code_str(c, f->text, sizeof(f->text));
}

static void code_exited(struct wire_coder *c, struct node_frame *f)
{
	wire_code_u32(c, &f->generation);
	wire_code_u32(c, &f->rank);
	wire_code_i32(c, &f->status);
	wire_code_u64(c, &f->commits);
	wire_code_str(c, f->text, sizeof(f->text));
}

static void code_question(struct wire_coder *c, struct node_frame *f)
{
	wire_code_u32(c, &f->generation);
	wire_code_u32(c, &f->question);
	wire_code_u64(c, &f->instance_id);
	wire_code_u64(c, &f->seq);
	if (f->kind != NODE_HOLD) {
		wire_code_u64(c, &f->polls);
	}
	wire_code_str(c, f->text, sizeof(f->text));
}

/* Returns false if there is no such kind. */
static bool code_from_member(struct wire_coder *c, struct node_frame *f)
{
	switch (f->kind) {
	case NODE_JOIN:
		code_join(c, f);
		return true;
	case NODE_READY:
		wire_code_u32(c, &f->generation);
		wire_code_u32(c, &f->port);
		wire_code_u32(c, &f->peer_port);
		return true;
	case NODE_EXITED:
		code_exited(c, f);
		return true;
	case NODE_SIGNAL:
		wire_code_i32(c, &f->signal);
		code_time(c, &f->left_ns);
		wire_code_str(c, f->text, sizeof(f->text));
		return true;
	case NODE_DRAINED:
		wire_code_u32(c, &f->generation);
		wire_code_bool(c, &f->ok);
		return true;
	case NODE_ROOT_BEGUN:
	case NODE_SERVE:
		wire_code_u64(c, &f->instance_id);
		wire_code_str(c, f->text, sizeof(f->text));
		return true;
	case NODE_POLLED:
		code_question(c, f);
		return true;
	case NODE_SAVE_SOON:
		wire_code_u32(c, &f->generation);
		return true;
	case NODE_HEARTBEAT:
		return true;
	default:
		return false;
	}
}

static bool code_from_coordinator(struct wire_coder *c, struct node_frame *f)
{
	switch (f->kind) {
	case NODE_WELCOME:
		code_time(c, &f->heartbeat_interval_ns);
		return true;
	case NODE_REFUSE:
		wire_code_bool(c, &f->final);
		wire_code_str(c, f->text, sizeof(f->text));
		return true;
	case NODE_LOG_LINE:
		wire_code_bool(c, &f->is_error);
		wire_code_str(c, f->text, sizeof(f->text));
		return true;
	case NODE_START:
		code_start(c, f);
		return true;
	case NODE_KILL:
		wire_code_u32(c, &f->generation);
		wire_code_bool(c, &f->will_restart);
		wire_code_i32(c, &f->status);
		return true;
	case NODE_NOTICE:
		wire_code_u32(c, &f->generation);
		wire_code_i32(c, &f->signal);
		code_time(c, &f->left_ns);
		wire_code_i32(c, &f->status);
		wire_code_bool(c, &f->noticed);
		wire_code_bool(c, &f->will_restart);
		return true;
	case NODE_DRAIN:
		wire_code_u32(c, &f->generation);
		wire_code_i32(c, &f->status);
		wire_code_i32(c, &f->signal);
		code_time(c, &f->left_ns);
		wire_code_bool(c, &f->will_restart);
		return true;
	case NODE_EXIT:
		wire_code_i32(c, &f->status);
		return true;
	case NODE_ROOT_BEGUN_RELAY:
		wire_code_u64(c, &f->instance_id);
		wire_code_str(c, f->text, sizeof(f->text));
		return true;
	case NODE_HOLD:
	case NODE_YES_AT:
		code_question(c, f);
		return true;
	default:
		return false;
	}
}

static bool has_ports(const struct node_frame *f)
{
	return f->port <= UINT16_MAX && f->peer_port <= UINT16_MAX;
}

/* Checks the limits that the rest of the program relies on: no sum and no array overflows. */
static bool is_valid(const struct node_frame *f)
{
	switch (f->kind) {
	case NODE_JOIN:
		return f->nodes >= 1 && f->nodes <= NODES_MAX && f->workers >= 1 &&
			f->workers <= NODE_WORKERS && has_ports(f) &&
			(f->wanted < f->nodes || f->wanted == NODE_NONE) &&
			(f->previous_node < NODES_MAX || f->previous_node == NODE_NONE) &&
			f->job[0] != '\0' && f->address[0] != '\0';
	case NODE_READY:
		return has_ports(f);
	case NODE_SERVE:
		return f->text[0] != '\0' && strlen(f->text) < NODE_SERVER_MAX &&
			strchr(f->text, ',') == NULL;
	case NODE_EXITED:
		return f->rank < RANKS_MAX && f->status >= 0 && f->status <= 255;
	case NODE_START:
		return f->nodes >= 1 && f->nodes <= NODES_MAX && f->node < f->nodes &&
			f->world <= RANKS_MAX && f->first < f->world && has_ports(f) &&
			f->ledger.generation > 0 && f->address[0] != '\0';
	case NODE_SIGNAL:
		return f->signal > 0 && f->signal < 64 && f->left_ns <= NODE_LEFT_MAX_NS;
	case NODE_NOTICE:
		return f->signal >= 0 && f->signal < 64 && (f->signal > 0 || f->will_restart) &&
			f->status >= 0 && f->status <= 255;
	case NODE_DRAIN:
		return f->signal >= 0 && f->signal < 64 && f->status >= 0 && f->status <= 255;
	case NODE_POLLED:
	case NODE_HOLD:
	case NODE_YES_AT:
		return f->question < NODE_QUESTIONS && f->polls < UINT64_MAX;
	case NODE_KILL:
	case NODE_EXIT:
		return f->status >= 0 && f->status <= 255;
	default:
		return true;
	}
}

static bool code_body(struct wire_coder *c, struct node_frame *f)
{
	return code_from_member(c, f) || code_from_coordinator(c, f);
}

void node_frame_put(struct wire_out *out, const struct node_frame *frame)
{
	struct node_frame copy = *frame;
	struct wire_coder coder = {.out = out};
	size_t start = out->len_bytes;
	bool known;

	wire_put_u32(out, 0);
	wire_put_u8(out, (uint8_t)frame->kind);
	known = code_body(&coder, &copy);
	ASSERT(known); /* no caller makes up a kind */
	if (!out->failed) {
		ASSERT(out->len_bytes - start - NODE_FRAME_HEADER <= NODE_FRAME_MAX);
		wire_patch_u32(out, start, (uint32_t)(out->len_bytes - start - NODE_FRAME_HEADER));
	}
}

int node_frame_get(const uint8_t *bytes, size_t len_bytes, struct node_frame *frame,
	struct pawl_err *err)
{
	struct node_frame f = {.kind = 0};
	struct wire_in in;
	struct wire_coder coder = {.in = &in};
	uint32_t body_bytes;

	if (len_bytes < NODE_FRAME_HEADER) {
		return 0;
	}
	wire_in_init(&in, bytes, NODE_FRAME_HEADER);
	body_bytes = wire_get_u32(&in);
	if (body_bytes > NODE_FRAME_MAX) {
		return pawl_err_set(err, PAWL_ECORRUPT, "a frame of %u bytes: %u at most",
			body_bytes, NODE_FRAME_MAX);
	}
	if (len_bytes - NODE_FRAME_HEADER < body_bytes) {
		return 0;
	}
	wire_in_init(&in, bytes + NODE_FRAME_HEADER, body_bytes);
	f.kind = wire_get_u8(&in);
	if (!code_body(&coder, &f) || !wire_in_done(&in) || !is_valid(&f)) {
		return pawl_err_set(err, PAWL_ECORRUPT, "a frame of kind %u is invalid",
			(unsigned)f.kind);
	}
	*frame = f;
	return (int)(NODE_FRAME_HEADER + body_bytes);
}
