/* Inspects checkpoints without a job: see pawl/inspect.h. */
#include "pawl/inspect.h"

#include "base/err.h"
#include "base/wire.h"
#include "ckpt/format/tensors.h"
#include "ckpt/root.h"
#include "ckpt/tags.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(PAWL_TAG_MAX == CKPT_TAG_MAX, "a tag has the same size for callers");

int pawl_tensor_append(void **table, size_t *table_bytes, const struct pawl_tensor *tensor,
	struct pawl_err *err)
{
	struct wire_out row = {0};
	uint8_t *grown = NULL;

	tensor_encode(tensor, &row);
	if (!row.failed) {
		grown = realloc(*table, *table_bytes + row.len_bytes);
	}
	if (!grown) {
		wire_out_deinit(&row);
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for a tensor table");
	}
	memcpy(grown + *table_bytes, row.bytes, row.len_bytes);
	*table = grown;
	*table_bytes += row.len_bytes;
	wire_out_deinit(&row);
	return 0;
}

int pawl_bucket_name(const char *root, char name[PAWL_BUCKET_NAME_MAX], struct pawl_err *err)
{
	int rv;

	if (!store_is_bucket(root)) {
		return 0;
	}
	rv = store_bucket_name(root, name, PAWL_BUCKET_NAME_MAX, err);
	return rv == 0 ? 1 : pawl_err_prefix(err, rv, "root");
}

int pawl_root_read(const char *root, const char *file, void **bytes, size_t *len_bytes,
	struct pawl_err *err)
{
	struct tags_root *opened;
	int rv = tags_root_open(root, NULL, false, &opened, err);

	if (rv != 0) {
		return rv;
	}
	rv = store_read_small(tags_root_store(opened), file, bytes, len_bytes, ROOT_FILE_MAX, err);
	tags_root_close(opened);
	return rv;
}

int pawl_tags_list(const char *root, struct pawl_tag **tags, size_t *n, struct pawl_err *err)
{
	struct tags_root *opened;
	struct tag_info *found = NULL;
	struct pawl_tag *out = NULL;
	int rv = tags_root_open(root, NULL, false, &opened, err);

	if (rv != 0) {
		return rv;
	}
	rv = tags_list(opened, NULL, &found, n, err);
	tags_root_close(opened);
	if (rv == 0) {
		out = calloc(*n + 1, sizeof(*out));
		rv = out ? 0 : pawl_err_set(err, PAWL_ENOMEM, "%s: no memory to list it", root);
	}
	for (size_t i = 0; rv == 0 && i < *n; i++) {
		const struct tag_info *tag = &found[i];

		out[i] = (struct pawl_tag){.step = tag->step,
			.complete = tag->state == TAG_COMPLETE,
			.pinned = tag->pinned,
			.size_bytes = tag->size_bytes,
			.created_ns = tag->created_ns,
			.world = tag->world};
		memcpy(out[i].tag, tag->tag, sizeof(tag->tag));
		snprintf(out[i].why, sizeof(out[i].why), "%s", out[i].complete ? "" : tag->why);
	}
	free(found);
	if (rv == 0) {
		*tags = out;
	}
	return rv;
}
