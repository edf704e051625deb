/*
 * The kernel's watch over memory: see snap_watch.h for the contract.
 *
 * userfaultfd write-protects pages; with WP_ASYNC the kernel lets a writer through by itself and
 * drops the page's protection. PAGEMAP_SCAN tells protected pages from written ones. A page counts
 * as untouched only if it is in a registered mapping, still protected, and present: kernels differ
 * in their reports about a page that was dropped (MADV_DONTNEED) or never touched.
 */
#include "ckpt/snap/snap_watch.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"
#include "ckpt/format/pieces.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/userfaultfd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* from linux/userfaultfd.h, for headers older than 6.7 */
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1 /* needs no privilege */
#endif
#ifndef UFFD_FEATURE_WP_UNPOPULATED
#define UFFD_FEATURE_WP_UNPOPULATED (1ull << 13) /* also protects pages that were never touched */
#endif
#ifndef UFFD_FEATURE_WP_ASYNC
#define UFFD_FEATURE_WP_ASYNC (1ull << 15) /* writers do not wait for us */
#endif

/* from linux/fs.h, for headers older than 6.7 */
#ifndef PAGEMAP_SCAN
#define PAGEMAP_SCAN      _IOWR('f', 16, struct pm_scan_arg)
#define PAGE_IS_WPALLOWED (1ull << 0) /* in a registered mapping */
#define PAGE_IS_WRITTEN   (1ull << 1) /* not protected, or no longer */
#define PAGE_IS_PRESENT   (1ull << 3)
#define PAGE_IS_SWAPPED   (1ull << 4) /* swapped out; or protected and never touched */

struct page_region {
	uint64_t start;      /* address */
	uint64_t end;        /* address, exclusive */
	uint64_t categories; /* PAGE_IS_… that hold for all its pages */
};

struct pm_scan_arg {
	uint64_t size;                /* size of this struct */
	uint64_t flags;               /* none are used */
	uint64_t start;               /* address */
	uint64_t end;                 /* address, exclusive */
	uint64_t walk_end;            /* out: where the kernel stopped */
	uint64_t vec;                 /* address of struct page_region[vec_len] */
	uint64_t vec_len;             /* entries */
	uint64_t max_pages;           /* 0: no limit */
	uint64_t category_inverted;   /* categories whose sense is inverted in the masks below */
	uint64_t category_mask;       /* report pages with all of these; 0: every page */
	uint64_t category_anyof_mask; /* report pages with any of these; 0: every page */
	uint64_t return_mask;         /* categories to report */
};

_Static_assert(sizeof(struct page_region) == 3 * 8 && sizeof(struct pm_scan_arg) == 12 * 8,
	"the layout is the kernel's");
#endif

#define SCAN_REGIONS_MAX 64 /* runs fetched from the kernel in one call */

static int open_uffd(struct watch *watch, struct pawl_err *err)
{
	const uint64_t features = UFFD_FEATURE_WP_ASYNC | UFFD_FEATURE_WP_UNPOPULATED;
	struct uffdio_api api = {.api = UFFD_API, .features = features};

	watch->uffd = (int)FAULT_SYS("watch.uffd",
		syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY));
	if (watch->uffd < 0) {
		return pawl_err_set(err, PAWL_ENOTSUP, "userfaultfd: %s", strerror(errno));
	}
	if (FAULT_SYS("watch.api", ioctl(watch->uffd, UFFDIO_API, &api)) != 0) {
		return pawl_err_set(err, PAWL_ENOTSUP,
			"userfaultfd: no asynchronous write protection (Linux 6.7): %s",
			strerror(errno));
	}
	watch->pagemap =
		FAULT_SYS("watch.pagemap", open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
	if (watch->pagemap < 0) {
		return pawl_err_set(err, PAWL_ENOTSUP, "open /proc/self/pagemap: %s",
			strerror(errno));
	}
	return 0;
}

static void count_hit(void *user, struct snap_range run)
{
	*(size_t *)user += run.hi - run.lo;
}

/* Tests the watch: writes to one of three pages, the last of which was never touched, and checks
 * that only that page is reported. */
static int try_pages(const struct watch *watch, uint8_t *pages, struct pawl_err *err)
{
	struct snap_range range = {(uintptr_t)pages, (uintptr_t)pages + (size_t)3 * CKPT_PAGE};
	size_t untouched = 0;
	size_t written = 0;

	memset(pages, 1, (size_t)2 * CKPT_PAGE);
	if (!watch_register(watch, range) || !watch_protect(watch, range)) {
		return pawl_err_set(err, PAWL_ENOTSUP, "userfaultfd: protect a page: %s",
			strerror(errno));
	}
	watch_scan(watch, range, count_hit, &untouched);
	pages[0] = 2;
	watch_scan(watch, range, count_hit, &written);
	if (untouched != 0 || written != CKPT_PAGE) {
		return pawl_err_set(err, PAWL_ENOTSUP,
			"PAGEMAP_SCAN: does not report written pages");
	}
	return 0;
}

static int try_watch(const struct watch *watch, struct pawl_err *err)
{
	const size_t size_bytes = (size_t)3 * CKPT_PAGE;
	void *pages = FAULT_SYS("watch.try",
		mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	int rv;

	if (pages == MAP_FAILED) {
		return pawl_err_set(err, PAWL_ENOTSUP, "map three pages: %s", strerror(errno));
	}
	rv = try_pages(watch, pages, err);
	munmap(pages, size_bytes);
	return rv;
}

int watch_open(struct watch *watch, struct pawl_err *err)
{
	const char *no_uffd = getenv("PAWL_NO_UFFD");
	int rv;

	*watch = (struct watch){-1, -1};
	if (no_uffd != NULL && strcmp(no_uffd, "1") == 0) {
		return pawl_err_set(err, PAWL_ENOTSUP, "PAWL_NO_UFFD is set");
	}
	if (sysconf(_SC_PAGESIZE) != CKPT_PAGE) {
		return pawl_err_set(err, PAWL_ENOTSUP, "pages of %ld bytes, not of %u",
			sysconf(_SC_PAGESIZE), CKPT_PAGE);
	}
	rv = open_uffd(watch, err);
	if (rv == 0) {
		rv = try_watch(watch, err);
	}
	if (rv != 0) {
		watch_close(watch);
	}
	return rv;
}

void watch_close(struct watch *watch)
{
	if (watch->uffd >= 0) {
		close(watch->uffd);
	}
	if (watch->pagemap >= 0) {
		close(watch->pagemap);
	}
	*watch = (struct watch){-1, -1};
}

/* Parses a line of /proc/self/maps. Returns whether the mapping is private and anonymous, and its
 * range. */
static bool parse_mapping(const char *line, struct snap_range *range)
{
	char perms[5];
	uint64_t inode;

	return sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s %*s %*s %" SCNu64, &range->lo,
		       &range->hi, perms, &inode) == 4 &&
		perms[3] == 'p' && inode == 0;
}

static bool append_range(struct snap_range **ranges, size_t *n, size_t *cap,
	struct snap_range range)
{
	if (*n > 0 && (*ranges)[*n - 1].hi == range.lo) {
		(*ranges)[*n - 1].hi = range.hi;
		return true;
	}
	if (*n == *cap) {
		size_t more = *cap == 0 ? 256 : *cap * 2;
		struct snap_range *at =
			FAULT_MEM("watch.ranges", realloc(*ranges, more * sizeof(*at)));

		if (at == NULL) {
			return false;
		}
		*ranges = at;
		*cap = more;
	}
	(*ranges)[(*n)++] = range;
	return true;
}

int watch_ranges(struct snap_range **ranges, size_t *n, struct pawl_err *err)
{
	FILE *maps = FAULT_MEM("watch.maps", fopen("/proc/self/maps", "re"));
	struct snap_range range;
	size_t cap = 0;
	char *line = NULL;
	size_t line_cap_bytes = 0;
	int rv = 0;

	if (maps == NULL) {
		return pawl_err_sys(err, "open /proc/self/maps");
	}
	*ranges = NULL;
	*n = 0;
	while (rv == 0 && getline(&line, &line_cap_bytes, maps) > 0) {
		if (parse_mapping(line, &range) && !append_range(ranges, n, &cap, range)) {
			rv = pawl_err_set(err, PAWL_ENOMEM, "no memory to list %zu mappings", *n);
		}
	}
	if (rv != 0) {
		free(*ranges);
	}
	free(line);
	fclose(maps);
	return rv;
}

bool watch_register(const struct watch *watch, struct snap_range range)
{
	struct uffdio_register arg = {.range = {range.lo, range.hi - range.lo},
		.mode = UFFDIO_REGISTER_MODE_WP};

	return FAULT_SYS("watch.register", ioctl(watch->uffd, UFFDIO_REGISTER, &arg)) == 0;
}

void watch_unregister(const struct watch *watch, struct snap_range range)
{
	struct uffdio_range arg = {range.lo, range.hi - range.lo};

	(void)ioctl(watch->uffd, UFFDIO_UNREGISTER, &arg); /* fails if the memory is gone */
}

static bool is_whole_pages(struct snap_range range)
{
	return range.lo % CKPT_PAGE == 0 && range.hi % CKPT_PAGE == 0 && range.lo <= range.hi;
}

static bool set_protection(const struct watch *watch, struct snap_range range, uint64_t mode)
{
	struct uffdio_writeprotect arg = {.range = {range.lo, range.hi - range.lo}, .mode = mode};

	ASSERT(is_whole_pages(range));
	return ioctl(watch->uffd, UFFDIO_WRITEPROTECT, &arg) == 0;
}

bool watch_protect(const struct watch *watch, struct snap_range range)
{
	return FAULT_SYS("watch.protect",
		       set_protection(watch, range, UFFDIO_WRITEPROTECT_MODE_WP) ? 0 : -1) == 0;
}

void watch_lift(const struct watch *watch, struct snap_range range)
{
	(void)set_protection(watch, range, 0);
}

static bool is_untouched(uint64_t categories)
{
	return (categories & PAGE_IS_WPALLOWED) != 0 && (categories & PAGE_IS_WRITTEN) == 0 &&
		(categories & (PAGE_IS_PRESENT | PAGE_IS_SWAPPED)) != 0;
}

void watch_scan(const struct watch *watch, struct snap_range range, watch_hit_fn *hit, void *user)
{
	struct page_region regions[SCAN_REGIONS_MAX];
	uintptr_t proven = range.lo; /* everything below is untouched or was given to hit */

	ASSERT(is_whole_pages(range));
	for (uintptr_t at = range.lo; at < range.hi;) {
		struct pm_scan_arg arg = {.size = sizeof(arg),
			.start = at,
			.end = range.hi,
			.vec = (uintptr_t)regions,
			.vec_len = SCAN_REGIONS_MAX,
			.return_mask = PAGE_IS_WPALLOWED | PAGE_IS_WRITTEN | PAGE_IS_PRESENT |
				PAGE_IS_SWAPPED};
		int n = FAULT_SYS("watch.scan", ioctl(watch->pagemap, PAGEMAP_SCAN, &arg));

		for (int i = 0; i < n; i++) {
			if (!is_untouched(regions[i].categories)) {
				continue;
			}
			if (regions[i].start > proven) {
				hit(user, (struct snap_range){proven, regions[i].start});
			}
			proven = regions[i].end;
		}
		if (n < 0 || arg.walk_end <= at) {
			break; /* the rest is not proven */
		}
		at = arg.walk_end;
	}
	if (proven < range.hi) {
		hit(user, (struct snap_range){proven, range.hi});
	}
}
