/* Tests of the crash simulator itself: synced data survive every kind of crash. Data that were not
 * synced may be lost, torn or undone, and each of these happens over enough seeds. */
#include "../lib/seed.h"
#include "base/err.h"
#include "base/rng.h"
#include "store/dirs.h"
#include "store/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define CRASHES   64u /* crashes by MEM_TEAR, where a test looks for every outcome */
#define TEXT_MAX  64u
#define NO_FILE   "(none)"
#define SECTOR    512u
#define MODES_N   3
#define HISTORIES 1000u

static const enum mem_crash modes[MODES_N] = {MEM_KEEP, MEM_LOSE, MEM_TEAR};

static struct rng rng;
static struct store *store;

static int open_mem(void **state)
{
	return store_mem_open(&store, NULL);
}

static int close_mem(void **state)
{
	store_close(store);
	return 0;
}

static void put(const char *path, const char *text)
{
	assert_int_equal(store_write_small(store, path, text, strlen(text), NULL), 0);
}

/* Returns the text of a small file, or NO_FILE. */
static const char *text_of(struct store *s, const char *path, char text[TEXT_MAX])
{
	void *bytes;
	size_t len;

	if (store_read_small(s, path, &bytes, &len, TEXT_MAX - 1, NULL) != 0) {
		return NO_FILE;
	}
	memcpy(text, bytes, len + 1);
	free(bytes);
	return text;
}

static struct store *crash(enum mem_crash how)
{
	struct store *after;

	assert_int_equal(store_mem_after_crash(store, how, &rng, &after, NULL), 0);
	return after;
}

/* Returns the text of path after a crash. */
static const char *text_after(enum mem_crash how, const char *path, char text[TEXT_MAX])
{
	struct store *after = crash(how);
	const char *t = text_of(after, path, text);

	store_close(after);
	return t;
}

/* ---- names ---- */

static void unsynced_name_may_vanish(void **state)
{
	char text[TEXT_MAX];
	unsigned there = 0;

	put("f", "data"); /* synced data, unsynced name */
	assert_string_equal(text_after(MEM_KEEP, "f", text), "data");
	assert_string_equal(text_after(MEM_LOSE, "f", text), NO_FILE);
	for (unsigned i = 0; i < CRASHES; i++) {
		there += strcmp(text_after(MEM_TEAR, "f", text), "data") == 0;
	}
	assert_in_range(there, 1, CRASHES - 1);
	assert_int_equal(store_sync_dir(store, "", NULL), 0);
	for (unsigned i = 0; i < CRASHES; i++) {
		assert_string_equal(text_after(modes[i % MODES_N], "f", text), "data");
	}
}

static void removed_file_may_come_back(void **state)
{
	char text[TEXT_MAX];

	put("f", "data");
	assert_int_equal(store_sync_dir(store, "", NULL), 0);
	assert_int_equal(store_remove(store, "f", NULL), 0);
	assert_string_equal(text_after(MEM_LOSE, "f", text), "data");
	assert_string_equal(text_after(MEM_KEEP, "f", text), NO_FILE);
	assert_int_equal(store_sync_dir(store, "", NULL), 0);
	assert_string_equal(text_after(MEM_LOSE, "f", text), NO_FILE);
}

static void renamed_directory_takes_its_files(void **state)
{
	char text[TEXT_MAX];

	assert_int_equal(store_mkdir(store, "d.new", NULL), 0);
	put("d.new/f", "data");
	assert_int_equal(store_sync_dir(store, "d.new", NULL), 0);
	assert_int_equal(store_sync_dir(store, "", NULL), 0);
	assert_int_equal(store_rename(store, "d.new", "d", STORE_REPLACE, NULL), 0);
	assert_string_equal(text_after(MEM_LOSE, "d.new/f", text), "data");
	assert_string_equal(text_after(MEM_LOSE, "d/f", text), NO_FILE);
	assert_string_equal(text_after(MEM_KEEP, "d/f", text), "data");
	/* The file is at one name, never at both or none. */
	for (unsigned i = 0; i < CRASHES; i++) {
		struct store *after = crash(MEM_TEAR);
		bool old = strcmp(text_of(after, "d.new/f", text), "data") == 0;
		bool new = strcmp(text_of(after, "d/f", text), "data") == 0;

		assert_int_equal(old + new, 1);
		store_close(after);
	}
}

/* A rename between directories is undone or done as a whole, until one of them is synced. */
static void rename_across_needs_both_syncs(void **state)
{
	char text[TEXT_MAX];

	assert_int_equal(store_mkdir(store, "a", NULL), 0);
	assert_int_equal(store_mkdir(store, "b", NULL), 0);
	put("a/f", "data");
	assert_int_equal(store_sync_dir(store, "a", NULL), 0);
	assert_int_equal(store_sync_dir(store, "", NULL), 0);
	assert_int_equal(store_rename(store, "a/f", "b/f", STORE_REPLACE, NULL), 0);
	for (unsigned synced = 0; synced <= 2; synced++) {
		unsigned in_a = 0;
		unsigned in_b = 0;

		for (unsigned i = 0; i < CRASHES; i++) {
			struct store *after = crash(MEM_TEAR);
			bool a = strcmp(text_of(after, "a/f", text), "data") == 0;
			bool b = strcmp(text_of(after, "b/f", text), "data") == 0;

			assert_true(synced > 0 || a != b);
			in_a += a;
			in_b += b;
			store_close(after);
		}
		if (synced < 2) {
			assert_in_range(in_a, 1, CRASHES - 1);
		}
		if (synced == 0) {
			assert_int_equal(store_sync_dir(store, "b", NULL), 0);
			continue;
		}
		assert_int_equal(in_b, CRASHES); /* b is synced */
		assert_int_equal(in_a, synced < 2 ? in_a : 0);
		assert_int_equal(store_sync_dir(store, "a", NULL), 0);
	}
}

static void exchange_is_whole(void **state)
{
	char x[TEXT_MAX];
	char y[TEXT_MAX];
	unsigned swapped = 0;

	put("x", "1");
	put("y", "2");
	assert_int_equal(store_sync_dir(store, "", NULL), 0);
	assert_int_equal(store_rename(store, "x", "y", STORE_EXCHANGE, NULL), 0);
	for (unsigned i = 0; i < CRASHES; i++) {
		struct store *after = crash(MEM_TEAR);
		bool new = strcmp(text_of(after, "x", x), "2") == 0;

		assert_string_equal(text_of(after, "x", x), new ? "2" : "1");
		assert_string_equal(text_of(after, "y", y), new ? "1" : "2");
		swapped += new;
		store_close(after);
	}
	assert_in_range(swapped, 1, CRASHES - 1);
}

/* ---- data ---- */

#define BIG (4 * STORE_ALIGN)

/* Submits a write, and reaps nothing. */
static void submit_write(struct store_io *io, struct store_file *file, char *buf, char byte)
{
	memset(buf, byte, BIG);
	*io = (struct store_io){.file = file, .buf = buf, .len_bytes = BIG, .write = true};
	assert_int_equal(store_submit(store, io, NULL), 0);
}

/* Returns how many sectors of f are full of byte; all others must be full of other. */
static unsigned count_sectors(struct store *s, const char *path, char byte, char other)
{
	void *bytes;
	size_t len;
	unsigned n = 0;

	assert_int_equal(store_read_small(s, path, &bytes, &len, BIG, NULL), 0);
	assert_int_equal(len, BIG);
	for (size_t at = 0; at < BIG; at += SECTOR) {
		const char *sector = (char *)bytes + at;

		for (size_t i = 0; i < SECTOR; i++) {
			assert_int_equal(sector[i], sector[0]);
		}
		assert_true(sector[0] == byte || sector[0] == other);
		n += sector[0] == byte;
	}
	free(bytes);
	return n;
}

static void unsynced_data_is_kept_lost_or_torn(void **state)
{
	struct store_file *file;
	struct store_io io;
	char *buf = aligned_alloc(STORE_ALIGN, BIG);
	unsigned outcomes[3] = {0}; /* lost, torn, kept */

	assert_int_equal(store_create(store, "f", BIG, &file, NULL), 0);
	submit_write(&io, file, buf, 'a');
	assert_ptr_equal(store_reap(store, -1), &io);
	assert_int_equal(store_sync(store, file, NULL), 0);
	assert_int_equal(store_sync_dir(store, "", NULL), 0);
	submit_write(&io, file, buf, 'b');
	assert_int_equal(store_sync(store, file, NULL), 0); /* before the reap: does not cover it */
	assert_ptr_equal(store_reap(store, -1), &io);
	for (unsigned i = 0; i < CRASHES; i++) {
		struct store *after = crash(MEM_TEAR);
		unsigned n = count_sectors(after, "f", 'b', 'a');

		outcomes[n == 0 ? 0 : n == BIG / SECTOR ? 2 : 1]++;
		store_close(after);
	}
	for (unsigned i = 0; i < 3; i++) {
		assert_in_range(outcomes[i], 1, CRASHES - 2);
	}
	assert_int_equal(store_sync(store, file, NULL), 0);
	for (unsigned i = 0; i < MODES_N; i++) {
		struct store *after = crash(modes[i]);

		assert_int_equal(count_sectors(after, "f", 'b', 'b'), BIG / SECTOR);
		store_close(after);
	}
	store_close_file(store, file);
	free(buf);
}

/* The name is durable, the data never synced: the classic empty or zero-filled file. */
static void named_file_may_be_empty_or_short(void **state)
{
	struct store_file *file;
	struct store_io io;
	char *buf = aligned_alloc(STORE_ALIGN, BIG);
	unsigned short_n = 0;
	uint64_t size;

	assert_int_equal(store_create(store, "f", 0, &file, NULL), 0);
	submit_write(&io, file, buf, 'a');
	assert_ptr_equal(store_reap(store, -1), &io);
	assert_int_equal(store_sync_dir(store, "", NULL), 0);
	for (unsigned i = 0; i < CRASHES; i++) {
		struct store *after = crash(i == 0 ? MEM_LOSE : MEM_TEAR);

		assert_int_equal(store_stat(after, "f", NULL, &size, NULL), 0);
		assert_true(i > 0 || size == 0);
		short_n += size > 0 && size < BIG;
		store_close(after);
	}
	assert_true(short_n > 0);
	store_close_file(store, file);
	free(buf);
}

/* ---- any history ---- */

#define NAMES_N 4u
#define OPS_N   24u

/* The files that a name may lead to after a crash: one bit for each file ever made, bit 0 for
 * none. */
struct oracle {
	char text[OPS_N + 1][8]; /* text of file i; synced, so it is certain */
	uint64_t may[NAMES_N];   /* files that the name may lead to, since the last sync_dir */
	unsigned now[NAMES_N];   /* the file that the name leads to; 0: none */
	unsigned synced[NAMES_N];
	unsigned files;
};

static const char *const names[NAMES_N] = {"a", "b", "c", "d"};

static void set_name(struct oracle *o, unsigned name, unsigned file)
{
	o->now[name] = file;
	o->may[name] |= 1ull << file;
}

static void do_random_op(struct oracle *o)
{
	unsigned a = (unsigned)rng_below(&rng, NAMES_N);
	unsigned b = (unsigned)rng_below(&rng, NAMES_N);
	unsigned file = o->now[a];

	switch (rng_below(&rng, 6)) {
	case 0:
	case 1:
		if (file == 0) {
			file = ++o->files;
			set_name(o, a, file);
		}
		snprintf(o->text[file], sizeof(o->text[file]), "%u",
			(unsigned)rng_below(&rng, 999));
		put(names[a], o->text[file]);
		break;
	case 2:
		assert_int_equal(store_remove(store, names[a], NULL), 0);
		set_name(o, a, 0);
		break;
	case 3:
		if (file != 0 && a != b) {
			assert_int_equal(
				store_rename(store, names[a], names[b], STORE_REPLACE, NULL), 0);
			set_name(o, a, 0);
			set_name(o, b, file);
		}
		break;
	case 4:
		if (file != 0 && o->now[b] != 0) {
			assert_int_equal(
				store_rename(store, names[a], names[b], STORE_EXCHANGE, NULL), 0);
			set_name(o, a, o->now[b]);
			set_name(o, b, file);
		}
		break;
	default:
		assert_int_equal(store_sync_dir(store, "", NULL), 0);
		for (unsigned i = 0; i < NAMES_N; i++) {
			o->may[i] = 1ull << o->now[i];
			o->synced[i] = o->now[i];
		}
		break;
	}
}

static bool is_allowed(const struct oracle *o, unsigned name, const char *text)
{
	for (unsigned f = 0; f <= o->files; f++) {
		if ((o->may[name] >> f & 1) != 0 && strcmp(text, o->text[f]) == 0) {
			return true;
		}
	}
	return false;
}

static void check_crashes(const struct oracle *o)
{
	char text[TEXT_MAX];

	for (unsigned n = 0; n < NAMES_N; n++) {
		assert_string_equal(text_of(store, names[n], text), o->text[o->now[n]]);
		assert_string_equal(text_after(MEM_KEEP, names[n], text), o->text[o->now[n]]);
		assert_string_equal(text_after(MEM_LOSE, names[n], text), o->text[o->synced[n]]);
		assert_true(is_allowed(o, n, text_after(MEM_TEAR, names[n], text)));
	}
}

static void every_history_crashes_within_bounds(void **state)
{
	for (unsigned h = 0; h < HISTORIES; h++) {
		struct oracle o = {.text = {NO_FILE}, .may = {1, 1, 1, 1}};

		assert_int_equal(store_mem_open(&store, NULL), 0);
		for (unsigned i = 0; i < OPS_N; i++) {
			do_random_op(&o);
			check_crashes(&o);
		}
		store_close(store);
	}
	store_mem_open(&store, NULL); /* for the teardown */
}

/* ---- publish ---- */

/* Power is cut at every operation of a publish, then every kind of crash follows: the text is old
 * or new, and whole; new once publish has returned. */
static void publish_is_atomic(void **state)
{
	char text[TEXT_MAX];
	unsigned old_n = 0;
	unsigned new_n = 0;

	for (uint64_t cut = 1;; cut++) {
		int rv;

		assert_int_equal(store_mem_open(&store, NULL), 0);
		assert_int_equal(store_publish(store, "f", "the old text", 12, NULL), 0);
		store_mem_cut_at(store, store_mem_ops(store) + cut);
		rv = store_publish(store, "f", "new", 3, NULL);
		for (unsigned i = 0; i < 3 * CRASHES; i++) {
			const char *t = text_after(modes[i % MODES_N], "f", text);
			bool new = strcmp(t, "new") == 0;

			assert_true(new || (rv != 0 && strcmp(t, "the old text") == 0));
			old_n += !new;
			new_n += new;
		}
		if (rv == 0) {
			break;
		}
		assert_int_equal(rv, PAWL_EIO);
		store_close(store);
	}
	assert_true(old_n > 0 && new_n > 3 * CRASHES); /* also before it has returned */
}

static void publish_works_in_order(void **state)
{
	assert_string_equal(store_mem_trace(store), "");
	assert_int_equal(store_mkdir(store, "t", NULL), 0);
	assert_int_equal(store_publish(store, "t/f", "text", 4, NULL), 0);
	assert_string_equal(store_mem_trace(store),
		"mkdir t\n"
		"create t/f.new\n"
		"write t/f.new 0+4\n"
		"sync t/f.new\n"
		"rename t/f.new t/f\n"
		"sync_dir t\n");
	assert_int_equal(store_mem_ops(store), 6);
}

/* ---- the controls ---- */

static void after_the_cut_nothing_works(void **state)
{
	char text[TEXT_MAX];
	struct pawl_err err;
	struct store_file *file;
	struct store *after;

	put("f", "1");
	store_mem_cut_at(store, store_mem_ops(store) + 1);
	assert_string_equal(text_of(store, "f", text), "1"); /* the power is still on */
	assert_int_equal(store_write_small(store, "g", "2", 1, &err), PAWL_EIO);
	assert_string_equal(err.msg, "create g: power lost");
	assert_int_equal(store_read_small(store, "f", NULL, NULL, 9, &err), PAWL_EIO);
	assert_int_equal(store_open(store, "f", &file, NULL, &err), PAWL_EIO);
	assert_int_equal(store_stat(store, "f", NULL, NULL, &err), PAWL_EIO);
	assert_int_equal(store_list(store, "", NULL, NULL, &err), PAWL_EIO);
	assert_int_equal(store_sync_dir(store, "", &err), PAWL_EIO);
	assert_int_equal(store_remove(store, "f", &err), PAWL_EIO);
	after = crash(MEM_KEEP);
	assert_string_equal(text_of(after, "f", text), "1");
	assert_int_equal(store_write_small(after, "g", "2", 1, &err), 0); /* no cut in this copy */
	assert_string_equal(text_of(after, "g", text), "2");
	store_close(after);
}

static void tear_repeats_from_its_seed(void **state)
{
	char one[TEXT_MAX];
	char two[TEXT_MAX];

	for (unsigned i = 0; i < 20; i++) {
		char name[8];

		snprintf(name, sizeof(name), "f%u", i);
		put(name, name);
	}
	for (unsigned i = 0; i < CRASHES; i++) {
		struct rng first = {i};
		struct rng second = {i};
		struct store *a;
		struct store *b;

		store_mem_after_crash(store, MEM_TEAR, &first, &a, NULL);
		store_mem_after_crash(store, MEM_TEAR, &second, &b, NULL);
		assert_string_equal(text_of(a, "f7", one), text_of(b, "f7", two));
		store_close(a);
		store_close(b);
	}
}

static void flip_flips_one_bit(void **state)
{
	char text[TEXT_MAX];

	put("f", "aaa");
	assert_int_equal(store_mem_flip(store, "f", 8 + 1, NULL), 0);
	assert_string_equal(text_of(store, "f", text), "aca");
	assert_int_equal(store_sync_dir(store, "", NULL), 0);
	assert_string_equal(text_after(MEM_LOSE, "f", text), "aca");
	assert_int_equal(store_mem_flip(store, "f", 24, NULL), PAWL_EINVAL);
	assert_int_equal(store_mem_flip(store, "g", 0, NULL), PAWL_ENOENT);
}

static void files_have_a_limit(void **state)
{
	struct store_file *file;
	struct pawl_err err;

	assert_int_equal(store_create(store, "f", 1ull << 40, &file, &err), PAWL_ENOSPC);
}

#define MEM_TEST(f) cmocka_unit_test_setup_teardown(f, open_mem, close_mem)

int main(void)
{
	const struct CMUnitTest tests[] = {
		MEM_TEST(unsynced_name_may_vanish),
		MEM_TEST(removed_file_may_come_back),
		MEM_TEST(renamed_directory_takes_its_files),
		MEM_TEST(rename_across_needs_both_syncs),
		MEM_TEST(exchange_is_whole),
		MEM_TEST(unsynced_data_is_kept_lost_or_torn),
		MEM_TEST(named_file_may_be_empty_or_short),
		cmocka_unit_test_teardown(every_history_crashes_within_bounds, close_mem),
		cmocka_unit_test_teardown(publish_is_atomic, close_mem),
		MEM_TEST(publish_works_in_order),
		MEM_TEST(after_the_cut_nothing_works),
		MEM_TEST(tear_repeats_from_its_seed),
		MEM_TEST(flip_flips_one_bit),
		MEM_TEST(files_have_a_limit),
	};

	rng.state = test_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
