/* Quantities of Kubernetes, such as "500m" of a CPU or "16Gi" of memory. Pure. */
#ifndef ENGINE_K8S_QUANTITY_H
#define ENGINE_K8S_QUANTITY_H

#include <stdbool.h>
#include <stdint.h>

#define QUANTITY_TEXT_MAX 64u /* bytes of a quantity, terminator included */

/*
 * Reads a quantity in units of 1/per: per 1 for bytes or devices, 1000 for thousandths of a CPU.
 * What is between two units is rounded up, as the API server does; what is more than UINT64_MAX is
 * that. The grammar is that of apimachinery's resource.Quantity: a number with or without a
 * fraction, and then nothing, one of n u m k M G T P E, one of Ki Mi Gi Ti Pi Ei, or a decimal
 * exponent, e3 or E-3. Returns false if the text is no quantity, or negative.
 */
bool quantity_read(const char *text, uint32_t per, uint64_t *value);

#endif
