/*
 * What ranks of a pipeline send each other: frames of FRAME_BYTES, and bodies for what does not fit
 * a frame; docs/protocol.md has the bytes. Pure. What comes in is not trusted.
 */
#ifndef STAGE_FRAME_H
#define STAGE_FRAME_H

#include "base/wire.h"

#include "pawl/stage.h"

#define FRAME_BYTES        2048u                           /* length of a frame */
#define FRAME_HEADER       32u                             /* bytes before a frame's content */
#define FRAME_INLINE       (FRAME_BYTES - FRAME_HEADER)    /* bytes of content that fit a frame */
#define FRAME_BATCH_MAX    (2u << 20)                      /* bytes of a batch */
#define FRAME_VALUE_MAX    (1ull << 40)                    /* bytes of a value */
#define FRAME_VALUE_HEADER (8u + 4u + PAWL_STAGE_META_MAX) /* most bytes before a value's bytes */

enum stage_frame_kind {
	FRAME_BATCH = 1, /* records from the driver */
	FRAME_NOTE,      /* a note that is too long for a batch */
	FRAME_VALUE,     /* a value: its number and meta, in the frame; its bytes */
	FRAME_FAIL,      /* the text of a rank that has failed, from it or from another one */
	FRAME_KINDS
};

struct stage_frame {
	enum stage_frame_kind kind; /* kind of the content */
	uint64_t step;              /* step that the frame belongs to; 0: none */
	uint64_t len_bytes;         /* bytes of the content; of a value, its bytes */
	uint32_t tag;               /* tag of the message with the content; 0: it is in the frame */
	uint32_t rank;              /* FAIL: rank that has failed; the sender may only relay it */
	/* The content, in the frame; NULL: it follows as a message. */
	const uint8_t *bytes;
	struct pawl_stage_value value; /* VALUE: number, meta and length */
};

/* Writes a frame to bytes, FRAME_BYTES. frame->tag is 0 exactly if the content fits
 * (stage_frame_fits). */
void stage_frame_encode(uint8_t *bytes, const struct stage_frame *frame);
/* Reads a frame; frame->bytes points into bytes. PAWL_EMISMATCH: it is malformed. */
int stage_frame_decode(struct stage_frame *frame, const uint8_t *bytes, struct pawl_err *err);
/* Returns whether a content fits a frame of this kind. */
bool stage_frame_fits(enum stage_frame_kind kind, uint64_t len_bytes);

enum stage_record_kind {
	RECORD_CALL = 1,
	RECORD_PUSH,
	RECORD_FREE,
	RECORD_FLUSH,
	RECORD_NOTE,
	RECORD_END,
	RECORD_KINDS
};

/* One thing that the driver says to a rank. */
struct stage_record {
	enum stage_record_kind kind;
	struct pawl_stage_call call; /* CALL */
	uint64_t value;              /* PUSH, FREE: number of the value */
	uint32_t to;                 /* PUSH: rank that it is sent to */
	enum pawl_pipe_kind pass;    /* FLUSH */
	uint32_t microbatch;         /* FLUSH */
	const void *bytes;           /* NOTE */
	uint32_t len_bytes;          /* NOTE */
};

/* Appends a record. Check out->failed. */
void stage_record_encode(struct wire_out *out, const struct stage_record *record);
/* Reads the next record; its bytes point into the input, its needs to needs, which has room for
 * PAWL_STAGE_NEEDS_MAX. PAWL_EMISMATCH: it is malformed. */
int stage_record_decode(struct stage_record *record, struct wire_in *in, uint64_t *needs,
	struct pawl_err *err);

#endif
