/* Parity by ISA-L's erasure codes: see parity.h. ISA-L takes lengths as int, and pointers that are
 * not const to what it only reads. */
#include "agent/peer/parity.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"

#include <isa-l/erasure_code.h>
#include <stdlib.h>
#include <string.h>

#define CALL_BYTES_MAX (1u << 30) /* bytes in one call, whose length is an int */
#define TABLE_BYTES    32u        /* bytes of ISA-L's table of one coefficient */

int parity_init(struct parity *parity, uint32_t k, uint32_t m, struct pawl_err *err)
{
	uint8_t *coefficients;
	uint8_t *tables;

	if (k < 1 || k > PARITY_DATA_MAX || m < 1 || m > PARITY_ROWS_MAX) {
		return pawl_err_set(err, PAWL_EINVAL,
			"parity of %u + %u hosts: 1 to %u with data, and 1 to %u with parity", k, m,
			PARITY_DATA_MAX, PARITY_ROWS_MAX);
	}
	coefficients = FAULT_MEM("parity.init", malloc((size_t)(k + m) * k));
	tables = FAULT_MEM("parity.init", malloc((size_t)TABLE_BYTES * k * m));
	if (coefficients == NULL || tables == NULL) {
		free(coefficients);
		free(tables);
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for the parity of %u + %u hosts",
			k, m);
	}
	gf_gen_cauchy1_matrix(coefficients, (int)(k + m), (int)k);
	ec_init_tables((int)k, (int)m, coefficients + (size_t)k * k, tables);
	*parity = (struct parity){.k = k, .m = m, .coefficients = coefficients, .tables = tables};
	return 0;
}

void parity_deinit(struct parity *parity)
{
	free(parity->coefficients);
	free(parity->tables);
	*parity = (struct parity){0};
}

void parity_add_row(const struct parity *parity, uint32_t row, uint32_t data_index,
	const uint8_t *data, size_t len_bytes, uint8_t *sum)
{
	uint8_t *tables = parity->tables + (size_t)TABLE_BYTES * parity->k * row;

	ASSERT(data_index < parity->k && row < parity->m);
	for (size_t off = 0; off < len_bytes;) {
		size_t len = len_bytes - off < CALL_BYTES_MAX ? len_bytes - off : CALL_BYTES_MAX;
		uint8_t *at = sum + off;

		ec_encode_data_update((int)len, (int)parity->k, 1, (int)data_index, tables,
			(uint8_t *)data + off, &at);
		off += len;
	}
}

static int check_rows(const struct parity *parity, const uint32_t *have, uint32_t lost_data_index,
	struct pawl_err *err)
{
	if (lost_data_index >= parity->k) {
		return pawl_err_set(err, PAWL_EINVAL, "parity: there is no data row %u of %u",
			lost_data_index, parity->k);
	}
	for (uint32_t n = 0; n < parity->k; n++) {
		if (have[n] >= parity->k + parity->m) {
			return pawl_err_set(err, PAWL_EINVAL, "parity: there is no row %u of %u",
				have[n], parity->k + parity->m);
		}
	}
	return 0;
}

/* Finds the coefficients by which the rows of have sum up to a data row. */
static int solve(const struct parity *parity, const uint32_t *have, uint32_t data_index,
	uint8_t coefficients[PARITY_DATA_MAX], struct pawl_err *err)
{
	uint8_t matrix[PARITY_DATA_MAX * PARITY_DATA_MAX];
	uint8_t inverse[PARITY_DATA_MAX * PARITY_DATA_MAX];
	uint32_t k = parity->k;

	for (uint32_t n = 0; n < k; n++) {
		memcpy(matrix + (size_t)n * k, parity->coefficients + (size_t)have[n] * k, k);
	}
	if (gf_invert_matrix(matrix, inverse, (int)k) != 0) {
		/* Any k different rows have an inverse. */
		return pawl_err_set(err, PAWL_EINVAL,
			"parity: a row is given twice, and %u different ones are needed", k);
	}
	memcpy(coefficients, inverse + (size_t)data_index * k, k);
	return 0;
}

int parity_rebuild(const struct parity *parity, const uint32_t *have, const uint8_t *const *rows,
	uint32_t lost_data_index, size_t len_bytes, uint8_t *out, struct pawl_err *err)
{
	uint8_t coefficients[PARITY_DATA_MAX];
	uint8_t tables[TABLE_BYTES * PARITY_DATA_MAX];
	uint8_t *at[PARITY_DATA_MAX];
	int rv = check_rows(parity, have, lost_data_index, err);

	if (rv == 0) {
		rv = solve(parity, have, lost_data_index, coefficients, err);
	}
	if (rv != 0) {
		return rv;
	}
	ec_init_tables((int)parity->k, 1, coefficients, tables);
	for (size_t off = 0; off < len_bytes;) {
		size_t len = len_bytes - off < CALL_BYTES_MAX ? len_bytes - off : CALL_BYTES_MAX;
		uint8_t *to = out + off;

		for (uint32_t n = 0; n < parity->k; n++) {
			at[n] = (uint8_t *)rows[n] + off;
		}
		ec_encode_data((int)len, (int)parity->k, 1, tables, at, &to);
		off += len;
	}
	return 0;
}
