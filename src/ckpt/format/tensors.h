/* The tensor table of a partition; pawl/inspect.h defines its rows. Pure. docs/format.md has the
 * bytes. */
#ifndef CKPT_FORMAT_TENSORS_H
#define CKPT_FORMAT_TENSORS_H

#include "pawl/inspect.h"

struct wire_out;

void tensor_encode(const struct pawl_tensor *tensor, struct wire_out *out);

#endif
