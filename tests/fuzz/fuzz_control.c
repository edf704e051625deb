/* Fuzzes what a rank receives: frames of the control channel, and headers of collectives. Whatever
 * arrives damages no memory, and what is to be sent can be drained. */
#include "fuzz.h"

#include "base/assert.h"
#include "coll/group/group_call.h"

#include <string.h>

#define MESSAGES 4

static void receive(struct coll_control *control, const uint8_t *bytes, size_t len_bytes)
{
	while (len_bytes > 0) {
		void *to;
		size_t n = coll_control_to_receive(control, 1, &to);

		ASSERT(n > 0);
		n = n < len_bytes ? n : len_bytes;
		memcpy(to, bytes, n);
		coll_control_received(control, 1, n);
		bytes += n;
		len_bytes -= n;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len_bytes)
{
	struct coll_control control = {0};
	struct coll_message messages[MESSAGES] = {0};
	uint8_t memory[MESSAGES][300];
	struct pawl_work work = {.call = {.len_bytes = 300}, .number = 7};
	const void *out;
	size_t n;

	if (len_bytes >= GROUP_HEADER_BYTES) {
		uint8_t ours[GROUP_HEADER_BYTES];

		group_header_encode(ours, &work, 1, NULL);
		group_header_check(bytes, ours, &work.call, 0, 1, NULL);
		group_prefix_check(bytes, ours, 0, 1, NULL);
	}
	if (coll_control_init(&control, 0, 2, NULL) != 0) {
		return 0;
	}
	for (uint32_t i = 0; i < MESSAGES; i++) {
		messages[i] = (struct coll_message){.bytes = memory[i],
			.len_bytes = 100 * i,
			.peer = i == 3 ? PAWL_ANY_RANK : 1,
			.tag = i,
			.receive = i % 2 == 1};
		coll_control_post(&control, &messages[i]);
	}
	receive(&control, bytes, len_bytes);
	while ((n = coll_control_to_send(&control, 1, &out)) > 0) {
		coll_control_sent(&control, 1, n);
	}
	while (coll_control_take(&control) || coll_control_give_up(&control)) {
	}
	coll_control_deinit(&control);
	return 0;
}

/* Writes what the other end of such a control channel would send. */
size_t fuzz_seed(unsigned i, uint8_t *buf)
{
	struct coll_control control = {0};
	struct coll_message messages[MESSAGES] = {0};
	uint8_t memory[300] = {1, 2, 3};
	const struct pawl_err why = {.code = PAWL_EPEER, .msg = "rank 1 is lost"};
	const void *out;
	size_t len = 0;
	size_t n;

	if (i > 1 || coll_control_init(&control, 1, 2, NULL) != 0) {
		return 0;
	}
	for (uint32_t m = 0; m < MESSAGES; m++) {
		messages[m] = (struct coll_message){.bytes = memory,
			.len_bytes = 100 * m,
			.peer = 0,
			.tag = m,
			.receive = m % 2 == 0};
		coll_control_post(&control, &messages[m]);
	}
	coll_control_heartbeat(&control, memory, GROUP_PREFIX_BYTES);
	coll_control_leave(&control, 5);
	if (i == 1) {
		coll_control_fail(&control, &why);
	}
	while ((n = coll_control_to_send(&control, 0, &out)) > 0) {
		memcpy(buf + len, out, n);
		coll_control_sent(&control, 0, n);
		len += n;
	}
	coll_control_deinit(&control);
	return len;
}
