/* Layouts of the messages between commands and the scheduler: see sched_msg.h. */
#include "daemon/sched_msg.h"

#include "base/assert.h"
#include "ipc/frame_macros.h"

static const struct frame_field sched_msg_submit_fields[] = {
	FIELD(sched_msg_submit, BLOB, submission),
};

static const struct frame_field sched_msg_list_fields[] = {
	FIELD(sched_msg_list, BOOL, ended),
	FIELD(sched_msg_list, U32, most),
};

static const struct frame_field sched_msg_selector_fields[] = {
	FIELD(sched_msg_selector, TEXT, job),
};

static const struct frame_field sched_msg_drain_fields[] = {
	FIELD(sched_msg_drain, TEXT, node),
	FIELD(sched_msg_drain, BOOL, drained),
};

static const struct frame_field sched_msg_scale_fields[] = {
	FIELD(sched_msg_scale, TEXT, job),
	FIELD(sched_msg_scale, BOOL, sized),
	FIELD(sched_msg_scale, U32, least),
	FIELD(sched_msg_scale, U32, most),
	FIELD(sched_msg_scale, BOOL, prioritized),
	FIELD(sched_msg_scale, U32, priority),
};

static const struct frame_field sched_msg_error_fields[] = {
	FIELD(sched_msg_error, CODE, code),
	FIELD(sched_msg_error, TEXT, text),
};

static const struct frame_field sched_msg_done_fields[] = {
	FIELD(sched_msg_done, U64, job),
};

static const struct frame_field sched_msg_job_fields[] = {
	FIELD(sched_msg_job, U64, id),
	FIELD(sched_msg_job, TEXT, name),
	FIELD(sched_msg_job, TEXT, queue),
	FIELD(sched_msg_job, U32, owner),
	FIELD(sched_msg_job, TEXT, state),
	FIELD(sched_msg_job, TEXT, reason),
	FIELD(sched_msg_job, U32, priority),
	FIELD(sched_msg_job, U32, replicas),
	FIELD(sched_msg_job, U32, least),
	FIELD(sched_msg_job, U32, most),
	FIELD(sched_msg_job, TEXT, place),
	FIELD(sched_msg_job, U64, submitted_ns),
	FIELD(sched_msg_job, U64, since_ns),
	FIELD(sched_msg_job, F64, ran_s),
	FIELD(sched_msg_job, U32, restarts),
	FIELD(sched_msg_job, U32, failures),
	FIELD(sched_msg_job, U32, exit_code),
	FIELD(sched_msg_job, F64, goodput),
	FIELD(sched_msg_job, F64, left_s),
	FIELD(sched_msg_job, BOOL, over),
};

const struct frame_layout sched_msg_job_layout = LAYOUT(sched_msg_job);

static const struct frame_field sched_msg_jobs_fields[] = {
	ROWS(sched_msg_jobs, jobs, sched_msg_job_layout),
	FIELD(sched_msg_jobs, U32, left_out),
	FIELD(sched_msg_jobs, TEXT, remark),
};

static const struct frame_field sched_msg_shown_fields[] = {
	STRUCT(sched_msg_shown, job, sched_msg_job_layout),
	FIELD(sched_msg_shown, TEXT, explanation),
	FIELD(sched_msg_shown, TEXT, log_dir),
	FIELD(sched_msg_shown, TEXT, cwd),
	FIELD(sched_msg_shown, F64, more),
	FIELD(sched_msg_shown, F64, fewer),
	FIELD(sched_msg_shown, TEXT, remark),
	FIELD(sched_msg_shown, TEXT, home),
};

static const struct frame_field sched_msg_node_fields[] = {
	FIELD(sched_msg_node, TEXT, name),
	FIELD(sched_msg_node, TEXT, type),
	FIELD(sched_msg_node, U32, slots),
	FIELD(sched_msg_node, U32, used),
	FIELD(sched_msg_node, U8, state),
	FIELD(sched_msg_node, BOOL, spot),
	FIELD(sched_msg_node, F64, price),
};

const struct frame_layout sched_msg_node_layout = LAYOUT(sched_msg_node);

static const struct frame_field sched_msg_nodes_fields[] = {
	ROWS(sched_msg_nodes, nodes, sched_msg_node_layout),
};

/* By type. A row without fields has no body; sched_msg_is_request and is_reply know which rows are
 * types. */
static const struct frame_layout layouts[] = {
	[SCHED_MSG_SUBMIT] = LAYOUT(sched_msg_submit),
	[SCHED_MSG_LIST] = LAYOUT(sched_msg_list),
	[SCHED_MSG_SHOW] = LAYOUT(sched_msg_selector),
	[SCHED_MSG_CANCEL] = LAYOUT(sched_msg_selector),
	[SCHED_MSG_PAUSE] = LAYOUT(sched_msg_selector),
	[SCHED_MSG_RESUME] = LAYOUT(sched_msg_selector),
	[SCHED_MSG_NODES] = {NULL, 0, 0},
	[SCHED_MSG_DRAIN] = LAYOUT(sched_msg_drain),
	[SCHED_MSG_SCALE] = LAYOUT(sched_msg_scale),
	[SCHED_MSG_ERROR] = LAYOUT(sched_msg_error),
	[SCHED_MSG_DONE] = LAYOUT(sched_msg_done),
	[SCHED_MSG_JOBS] = LAYOUT(sched_msg_jobs),
	[SCHED_MSG_SHOWN] = LAYOUT(sched_msg_shown),
	[SCHED_MSG_NODE_ROWS] = LAYOUT(sched_msg_nodes),
};

bool sched_msg_is_request(uint16_t type)
{
	return type >= SCHED_MSG_SUBMIT && type <= SCHED_MSG_SCALE;
}

static bool is_reply(uint16_t type)
{
	return type >= SCHED_MSG_ERROR && type <= SCHED_MSG_NODE_ROWS;
}

const struct frame_layout *sched_msg_layout_of(uint16_t type)
{
	return sched_msg_is_request(type) || is_reply(type) ? &layouts[type] : NULL;
}

void sched_msg_encode(struct wire_out *out, enum sched_msg_type type, const void *body)
{
	const struct frame_layout *layout = sched_msg_layout_of((uint16_t)type);

	ASSERT(layout);
	if (sched_msg_is_request((uint16_t)type)) {
		wire_put_u16(out, SCHED_MSG_VERSION);
	}
	frame_layout_encode(out, layout, body);
}

bool sched_msg_decode(struct wire_in *in, uint16_t type, void *body, size_t size_bytes)
{
	const struct frame_layout *layout = sched_msg_layout_of(type);

	return layout && (!sched_msg_is_request(type) || wire_get_u16(in) == SCHED_MSG_VERSION) &&
		frame_layout_decode(in, layout, body, size_bytes);
}

uint16_t sched_msg_version(struct wire_in in)
{
	return wire_get_u16(&in);
}
