/* Checksums. Both are incremental: pass the previous result to continue, 0 to begin. Any thread, no
 * allocation. */
#ifndef BASE_CRC_H
#define BASE_CRC_H

#include <stddef.h>
#include <stdint.h>

/* CRC-32C (Castagnoli, RFC 3720 B.4): crc32c(0, "123456789", 9) == 0xe3069283. ISA-L underneath. */
uint32_t crc32c(uint32_t crc, const void *bytes, size_t len_bytes);

/* CRC-32 (ISO-HDLC, as zip and gzip use it): crc32_zip(0, "123456789", 9) == 0xcbf43926. ISA-L
 * underneath. */
uint32_t crc32_zip(uint32_t crc, const void *bytes, size_t len_bytes);

/* The CRC-32C of A followed by B, from those of A and B and B's length (GF(2) arithmetic, as zlib's
 * crc32_combine). */
uint32_t crc32c_combine(uint32_t crc_a, uint32_t crc_b, uint64_t len_b_bytes);

/* The ten-line bitwise references that the tests hold the fast ones to. */
uint32_t crc32c_slow(uint32_t crc, const void *bytes, size_t len_bytes);
uint32_t crc32_zip_slow(uint32_t crc, const void *bytes, size_t len_bytes);

#endif
