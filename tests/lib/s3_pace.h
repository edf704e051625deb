/* The speed of a connection, or of a link that many share: how long bytes take. */
#ifndef TEST_S3_PACE_H
#define TEST_S3_PACE_H

#include <stddef.h>
#include <stdint.h>

/* Zero: nothing was moved yet. */
struct s3_pace {
	int64_t busy_ns; /* until then it moves bytes; on the monotonic clock */
};

/* Takes the time that bytes need at a speed, behind those that came before; 0: any speed. Returns
 * how long the caller must wait. A pause is made up for as far as a waiting thread wakes late. */
int64_t s3_pace_take(struct s3_pace *pace, uint64_t bytes_s, size_t len_bytes, int64_t now_ns);

#endif
