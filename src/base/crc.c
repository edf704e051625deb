/* Checksums by ISA-L, and the bitwise references for their tests: see crc.h.
 *
 * ISA-L's two functions differ: crc32_iscsi takes and returns the bare register, and takes an int
 * length. crc32_gzip_refl inverts before and after by itself, and takes a 64-bit length. */
#include "base/crc.h"

#include <isa-l/crc.h>

#define ISCSI_BYTES_MAX (1u << 30) /* bytes in one call, whose length is an int */

#define POLY_CRC32C 0x82f63b78u /* reflected */
#define POLY_CRC32  0xedb88320u /* reflected */

uint32_t crc32c(uint32_t crc, const void *bytes, size_t len_bytes)
{
	const unsigned char *at = bytes;

	while (len_bytes > 0) {
		size_t n = len_bytes < ISCSI_BYTES_MAX ? len_bytes : ISCSI_BYTES_MAX;

		/* crc32_iscsi only reads, though its argument is not const. */
		crc = ~crc32_iscsi((unsigned char *)at, (int)n, ~crc);
		at += n;
		len_bytes -= n;
	}
	return crc;
}

uint32_t crc32c_add(uint32_t crc, uint32_t part)
{
	const unsigned char bytes[4] = {(unsigned char)(part >> 24), (unsigned char)(part >> 16),
		(unsigned char)(part >> 8), (unsigned char)part};

	return crc32c(crc, bytes, sizeof(bytes));
}

uint32_t crc32_zip(uint32_t crc, const void *bytes, size_t len_bytes)
{
	return crc32_gzip_refl(crc, bytes, len_bytes);
}

static uint32_t crc_bitwise(uint32_t poly, uint32_t crc, const unsigned char *at, size_t len_bytes)
{
	crc = ~crc;
	for (size_t i = 0; i < len_bytes; i++) {
		crc ^= at[i];
		for (int bit = 0; bit < 8; bit++) {
			crc = (crc >> 1) ^ ((crc & 1) ? poly : 0);
		}
	}
	return ~crc;
}

uint32_t crc32c_slow(uint32_t crc, const void *bytes, size_t len_bytes)
{
	return crc_bitwise(POLY_CRC32C, crc, bytes, len_bytes);
}

uint32_t crc32_zip_slow(uint32_t crc, const void *bytes, size_t len_bytes)
{
	return crc_bitwise(POLY_CRC32, crc, bytes, len_bytes);
}
