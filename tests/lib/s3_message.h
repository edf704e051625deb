/* Requests and answers of the server in s3_server.h. */
#ifndef TEST_S3_MESSAGE_H
#define TEST_S3_MESSAGE_H

#include "s3_server.h"

#define S3_LINE_MAX   4096u
#define S3_FIELDS_MAX 64u
#define S3_NAME_MAX   1200u /* bytes of a key, terminator included */
#define S3_ETAG_MAX   64u   /* bytes of an etag, terminator included */
#define S3_MD5_BYTES  16u

/* Bytes that grow, with a NUL behind them. */
struct s3_text {
	char *bytes; /* owned */
	size_t len_bytes;
	size_t size_bytes;
};

struct s3_request {
	enum s3_kind kind;
	char method[16];
	char path[S3_LINE_MAX];
	char query[S3_LINE_MAX];
	char bucket[S3_NAME_MAX]; /* decoded */
	char key[S3_NAME_MAX];    /* decoded */
	char *names[S3_FIELDS_MAX];
	char *values[S3_FIELDS_MAX];
	unsigned fields_n; /* headers, in names and values */
	uint8_t *body;     /* owned */
	size_t body_bytes;
};

struct s3_answer {
	int status;
	char headers[1024];    /* lines, without Content-Length and Date */
	struct s3_text body;   /* owned */
	uint64_t length_bytes; /* length of the body that an answer to HEAD speaks of */
};

/* Appends bytes, or a formatted text. */
void s3_text_add(struct s3_text *text, const void *bytes, size_t len_bytes);
void s3_text_print(struct s3_text *text, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Returns memory, which must be there. */
void *s3_need(void *memory);
/* Writes an etag as S3 has it: the MD5 of bytes or, of an object in parts, of the MD5s of its
 * parts. out gets the MD5, or is NULL. */
void s3_write_md5(const void *bytes, size_t len_bytes, unsigned parts_n, char etag[S3_ETAG_MAX],
	uint8_t *out);
/* Writes a CRC-32C as headers have it. */
void s3_write_base64(uint32_t sum, char out[9]);
/* Appends a text in percent-encoding, as encoding-type=url has it. */
void s3_text_encode(struct s3_text *text, const char *raw);

/* Fills kind, bucket and key from method, path and query. */
void s3_request_sort(struct s3_request *request);
/* Gets a parameter of the query, decoded. Returns whether it is there. */
bool s3_request_param(const struct s3_request *request, const char *name, char *out,
	size_t size_bytes);
/* Returns a header's value, or NULL. name: in lower case. */
const char *s3_request_field(const struct s3_request *request, const char *name);
/* Makes the answer an error. HEAD gets no body. */
void s3_answer_error(const struct s3_request *request, struct s3_answer *answer, int status,
	const char *code, const char *more);
/* Adds a header. */
void s3_answer_field(struct s3_answer *answer, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

#endif
