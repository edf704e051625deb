/*
 * The 8 bytes in clear that each end of a connection sends before TLS: what it is, the version of
 * everything that follows, and whether it has a token. By these a user's mistake gets a readable
 * message instead of a TLS alert. Pure.
 */
#ifndef IO_GREETING_H
#define IO_GREETING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pawl_err;

#define GREETING_BYTES 8u
#define GREETING_MAGIC 6u /* bytes that say what the sender is */

/* What one end sends, and how it names things in messages. */
struct greeting {
	const char *magic;   /* GREETING_MAGIC bytes that both ends send */
	uint8_t version;     /* version of the protocol */
	bool token;          /* whether this end has a token */
	const char *program; /* "a `pawl run`": what the other end has to be */
	const char *here;    /* "this node": what this end is */
};

void greeting_put(const struct greeting *own, uint8_t bytes[GREETING_BYTES]);
/* Checks the first len_bytes bytes that the other end has sent, GREETING_BYTES at most. Returns 1
 * if it sent what it has to, 0 while bytes are missing, or PAWL_EPEER, with the reason in err. */
int greeting_check(const struct greeting *own, const uint8_t *bytes, size_t len_bytes,
	struct pawl_err *err);

#endif
