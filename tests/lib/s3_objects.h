/* The objects of the server in s3_server.h, and what requests do to them. No sockets; one thread at
 * a time. */
#ifndef TEST_S3_OBJECTS_H
#define TEST_S3_OBJECTS_H

#include "s3_message.h"

struct s3_objects;

struct s3_objects *s3_objects_open(void);
void s3_objects_close(struct s3_objects *objects);
void s3_objects_clear(struct s3_objects *objects);
/* Carries a request out. */
void s3_objects_do(struct s3_objects *objects, const struct s3_settings *settings,
	const struct s3_request *request, struct s3_answer *answer);
/* What is known of an object. */
struct s3_look {
	unsigned version; /* number of the write that made it; 0: it is not there */
	char sum[9];      /* CRC-32C of all its bytes, in base64 */
};
struct s3_look s3_objects_look(const struct s3_objects *objects, const char *key);
/* Puts an object; copies the bytes. */
void s3_objects_put(struct s3_objects *objects, const char *key, const void *bytes,
	size_t len_bytes);
unsigned s3_objects_uploads(const struct s3_objects *objects);
bool s3_objects_hold(const struct s3_objects *objects, const char *key, const void *bytes,
	size_t len_bytes);

#endif
