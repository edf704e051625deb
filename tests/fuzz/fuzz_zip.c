/* Fuzzes zip_plan_read: whatever the bytes, a plan that comes out lies within them. */
#include "fuzz.h"

#include "base/assert.h"
#include "base/crc.h"
#include "ckpt/format/zip.h"

#include <string.h>

struct file {
	const uint8_t *bytes;
	size_t len_bytes;
};

static int read_file(void *user, uint64_t off, void *buf, size_t len_bytes, struct pawl_err *err)
{
	const struct file *file = user;

	ASSERT(off <= file->len_bytes && len_bytes <= file->len_bytes - off);
	memcpy(buf, file->bytes + off, len_bytes);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len_bytes)
{
	struct file file = {bytes, len_bytes};
	struct zip_plan plan;
	volatile uint32_t sink = 0;

	if (zip_plan_read(&plan, read_file, &file, len_bytes, NULL) != 0) {
		return 0;
	}
	ASSERT(plan.entries_n == plan.storages + 1 && plan.size_bytes == len_bytes);
	for (uint32_t i = 0; i < plan.entries_n; i++) {
		const struct zip_entry *entry = &plan.entries[i];

		ASSERT(entry->header_off < entry->data_off && entry->data_off <= plan.tail_off);
		ASSERT(entry->size_bytes <= plan.tail_off - entry->data_off);
		sink = sink ^ crc32_zip(0, bytes + entry->data_off, entry->size_bytes);
	}
	zip_plan_deinit(&plan);
	return 0;
}

size_t fuzz_seed(unsigned i, uint8_t *buf)
{
	static const uint64_t sizes[] = {10, 0, 100, 4096};
	struct zip_plan plan;
	size_t len_bytes;

	if (i > 2 || zip_plan_init(&plan, sizes, i + 1, 200, NULL) != 0) {
		return 0;
	}
	len_bytes = plan.size_bytes;
	ASSERT(len_bytes <= FUZZ_BYTES_MAX);
	memset(buf, 0x11, len_bytes);
	zip_glue(&plan, 0, len_bytes, buf);
	zip_plan_deinit(&plan);
	return len_bytes;
}
