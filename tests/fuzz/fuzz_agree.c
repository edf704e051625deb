/* Fuzzes the messages between agents that agree: what is accepted, encoded again, is accepted again
 * and stays the same. The checksum in the header is made right, so that bodies are looked at. */
#include "fuzz.h"

#include "agent/persist/agree_msg.h"
#include "base/assert.h"
#include "base/crc.h"
#include "pawl/err.h"

#include <string.h>

#define HEADER_BYTES 17u /* magic, version, kind, checksum */
#define KIND_OFF     12u /* offset of the kind */

/* Decodes a message of any kind and encodes it again. Returns whether it was accepted. */
static bool recode(const uint8_t *bytes, size_t len_bytes, struct wire_out *out)
{
	static struct recover_plan plan;
	static struct peer_part held[AGREE_HELD_MAX];
	static struct agree_msg_run run;
	struct agree_msg_status status = {.held = held, .plan = &plan};
	struct agree_msg_join join;
	struct agree_msg_part part;
	bool taken = true;

	if (agree_msg_get_join(bytes, len_bytes, &join, NULL) == 0) {
		agree_msg_put_join(out, &join);
	} else if (agree_msg_get_run(bytes, len_bytes, &run, NULL) == 0) {
		agree_msg_put_run(out, &run);
	} else if (agree_msg_get_status(bytes, len_bytes, &status, NULL) == 0) {
		agree_msg_put_status(out, &status);
	} else {
		taken = agree_msg_get_part(bytes, len_bytes, &part, NULL) == 0;
		if (taken) {
			part.status.memory = false; /* no plan was kept */
			agree_msg_put_part(out, &part);
		}
		agree_msg_part_deinit(&part);
	}
	ASSERT(!out->failed);
	return taken;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len_bytes)
{
	struct wire_out in = {0};
	struct wire_out once = {0};
	struct wire_out twice = {0};

	wire_put_raw(&in, bytes, len_bytes);
	if (len_bytes >= HEADER_BYTES) {
		wire_patch_u32(&in, HEADER_BYTES - 4,
			crc32c(0, bytes + HEADER_BYTES, len_bytes - HEADER_BYTES));
	}
	if (recode(in.bytes, in.len_bytes, &once)) {
		ASSERT(recode(once.bytes, once.len_bytes, &twice));
		ASSERT(once.len_bytes == twice.len_bytes);
		ASSERT(memcmp(once.bytes, twice.bytes, once.len_bytes) == 0);
		ASSERT(once.bytes[KIND_OFF] == in.bytes[KIND_OFF]);
	}
	wire_out_deinit(&in);
	wire_out_deinit(&once);
	wire_out_deinit(&twice);
	return 0;
}

size_t fuzz_seed(unsigned i, uint8_t *buf)
{
	static struct recover_plan plan = {.found = true,
		.save = {.run = 9, .number = 4},
		.sources_n = 2,
		.sources = {{0, 0, 1}, {2, 1, 3, {.k = 4, .m = 2, .row = 1, .index = 3}}}};
	static const struct agree_msg_run run = {.run = 77,
		.leader = {0, 1, 5, "10.0.0.1:40000", "a"},
		.members_n = 2,
		.members = {{1, 2, 3, "10.0.0.2:40000", ""}, {3, 1, 9, "", "b"}}};
	static const struct agree_msg_join join = {.member = {1, 2, 3, "10.0.0.2:40000", "a"},
		.world = 4,
		.job = "gpt"};
	struct peer_part held = {.save = {.run = 9, .number = 4},
		.step = 30,
		.tag = "thirty",
		.world = 4,
		.first_rank = 1,
		.ranks = 3,
		.parity = {.group = 1, .k = 4, .m = 1, .index = 2}};
	const struct agree_msg_status asked = {.has_step = true,
		.asked_step = 7,
		.held_n = 1,
		.held = &held};
	const struct agree_msg_status offered = {.found = true,
		.step = 30,
		.tag = "thirty",
		.memory = true,
		.plan = &plan};
	uint32_t sums[] = {5, 6};
	struct agree_msg_shared shared = {"model", 4096, 2, sums};
	const struct agree_msg_part part = {.status = {.code = PAWL_ENOSPC, .why = "full"},
		.shared_n = 1,
		.shared = &shared};
	struct wire_out out = {0};
	size_t len_bytes;

	switch (i) {
	case 0:
		agree_msg_put_join(&out, &join);
		break;
	case 1:
		agree_msg_put_run(&out, &run);
		break;
	case 2:
		agree_msg_put_status(&out, &asked);
		break;
	case 3:
		agree_msg_put_status(&out, &offered);
		break;
	case 4:
		agree_msg_put_part(&out, &part);
		break;
	default:
		return 0;
	}
	len_bytes = out.len_bytes;
	ASSERT(!out.failed && len_bytes <= FUZZ_BYTES_MAX);
	memcpy(buf, out.bytes, len_bytes);
	wire_out_deinit(&out);
	return len_bytes;
}
