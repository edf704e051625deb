/* The server in s3_server.h as Azure's Blob service: requests with a version of that are carried
 * out as S3's on objects; blocks, and what blobs have beside their bytes, are here. No sockets; one
 * thread at a time. */
#ifndef TEST_S3_AZURE_H
#define TEST_S3_AZURE_H

#include "s3_objects.h"

struct s3_azure;

struct s3_azure *s3_azure_open(void);
void s3_azure_close(struct s3_azure *azure);
void s3_azure_clear(struct s3_azure *azure);
/* Returns whether a request is for Azure's service. */
bool s3_azure_is(const struct s3_request *request);
void s3_azure_do(struct s3_azure *azure, struct s3_objects *objects,
	const struct s3_settings *settings, const struct s3_request *request,
	struct s3_answer *answer);
/* Returns how many blocks no blob has. */
unsigned s3_azure_blocks(const struct s3_azure *azure);

#endif
