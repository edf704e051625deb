/* The functions of a fuzz target. libFuzzer calls them, or driver.c where there is none. */
#ifndef TEST_FUZZ_H
#define TEST_FUZZ_H

#include <stddef.h>
#include <stdint.h>

#define FUZZ_SEEDS_MAX 32u         /* valid inputs of a target, at most */
#define FUZZ_BYTES_MAX (64u << 10) /* length of an input that the driver makes, at most */

/* Decodes the bytes; aborts if the result breaks a promise. Returns 0. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len_bytes);

/* Writes valid input i to buf (FUZZ_BYTES_MAX) and returns its length; 0 if there is none. */
size_t fuzz_seed(unsigned i, uint8_t *buf);

#endif
