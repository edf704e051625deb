/* Puts pages into memory: see pages.h. In steps, so that mappings of this process can be changed in
 * between. */
#include "base/pages.h"

#include <sys/mman.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* sys/mman.h, for headers older than Linux 5.14 */
#endif
#define PAGES_STEP (8u << 20) /* bytes whose pages are made present by one call */

void pages_populate(void *at, uint64_t size_bytes)
{
	for (uint64_t off = 0; off < size_bytes; off += PAGES_STEP) {
		uint64_t left = size_bytes - off;

		madvise((char *)at + off, left < PAGES_STEP ? left : PAGES_STEP,
			MADV_POPULATE_WRITE);
	}
}
