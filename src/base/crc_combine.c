/*
 * Joining CRCs: crc(A B) from crc(A), crc(B) and B's length.
 *
 * Appending n zero bits to a message multiplies its CRC (as a polynomial over GF(2), bit-reflected)
 * by x^n modulo P. So crc(A B) is crc(A) x^(8 len B) + crc(B): the initial and final complements of
 * the two cancel out. x^(8 len) is built by squaring.
 */
#include "base/crc.h"

#define POLY 0x82f63b78u /* Castagnoli, reflected */

/* Returns a * b modulo P; bit 31 is x^0. */
static uint32_t multiply(uint32_t a, uint32_t b)
{
	uint32_t product = 0;

	for (uint32_t bit = 1u << 31; bit != 0; bit >>= 1) {
		if (a & bit) {
			product ^= b;
		}
		b = b & 1 ? b >> 1 ^ POLY : b >> 1;
	}
	return product;
}

uint32_t crc32c_combine(uint32_t crc_a, uint32_t crc_b, uint64_t len_b_bytes)
{
	uint32_t power = 1u << 23; /* x^8 */

	for (uint64_t n = len_b_bytes; n != 0; n >>= 1) {
		if (n & 1) {
			crc_a = multiply(crc_a, power);
		}
		power = multiply(power, power);
	}
	return crc_a ^ crc_b;
}
