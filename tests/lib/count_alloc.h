/* Counts the calls of the allocator: a test defines count_call, which each allocator call runs, in
 * any thread. A test that has defined ALLOC_FAILS before also defines fail_call, which returns
 * whether an allocation fails. Allocations of shared libraries call it as well; old is the memory
 * that a realloc moves, or NULL. Under a sanitizer, which has its own allocator, there is only a
 * main that skips, and SANITIZED is defined. */
#ifndef TEST_COUNT_ALLOC_H
#define TEST_COUNT_ALLOC_H

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif

#ifdef SANITIZED
int main(void)
{
	printf("skipped: the sanitizer has an allocator of its own\n");
	return 77;
}
#else

static void count_call(void);

#ifdef ALLOC_FAILS
static int fail_call(const void *old);
#pragma GCC visibility push(default)
#else
#define fail_call(old) 0
#endif

/* glibc's own functions, under the names it keeps for this */
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t nmemb, size_t size);
extern void *__libc_realloc(void *ptr, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);
extern void __libc_free(void *ptr);

/* The result of an allocation that fails. */
static void *no_memory(void)
{
	errno = ENOMEM;
	return NULL;
}

void *malloc(size_t size)
{
	count_call();
	return fail_call(NULL) ? no_memory() : __libc_malloc(size);
}

void *calloc(size_t nmemb, size_t size)
{
	count_call();
	return fail_call(NULL) ? no_memory() : __libc_calloc(nmemb, size);
}

void *realloc(void *ptr, size_t size)
{
	count_call();
	return fail_call(ptr) ? no_memory() : __libc_realloc(ptr, size);
}

int posix_memalign(void **memptr, size_t alignment, size_t size)
{
	count_call();
	*memptr = __libc_memalign(alignment, size);
	return *memptr == NULL ? ENOMEM : 0;
}

void *aligned_alloc(size_t alignment, size_t size)
{
	count_call();
	return __libc_memalign(alignment, size);
}

void free(void *ptr)
{
	if (ptr != NULL) {
		count_call();
	}
	__libc_free(ptr);
}

#ifdef ALLOC_FAILS
#pragma GCC visibility pop
#endif

#endif
#endif
