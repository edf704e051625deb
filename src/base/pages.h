/* Makes pages present before memory is written to: a fault for each page costs more than filling
 * it. */
#ifndef BASE_PAGES_H
#define BASE_PAGES_H

#include <stdint.h>

/* Makes the pages present. at is the beginning of a page. Failure only makes later writes slower.
 * Any thread; takes long. */
void pages_populate(void *at, uint64_t size_bytes);

#endif
