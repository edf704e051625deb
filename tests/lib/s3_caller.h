/* Decides who may ask the server in s3_server.h, by the key, region and time of the request. */
#ifndef TEST_S3_CALLER_H
#define TEST_S3_CALLER_H

#include "s3_message.h"

/* Gets a part of the credential's scope: 0 is the key's id, 2 the region. "": not signed. */
void s3_caller_scope(const struct s3_request *request, unsigned nth, char out[64]);
/* Returns the time by the server's clock. */
int64_t s3_caller_now_s(const struct s3_settings *settings);
/* Writes keys of a session that begins now, as the endpoint of a container does. */
void s3_caller_begin_session(const struct s3_settings *settings, struct s3_answer *answer);
/* Returns whether the request has the keys of a session that has not ended, or needs none. */
bool s3_caller_in_session(const struct s3_settings *settings, const struct s3_request *request);
/* Answers with an error if the request is not signed as it must be. Returns whether it is. */
bool s3_caller_check(const struct s3_settings *settings, const struct s3_request *request,
	struct s3_answer *answer);

#endif
