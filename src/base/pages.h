/* Maps memory for many bytes, and makes its pages present before it is written to: a fault for each
 * page costs more than filling it. Any thread. */
#ifndef BASE_PAGES_H
#define BASE_PAGES_H

#include <stdint.h>

#define PAGES_HUGE (2u << 20) /* bytes of a huge page */

/* Maps fd at a huge page's boundary, shared; fd -1: new memory, zeroed, of this process alone. Huge
 * pages are advised, and forks inherit nothing. NULL and errno on failure. */
uint8_t *pages_map(int fd, uint64_t size_bytes);
/* Makes new memory, as pages_map returned it, larger or smaller; both sizes are above 0. What is in
 * it stays, and is not copied, but may move. Returns where it is; NULL and errno on failure:
 * nothing has changed. */
uint8_t *pages_resize(uint8_t *map, uint64_t old_bytes, uint64_t size_bytes);
void pages_unmap(uint8_t *map, uint64_t size_bytes); /* NULL is fine */
/* Makes the pages present. at is the beginning of a page. Failure only makes later writes slower.
 * Takes long. */
void pages_populate(void *at, uint64_t size_bytes);

#endif
