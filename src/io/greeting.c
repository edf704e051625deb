/* What the ends of a connection send each other before TLS: see greeting.h. */
#include "io/greeting.h"

#include "base/assert.h"
#include "base/err.h"

#include <string.h>

_Static_assert(GREETING_MAGIC + 2 == GREETING_BYTES, "version and token are a byte each");

void greeting_put(const struct greeting *own, uint8_t bytes[GREETING_BYTES])
{
	memcpy(bytes, own->magic, GREETING_MAGIC);
	bytes[GREETING_MAGIC] = own->version;
	bytes[GREETING_MAGIC + 1] = own->token;
}

int greeting_check(const struct greeting *own, const uint8_t *bytes, size_t len_bytes,
	struct pawl_err *err)
{
	size_t magic_bytes = len_bytes < GREETING_MAGIC ? len_bytes : GREETING_MAGIC;

	ASSERT(len_bytes <= GREETING_BYTES);
	if (memcmp(bytes, own->magic, magic_bytes) != 0) {
		return pawl_err_set(err, PAWL_EPEER, "it is not %s", own->program);
	}
	if (len_bytes < GREETING_BYTES) {
		return 0;
	}
	if (bytes[GREETING_MAGIC] != own->version) {
		return pawl_err_set(err, PAWL_EPEER,
			"it runs another version of pawl (protocol %u, %u here)",
			bytes[GREETING_MAGIC], own->version);
	}
	if ((bytes[GREETING_MAGIC + 1] != 0) != own->token) {
		return pawl_err_set(err, PAWL_EPEER,
			own->token ? "it has no token, and %s has one (PAWL_TOKEN)"
				   : "it has a token, and %s has none (PAWL_TOKEN)",
			own->here);
	}
	return 1;
}
