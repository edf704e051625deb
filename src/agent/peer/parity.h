/*
 * Parity over the images of several hosts: of k data rows and m parity rows, any k give back the
 * others. A systematic Cauchy code, by ISA-L: in GF(2^8) with the polynomial 0x11d, parity row r
 * has coefficient 1 / ((k + r) ^ i) for data row i, at every byte. Pure.
 *
 * Rows have the same length. A host whose image is shorter is as one that ends with zeros: there,
 * its bytes need not be added, but rebuilding needs the zeros. The same on all hosts. Any thread
 * may use a struct parity that does not change.
 */
#ifndef AGENT_PEER_PARITY_H
#define AGENT_PEER_PARITY_H

#include <stddef.h>
#include <stdint.h>

struct pawl_err;

#define PARITY_DATA_MAX 32u /* data rows of a code, at most */
#define PARITY_ROWS_MAX 8u  /* parity rows of a code, at most */

struct parity {
	uint32_t k; /* number of data rows; their indices are 0 to k - 1 */
	uint32_t m; /* number of parity rows; with have, their indices are k to k + m - 1 */
	uint8_t *coefficients; /* k + m rows of k coefficients each; owned */
	uint8_t *tables;       /* ISA-L's tables of the m parity rows; owned */
};

/* PAWL_EINVAL: k is not 1 to PARITY_DATA_MAX, or m not 1 to PARITY_ROWS_MAX; PAWL_ENOMEM. */
int parity_init(struct parity *parity, uint32_t k, uint32_t m, struct pawl_err *err);
void parity_deinit(struct parity *parity); /* zeroed is fine */

/* Adds bytes of a data row, data_index, to those of a parity row, `row` (0 to m - 1), at the same
 * offset. The sum begins as zeros, and is whole once each data row was added once, in any order. */
void parity_add_row(const struct parity *parity, uint32_t row, uint32_t data_index,
	const uint8_t *data, size_t len_bytes, uint8_t *sum);

/* Computes bytes of the data row lost_data_index out of those of k rows at the same offset: rows[n]
 * has the bytes of the row with index have[n]. out must be apart from all of them. PAWL_EINVAL: an
 * index is out of range, or have names a row twice. */
int parity_rebuild(const struct parity *parity, const uint32_t *have, const uint8_t *const *rows,
	uint32_t lost_data_index, size_t len_bytes, uint8_t *out, struct pawl_err *err);

#endif
