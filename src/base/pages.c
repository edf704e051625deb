/* Memory for many bytes: see pages.h. Pages are made present in steps, so that mappings of this
 * process can be changed in between. */
#include "base/pages.h"

#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* sys/mman.h, for headers older than Linux 5.14 */
#endif
#define PAGES_STEP (8u << 20) /* bytes whose pages are made present by one call */

static uint64_t whole_pages(uint64_t size_bytes)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

	return (size_bytes + page - 1) / page * page;
}

uint8_t *pages_map(int fd, uint64_t size_bytes)
{
	uint64_t size = whole_pages(size_bytes);
	uint64_t room = size + PAGES_HUGE;
	int kind = fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
	uint8_t *at =
		mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	uint8_t *map;
	uint64_t head;

	if (at == MAP_FAILED) {
		return NULL;
	}
	head = (PAGES_HUGE - (uintptr_t)at % PAGES_HUGE) % PAGES_HUGE;
	map = mmap(at + head, size, PROT_READ | PROT_WRITE, kind | MAP_FIXED, fd, 0);
	if (map == MAP_FAILED) {
		munmap(at, room);
		return NULL;
	}
	if (head > 0) {
		munmap(at, head);
	}
	munmap(map + size, PAGES_HUGE - head);
	madvise(map, size, MADV_HUGEPAGE); /* refused where huge pages are off: only slower */
	madvise(map, size, MADV_DONTFORK);
	return map;
}

uint8_t *pages_resize(uint8_t *map, uint64_t old_bytes, uint64_t size_bytes)
{
	uint64_t old = whole_pages(old_bytes);
	uint64_t size = whole_pages(size_bytes);
	uint8_t *grown;

	if (size <= old) {
		if (size < old) {
			munmap(map + size, old - size);
		}
		return map;
	}
	grown = pages_map(-1, size_bytes);
	if (grown == NULL) {
		return NULL;
	}
	if (mremap(map, old, old, MREMAP_MAYMOVE | MREMAP_FIXED, grown) == MAP_FAILED) {
		pages_unmap(grown, size_bytes);
		return NULL;
	}
	return grown;
}

void pages_unmap(uint8_t *map, uint64_t size_bytes)
{
	if (map != NULL) {
		munmap(map, whole_pages(size_bytes));
	}
}

void pages_populate(void *at, uint64_t size_bytes)
{
	for (uint64_t off = 0; off < size_bytes; off += PAGES_STEP) {
		uint64_t left = size_bytes - off;

		madvise((char *)at + off, left < PAGES_STEP ? left : PAGES_STEP,
			MADV_POPULATE_WRITE);
	}
}
