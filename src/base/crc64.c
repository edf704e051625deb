/*
 * CRC-64/NVME: see crc.h. ISA-L 2.30 does not have it.
 *
 * A register holds a polynomial over GF(2), the highest power in its lowest bit. By tables, eight
 * bytes at a time. Where the processor multiplies such polynomials, long texts are folded first:
 * 64 bytes times x^512 are, modulo the polynomial, the same as 64 bytes further on, so they are
 * added to those, until 64 are left (Gopal and others, "Fast CRC Computation for Generic
 * Polynomials Using PCLMULQDQ", 2009).
 */
#include "base/crc.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define POLY       0x9a6c9329ac4bc9b5u /* reflected */
#define WORD_BYTES 8u
#define FOLD_BYTES 64u /* four registers of 16 bytes */
#define FOLD_BITS  512u

static pthread_once_t once = PTHREAD_ONCE_INIT;
/* tables[n][b]: the register that byte b leaves behind, with n bytes of zeros after it. */
static uint64_t tables[WORD_BYTES][256];
static uint64_t fold_low, fold_high; /* factors of the low and high half of a lane of 16 bytes */

/* Multiplies a register by x, modulo the polynomial. */
static uint64_t times_x(uint64_t reg)
{
	return (reg >> 1) ^ ((reg & 1) != 0 ? POLY : 0);
}

/* Returns x^n, modulo the polynomial. */
static uint64_t power_of_x(unsigned n)
{
	uint64_t reg = (uint64_t)1 << 63;

	while (n-- > 0) {
		reg = times_x(reg);
	}
	return reg;
}

static void fill(void)
{
	for (unsigned b = 0; b < 256; b++) {
		uint64_t reg = b;

		for (unsigned n = 0; n < WORD_BYTES; n++) {
			for (unsigned bit = 0; bit < 8; bit++) {
				reg = times_x(reg);
			}
			tables[n][b] = reg;
		}
	}
	/* A product of two registers comes out multiplied by x. */
	fold_low = power_of_x(FOLD_BITS + 63);
	fold_high = power_of_x(FOLD_BITS - 1);
}

static uint64_t by_tables(uint64_t reg, const uint8_t *at, size_t len_bytes)
{
	for (; len_bytes >= WORD_BYTES; len_bytes -= WORD_BYTES, at += WORD_BYTES) {
		uint64_t next = 0;

		for (unsigned i = 0; i < WORD_BYTES; i++) {
			uint8_t byte = (uint8_t)(reg >> 8 * i) ^ at[i];

			next ^= tables[WORD_BYTES - 1 - i][byte];
		}
		reg = next;
	}
	for (; len_bytes > 0; len_bytes--, at++) {
		reg = (reg >> 8) ^ tables[0][(uint8_t)reg ^ *at];
	}
	return reg;
}

#if defined(__x86_64__)

/* Takes n bytes, a multiple of FOLD_BYTES that is not 0. Instructions of AVX, since older ones are
 * slow behind ISA-L's, which leave wide registers in use. */
__attribute__((target("pclmul,avx"))) static uint64_t by_folding(uint64_t reg, const uint8_t *at,
	size_t n)
{
	const __m128i factors = _mm_set_epi64x((long long)fold_high, (long long)fold_low);
	uint8_t left[FOLD_BYTES];
	__m128i lanes[4];

	memcpy(lanes, at, sizeof(lanes));
	lanes[0] = _mm_xor_si128(lanes[0], _mm_cvtsi64_si128((long long)reg));
	for (n -= FOLD_BYTES; n > 0; n -= FOLD_BYTES) {
		at += FOLD_BYTES;
		for (unsigned i = 0; i < 4; i++) {
			__m128i low = _mm_clmulepi64_si128(lanes[i], factors, 0x00);
			__m128i high = _mm_clmulepi64_si128(lanes[i], factors, 0x11);
			__m128i next = _mm_loadu_si128(
				(const __m128i *)(const void *)(at + 16 * (size_t)i));

			lanes[i] = _mm_xor_si128(next, _mm_xor_si128(low, high));
		}
	}
	memcpy(left, lanes, sizeof(left));
	return by_tables(0, left, sizeof(left));
}

static bool can_fold(void)
{
	return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("avx");
}

#else

static uint64_t by_folding(uint64_t reg, const uint8_t *at, size_t n)
{
	return by_tables(reg, at, n);
}

static bool can_fold(void)
{
	return false;
}

#endif

uint64_t crc64_tables(uint64_t crc, const void *bytes, size_t len_bytes)
{
	pthread_once(&once, fill);
	return ~by_tables(~crc, bytes, len_bytes);
}

uint64_t crc64(uint64_t crc, const void *bytes, size_t len_bytes)
{
	size_t n = len_bytes / FOLD_BYTES * FOLD_BYTES;
	const uint8_t *at = bytes;
	uint64_t reg = ~crc;

	pthread_once(&once, fill);
	if (n > 0 && can_fold()) {
		reg = by_folding(reg, at, n);
		at += n;
		len_bytes -= n;
	}
	return ~by_tables(reg, at, len_bytes);
}

uint64_t crc64_slow(uint64_t crc, const void *bytes, size_t len_bytes)
{
	const uint8_t *at = bytes;

	crc = ~crc;
	for (size_t i = 0; i < len_bytes; i++) {
		crc ^= at[i];
		for (int bit = 0; bit < 8; bit++) {
			crc = times_x(crc);
		}
	}
	return ~crc;
}
