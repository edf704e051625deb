/* AWS Signature Version 4, in headers. Source: "Signature Calculations for the Authorization
 * Header", docs of the Amazon S3 API. Pure; any thread. */
#ifndef STORE_OBJECT_SIGN_AWS_H
#define STORE_OBJECT_SIGN_AWS_H

#include <stddef.h>
#include <stdint.h>

struct http_request;

#define SIGN_AWS_UNSIGNED "UNSIGNED-PAYLOAD"

struct sign_aws_key {
	const char *id;     /* access key ID */
	const char *secret; /* secret access key */
	const char *token;  /* session token, or "" */
};

/*
 * Signs a request for a service ("s3", "sts") of a region at a time in seconds since 1970: sets
 * x-amz-date, x-amz-content-sha256, x-amz-security-token (if there is one) and authorization. Every
 * header that the request has is signed, so add all of them before. Signing again replaces the old
 * signature. payload: the body's SHA-256 in hexadecimal, or SIGN_AWS_UNSIGNED. A request
 * that cannot be signed becomes full and gets no signature: a part is too long, the time is beyond
 * the year 9999, or there is no memory.
 */
void sign_aws(struct http_request *request, const struct sign_aws_key *key, const char *region,
	const char *service, const char *payload, int64_t now_s);
/* Signs a request for Google Cloud Storage by an HMAC key, as sign_aws does, under Google's names:
 * x-goog-date, x-goog-content-sha256, GOOG4-HMAC-SHA256. The key's token is not used. Source: "V4
 * signing process", docs of Cloud Storage. */
void sign_google(struct http_request *request, const struct sign_aws_key *key, const char *region,
	int64_t now_s);
/* Writes a SHA-256 in hexadecimal; zeros, which no body has, if there is no memory. */
void sign_sha256(const void *bytes, size_t len_bytes, char hex[65]);

#endif
