/* The server in s3_server.h as Google's XML API: requests that are signed for it are carried out as
 * S3's, with Google's headers around them. No sockets; one thread at a time. */
#ifndef TEST_S3_GOOGLE_H
#define TEST_S3_GOOGLE_H

#include "s3_objects.h"

/* Returns whether a request is for Google's API. */
bool s3_google_is(const struct s3_request *request);
/* Carries such a request out. One with headers of S3 is refused, as Google does. */
void s3_google_do(struct s3_objects *objects, const struct s3_settings *settings,
	const struct s3_request *request, struct s3_answer *answer);

#endif
