/* Checksums. All are incremental: pass the previous result to continue, 0 to begin. Any thread, no
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

/* Continues a CRC-32C over the four bytes of another one, most significant byte first: the checksum
 * that object stores keep of an object of parts. */
uint32_t crc32c_add(uint32_t crc, uint32_t part);

/* Returns the CRC-32C of A followed by B, from the CRCs of A and B and the length of B (GF(2)
 * arithmetic, as in zlib's crc32_combine). */
uint32_t crc32c_combine(uint32_t crc_a, uint32_t crc_b, uint64_t len_b_bytes);

/* CRC-64/NVME, which Azure's storage knows: crc64(0, "123456789", 9) == 0xae8b14860a799888. */
uint64_t crc64(uint64_t crc, const void *bytes, size_t len_bytes);

/* Bitwise reference implementations, which tests compare the fast ones with. */
uint32_t crc32c_slow(uint32_t crc, const void *bytes, size_t len_bytes);
uint32_t crc32_zip_slow(uint32_t crc, const void *bytes, size_t len_bytes);
uint64_t crc64_slow(uint64_t crc, const void *bytes, size_t len_bytes);
/* crc64 on a processor without carry-less multiplication, for the same tests. */
uint64_t crc64_tables(uint64_t crc, const void *bytes, size_t len_bytes);

#endif
