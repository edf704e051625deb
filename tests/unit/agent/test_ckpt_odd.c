/*
 * Whatever is under any name in a root, no operation hangs or crashes, the newest whole step is
 * found and read, and the next one is saved. Each name is harmed in each way, one at a time.
 *
 * When started as root, the test runs as nobody: modes do not keep root out.
 */
#include "agent/persist/events.h"
#include "agent/persist/history.h"
#include "base/err.h"
#include "base/file.h"
#include "ckpt/format/retain.h"
#include "ckpt/root.h"
#include "ckpt/tags.h"
#include "sample.h"
#include "store/dirs.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#define NEWEST     4u /* step that is harmed; 2 and 1 are older */
#define OLDER      2u
#define SAVED      5u   /* step saved afterwards */
#define HANG_S     120u /* seconds until SIGALRM ends a test that hangs */
#define NOBODY     65534u
#define LARGE      ((off_t)3 << 30)
#define PATH_BYTES 512

/* How a name is harmed. */
enum kind {
	MISSING,
	EMPTY,
	CUT,
	GARBAGE,
	TOO_LARGE,
	DIRECTORY,
	FULL_DIRECTORY,
	FIFO,
	SOCKET,
	DEVICE,
	LINK_NOWHERE,
	LINK_LOOP,
	LINK_FIFO,
	LINK_DEVICE,
	LINK_GOOD,
	UNREADABLE,
	KINDS,
};
static const char *const kind_words[KINDS] = {"missing", "empty", "cut short", "garbage",
	"too large", "a directory", "a directory with something in it", "a FIFO", "a socket",
	"a device", "a link that leads nowhere", "a link to itself", "a link to a FIFO",
	"a link to a device", "a link to what was there", "unreadable"};

/* A name in a root. */
struct name {
	const char *path;
	bool matters; /* without this name, step NEWEST is not whole */
	bool blocks;  /* only the user may remove what is no plain file there */
};
static const struct name names[] = {
	{"global_step4", true, false}, {"global_step4/.pawl", true, false},
	{"global_step4/.pawl/manifest", true, false}, {"global_step4/complete.txt", true, false},
	{"global_step4/model", true, false}, {"global_step4/optim", true, false},
	{"global_step4/why.txt", false, false}, {"global_step4/others", false, false},
	{".pins", false, false}, {".pins.new", false, false}, {"latest", false, false},
	{".bad", false, false}, {HISTORY_FILE, false, false}, {EVENTS_FILE, false, false},
	{".pawl-lock", false, true}, {".pawl.global_step4.del", false, false},
	{".pawl.global_step5.new", false, false}, {".pawl.global_step5.old", false, false},
	{"lost+found", false, false},
	{"global_step9", false, true}, /* not a tag of ours; step 9 cannot be saved */
};

static char top[64]; /* directory of base, case and the targets of links */
static bool rights;  /* a mode of 000 keeps this process out */

static const char *in_case(const char *name)
{
	static char path[PATH_BYTES];

	snprintf(path, sizeof(path), "%s/case/%s", top, name);
	return path;
}

static const char *in_top(const char *name)
{
	static char path[PATH_BYTES];

	snprintf(path, sizeof(path), "%s/%s", top, name);
	return path;
}

/* Runs a shell command in top. */
static void run(const char *what)
{
	char command[PATH_BYTES + 64];
	char *argv[] = {(char[]){"sh"}, (char[]){"-c"}, command, NULL};
	int status = -1;
	pid_t pid;

	snprintf(command, sizeof(command), "cd %s && %s", top, what);
	assert_int_equal(posix_spawnp(&pid, "sh", NULL, NULL, argv, environ), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void copy_base(void)
{
	run("{ chmod -R u+rwx case aside; rm -rf case aside; cp -a base case; } 2>/dev/null");
}

/* ---- harm ---- */

static void put_file(const char *path, const char *text, off_t size_bytes)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	if (size_bytes > 0) {
		assert_int_equal(ftruncate(fd, size_bytes), 0);
	}
	close(fd);
}

static void put_socket(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0 && strlen(path) < sizeof(address.sun_path));
	memcpy(address.sun_path, path, strlen(path) + 1);
	assert_int_equal(bind(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
	close(fd);
}

/* Returns false if the system does not let us make a device. */
static bool put_device(const char *path)
{
	uid_t was = geteuid();
	int rc;

	if (seteuid(getuid()) != 0) {
		return false;
	}
	rc = mknod(path, S_IFCHR | 0666, 0x105); /* the zero device */
	if (rc == 0) {
		rc = chmod(path, 0666);
	}
	assert_int_equal(seteuid(was), 0);
	return rc == 0;
}

/* Makes something of that kind at a free path. Returns false if that kind cannot be made here. */
static bool put_kind(const char *path, enum kind kind, const char *good)
{
	switch (kind) {
	case EMPTY:
		put_file(path, "", 0);
		return true;
	case GARBAGE:
		put_file(path, "\x80\xff no such thing\n", 0);
		return true;
	case TOO_LARGE:
		put_file(path, "PAWLMANI", LARGE);
		return true;
	case DIRECTORY:
	case FULL_DIRECTORY:
		assert_int_equal(mkdir(path, 0700), 0);
		if (kind == FULL_DIRECTORY) {
			char inner[PATH_BYTES + 8];

			snprintf(inner, sizeof(inner), "%s/x", path);
			put_file(inner, "x", 0);
		}
		return true;
	case FIFO:
		return mkfifo(path, 0666) == 0;
	case SOCKET:
		put_socket(path);
		return true;
	case DEVICE:
		return put_device(path);
	case LINK_NOWHERE:
		return symlink("no/such/place", path) == 0;
	case LINK_LOOP:
		return symlink(path, path) == 0;
	case LINK_FIFO:
		return symlink(in_top("fifo"), path) == 0;
	case LINK_DEVICE:
		return symlink("/dev/zero", path) == 0;
	case LINK_GOOD:
		return symlink(good, path) == 0;
	default:
		return true;
	}
}

static bool harm(const char *name, enum kind kind)
{
	char path[PATH_BYTES];
	char good[PATH_BYTES];
	struct stat st;
	bool there;

	snprintf(path, sizeof(path), "%s", in_case(name));
	snprintf(good, sizeof(good), "%s", in_top("aside"));
	there = lstat(path, &st) == 0;
	if (kind == UNREADABLE || kind == CUT) {
		if (!there || (kind == UNREADABLE && !rights)) {
			return false;
		}
		return kind == UNREADABLE ? chmod(path, 0) == 0
					  : S_ISREG(st.st_mode) && st.st_size > 1 &&
				truncate(path, st.st_size / 2) == 0;
	}
	if (there) {
		assert_int_equal(rename(path, good), 0);
	} else if (kind == MISSING) {
		return false;
	} else {
		put_file(good, "x", 0);
	}
	return put_kind(path, kind, good);
}

/* ---- what must hold ---- */

static struct tags_root *open_case(void)
{
	struct tags_root *root;

	assert_int_equal(tags_root_open(in_case(""), NULL, false, &root, NULL), 0);
	return root;
}

/* Returns the step that a restore takes; a tag that proves damaged as it is read is put aside. */
static uint64_t find_step(struct tags_root *root)
{
	const struct tags_search search = {.stop = NULL};

	for (unsigned turn = 0; turn < 4; turn++) {
		struct manifest manifest;
		struct pawl_err err;
		int rv;

		assert_int_equal(tags_newest(root, &search, &manifest, &err), 0);
		rv = sample_load(root, manifest.tag, NULL, &err);
		if (rv == 0) {
			uint64_t step = manifest.step;

			manifest_deinit(&manifest);
			return step;
		}
		assert_true(rv == PAWL_ECORRUPT || rv == PAWL_EIO);
		assert_int_equal(tag_quarantine(root, manifest.tag, err.msg, NULL), 0);
		manifest_deinit(&manifest);
	}
	return 0;
}

/* Lists as `pawl ckpt ls` does: step OLDER is complete, whatever the others are. */
static void check_list(struct tags_root *root, uint64_t newest)
{
	struct tag_info *tags;
	bool older = false;
	size_t n;

	assert_int_equal(tags_list(root, NULL, &tags, &n, NULL), 0);
	for (size_t i = 0; i < n; i++) {
		bool complete = tags[i].state == TAG_COMPLETE;

		older = older || (tags[i].step == OLDER && complete);
		assert_true(
			complete || newest < NEWEST || strcmp(tags[i].tag, "global_step4") != 0);
		assert_true(complete || tags[i].why[0] != '\0');
	}
	free(tags);
	assert_true(older);
}

/* Verifies as `pawl ckpt verify` does: a tag is whole, damaged, or may not be read. */
static void check_verify(struct tags_root *root, uint64_t newest)
{
	struct manifest manifest;
	struct pawl_err err;
	int rv = tag_open(root, "global_step4", &manifest, &err);

	if (rv != 0 && rv != PAWL_ENOENT && rv != PAWL_ECORRUPT && !tag_access_denied(&err)) {
		fail_msg("%s: %s", pawl_err_name(rv), err.msg);
	}
	if (rv == 0) {
		rv = sample_load(root, "global_step4", NULL, &err);
		assert_true(newest == NEWEST ? rv == 0 : rv == PAWL_ECORRUPT || rv == PAWL_EIO);
		manifest_deinit(&manifest);
	}
}

/* Starts as an agent does. Nothing but a root that fails may end the start. */
static void check_start(struct tags_root *root)
{
	struct events_past past;
	struct rows rows;
	int64_t latest_ns;
	struct pawl_err err;

	assert_int_equal(tags_recover(root, &err), 0);
	assert_int_equal(rows_init(&rows, HISTORY_FILE, HISTORY_HEADER, NULL), 0);
	if (history_recover(&rows, root, &latest_ns, &err) == 0) {
		rows_write(&rows, root, true, &err);
	}
	rows_deinit(&rows);
	assert_int_equal(rows_init(&rows, EVENTS_FILE, EVENTS_HEADER, NULL), 0);
	events_recover(&rows, root, 0, &past, &err);
	rows_deinit(&rows);
}

static void check_save(struct tags_root *root)
{
	const struct retain_rule rule = {.keep_last = 2};
	struct tag_info *tags;
	size_t n;

	assert_int_equal(sample_save(sample_get(SAVED, 0), root, NULL), 0);
	assert_int_equal(find_step(root), SAVED);
	assert_int_equal(tag_remove(root, "global_step1", NULL), 0);
	tags_retain(root, &rule, NULL); /* a "latest" that cannot be read forbids it */
	assert_int_equal(find_step(root), SAVED);
	assert_int_equal(tags_list(root, NULL, &tags, &n, NULL), 0);
	free(tags);
	tag_pin(root, "global_step5", true, NULL);
	tags_check_pins(root, NULL);
}

static void check_lock(const struct name *name, enum kind kind)
{
	struct stat st;
	bool file = stat(in_case(".pawl-lock"), &st) != 0 || S_ISREG(st.st_mode);
	struct tags_root *root = open_case();
	struct pawl_err err;
	int rv = tags_root_lock(root, "odd", false, &err);

	if (!name->blocks || strcmp(name->path, ".pawl-lock") != 0) {
		assert_int_equal(rv, 0);
	} else if (kind == UNREADABLE || !file || lstat(in_case(".pawl-lock"), &st) != 0 ||
		S_ISLNK(st.st_mode)) {
		assert_int_equal(rv, PAWL_EIO);
		assert_non_null(strstr(err.msg, "lock file"));
	}
	tags_root_close(root);
}

static void check_case(const struct name *name, enum kind kind)
{
	uint64_t expected = name->matters && kind != LINK_GOOD ? OLDER : NEWEST;
	struct tags_root *root;

	copy_base();
	if (!harm(name->path, kind)) {
		return;
	}
	print_message("%s is %s\n", name->path, kind_words[kind]);
	alarm(HANG_S);
	root = open_case();
	check_lock(name, kind);
	check_start(root);
	check_list(root, expected);
	check_verify(root, expected);
	assert_int_equal(find_step(root), expected);
	check_save(root);
	tags_root_close(root);
	alarm(0);
}

static void anything_may_have_any_name(void **state)
{
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		for (enum kind kind = 0; kind < KINDS; kind++) {
			check_case(&names[i], kind);
		}
	}
}

/* Names that no tag can have, or that cannot be printed. */
static void any_name_may_lie_there(void **state)
{
	char longest[256];
	const char *const odd[] = {longest, "a\nb", "\x1b[2J", "\xff\xfe", "\xc3(", " ", "-rf", "~",
		"global_step99999999999999999999", "global_step4 ", "global_step04"};
	struct tags_root *root;

	memset(longest, 'x', sizeof(longest) - 1);
	longest[255] = '\0';
	copy_base();
	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
		char inner[PATH_BYTES + 8];

		assert_int_equal(mkdir(in_case(odd[i]), 0700), 0);
		snprintf(inner, sizeof(inner), "%s/.pawl", in_case(odd[i]));
		assert_int_equal(mkdir(inner, 0700), 0);
	}
	root = open_case();
	check_start(root);
	check_list(root, NEWEST);
	assert_int_equal(find_step(root), NEWEST);
	check_save(root);
	tags_root_close(root);
}

/* Nothing is ever written through a link, which may lead to anybody's file. */
static void nothing_is_written_through_a_link(void **state)
{
	static const char *const written[] = {"global_step4/why.txt", HISTORY_FILE, EVENTS_FILE,
		".pins", ".pins.new", ".pawl-lock"};
	struct stat st;

	for (size_t i = 0; i < sizeof(written) / sizeof(written[0]); i++) {
		struct tags_root *root;

		copy_base();
		unlink(in_case(written[i]));
		put_file(in_top("aside"), "theirs", 0);
		assert_int_equal(symlink(in_top("aside"), in_case(written[i])), 0);
		root = open_case();
		check_start(root);
		tag_quarantine(root, "global_step4", "a test", NULL);
		tag_pin(root, "global_step2", true, NULL);
		tags_root_lock(root, "odd", false, NULL);
		tags_root_close(root);
		assert_int_equal(stat(in_top("aside"), &st), 0);
		assert_int_equal(st.st_size, strlen("theirs"));
	}
}

static int make_base(void **state)
{
	static const uint64_t steps[] = {1, OLDER, NEWEST};
	struct tags_root *root;
	struct store *store;
	char path[PATH_BYTES];

	snprintf(top, sizeof(top), "/tmp/pawl_odd_XXXXXX");
	assert_non_null(mkdtemp(top));
	assert_int_equal(chmod(top, 0755), 0);
	rights = geteuid() != 0 ||
		(chown(top, NOBODY, NOBODY) == 0 && setegid(NOBODY) == 0 && seteuid(NOBODY) == 0);
	assert_int_equal(mkfifo(in_top("fifo"), 0666), 0);
	snprintf(path, sizeof(path), "%s", in_top("base"));
	assert_int_equal(tags_root_open(path, NULL, true, &root, NULL), 0);
	store = tags_root_store(root);
	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		assert_int_equal(sample_save(sample_get(steps[i], 0), root, NULL), 0);
	}
	assert_int_equal(store_write_small(store, "latest", "global_step4", 12, NULL), 0);
	assert_int_equal(store_write_small(store, "global_step4/others", "x", 1, NULL), 0);
	assert_int_equal(tag_pin(root, "global_step4", true, NULL), 0);
	assert_int_equal(store_mkdir(store, ".bad", NULL), 0);
	assert_int_equal(store_mkdir(store, "lost+found", NULL), 0);
	store_write_small(store, HISTORY_FILE, HISTORY_HEADER, strlen(HISTORY_HEADER), NULL);
	store_write_small(store, EVENTS_FILE, EVENTS_HEADER, strlen(EVENTS_HEADER), NULL);
	assert_int_equal(tags_root_lock(root, "odd", false, NULL), 0);
	tags_root_close(root);
	return 0;
}

static int remove_base(void **state)
{
	run("chmod -R u+rwx . && rm -rf *");
	assert_int_equal(seteuid(getuid()), 0);
	assert_int_equal(rmdir(top), 0);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(anything_may_have_any_name),
		cmocka_unit_test(any_name_may_lie_there),
		cmocka_unit_test(nothing_is_written_through_a_link),
	};

	return cmocka_run_group_tests(tests, make_base, remove_base);
}
