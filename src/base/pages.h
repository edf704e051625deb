/* Putting pages into memory before it is written to: taking a fault for each costs more than
 * filling it does. */
#ifndef BASE_PAGES_H
#define BASE_PAGES_H

#include <stdint.h>

/* at is the beginning of a page. Failure only makes it slower. Any thread; takes long. */
void pages_populate(void *at, uint64_t size_bytes);

#endif
