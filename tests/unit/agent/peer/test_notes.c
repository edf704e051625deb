/* Notes: written, read, listed in order and removed; roots keep apart; limits and short memory
 * leave everything as it was. */
#include "agent/peer/notes.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/rng.h"
#include "base/wire.h"
#include "seed.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include "expect.h"

#define ROOT    7u
#define THREADS 4
#define TURNS   2000u

static struct notes *notes;
static struct pawl_err err;

static int begin(void **state)
{
	return notes_open(&notes, &err);
}

static int end(void **state)
{
	notes_close(notes);
	return 0;
}

static void put(const char *path, const char *text)
{
	OK(notes_write(notes, ROOT, path, text, strlen(text), &err));
}

static void assert_note(const char *path, const char *text)
{
	struct wire_out out = {0};

	wire_put_u8(&out, 'x'); /* a note goes behind what is there */
	OK(notes_read(notes, ROOT, path, &out, &err));
	assert_int_equal(out.len_bytes, 1 + strlen(text));
	assert_memory_equal(out.bytes + 1, text, strlen(text));
	wire_out_deinit(&out);
}

static void assert_no_note(uint64_t root, const char *path)
{
	struct wire_out out = {0};

	FAILS(PAWL_ENOENT, notes_read(notes, root, path, &out, &err));
	SAYS(path);
	assert_int_equal(out.len_bytes, 0);
	wire_out_deinit(&out);
}

/* names: each with a space behind it. */
static void assert_names(const char *folder, const char *names)
{
	struct wire_out out = {0};

	OK(notes_list(notes, ROOT, folder, &out, &err));
	assert_int_equal(out.len_bytes, strlen(names));
	for (size_t i = 0; i < out.len_bytes; i++) {
		assert_int_equal(out.bytes[i] != '\0' ? out.bytes[i] : ' ', (uint8_t)names[i]);
	}
	wire_out_deinit(&out);
}

static void what_is_written_is_read(void **state)
{
	assert_no_note(ROOT, "a");
	put("a", "one");
	put("b/c", "");
	assert_note("a", "one");
	assert_note("b/c", "");
	put("a", "another, longer one");
	assert_note("a", "another, longer one");
	put("a", "1");
	assert_note("a", "1");
	assert_no_note(ROOT, "b");
	assert_no_note(ROOT, "b/");
	assert_no_note(ROOT, "b/c/d");
	assert_no_note(ROOT + 1, "a");
}

/* A name comes once, in order, whatever else begins like it: "." and "!" come before "/". */
static void names_of_a_folder_are_listed(void **state)
{
	assert_names("", "");
	put("a/b/c/d", "1");
	put("a/b.x", "2");
	put("a/b", "3");
	put("a/b!", "4");
	put("a/b/e", "5");
	put("a!", "6");
	put("a.b/c", "7");
	put("z", "8");
	put("a/\xc3\xa9", "9");
	OK(notes_write(notes, ROOT + 1, "a/other", "", 0, &err));
	OK(notes_write(notes, ROOT - 1, "a/other", "", 0, &err));
	assert_names("", "a a! a.b z ");
	assert_names("a", "b b! b.x \xc3\xa9 ");
	assert_names("a/b", "c e ");
	assert_names("a/b/c", "d ");
	assert_names("a/b/c/d", "");
	assert_names("b", "");
	assert_names("a/", "");
}

static void a_note_or_a_folder_is_removed(void **state)
{
	struct wire_out out = {0};

	put("a/b/c", "1");
	put("a/b.x", "2");
	put("a/b", "3");
	put("a!", "4");
	OK(notes_write(notes, ROOT + 1, "a/b", "5", 1, &err));
	notes_remove(notes, ROOT, "a/nothing");
	notes_remove(notes, ROOT, "nothing");
	assert_names("a", "b b.x ");
	notes_remove(notes, ROOT, "a/b");
	assert_no_note(ROOT, "a/b");
	assert_no_note(ROOT, "a/b/c");
	assert_note("a/b.x", "2");
	notes_remove(notes, ROOT, "a");
	assert_names("", "a! ");
	put("a/b", "again");
	assert_note("a/b", "again");
	notes_remove(notes, ROOT, "");
	assert_names("", "");
	notes_remove(notes, ROOT, "");
	assert_no_note(ROOT, "a!");
	OK(notes_read(notes, ROOT + 1, "a/b", &out, &err));
	wire_out_deinit(&out);
}

/* Any order of writing and removing leaves what a plain table has. */
static void many_notes_are_kept_in_order(void **state)
{
	struct rng rng = {test_seed()};
	char want[200] = {0}; /* byte of each note; 0: it is not there */

	for (unsigned i = 0; i < 20000; i++) {
		unsigned k = (unsigned)rng_below(&rng, sizeof(want));
		char path[32];

		snprintf(path, sizeof(path), "n%03u", k);
		want[k] = (char)(rng_below(&rng, 3) == 0 ? 0 : 'a' + (int)rng_below(&rng, 26));
		if (want[k] != 0) {
			OK(notes_write(notes, ROOT, path, &want[k], 1, &err));
		} else {
			notes_remove(notes, ROOT, path);
		}
	}
	for (unsigned k = 0; k < sizeof(want); k++) {
		char path[32];

		snprintf(path, sizeof(path), "n%03u", k);
		if (want[k] != 0) {
			assert_note(path, (char[]){want[k], 0});
		} else {
			assert_no_note(ROOT, path);
		}
	}
}

/* Paths count as well. A note that is refused is not read: the bytes need not be there. */
static void all_notes_together_have_a_limit(void **state)
{
	static const uint8_t bytes[1000];
	const size_t limit = NOTES_BYTES_MAX;

	FAILS(PAWL_ELIMIT, notes_write(notes, ROOT, "a", bytes, limit - 1, &err));
	SAYS("note a");
	FAILS(PAWL_ELIMIT, notes_write(notes, ROOT, "a", bytes, SIZE_MAX, &err));
	OK(notes_write(notes, ROOT, "a", bytes, 1000, &err));
	FAILS(PAWL_ELIMIT, notes_write(notes, ROOT, "b", bytes, limit - 1003, &err));
	fault_arm("notes.write", 1, ENOMEM, true); /* what fits fails for want of memory */
	FAILS(PAWL_ENOMEM, notes_write(notes, ROOT, "b", bytes, limit - 1004, &err));
	FAILS(PAWL_ENOMEM, notes_write(notes, ROOT, "a", bytes, limit - 2, &err));
	fault_disarm();
	notes_remove(notes, ROOT, "a");
	fault_arm("notes.write", 1, ENOMEM, true);
	FAILS(PAWL_ENOMEM, notes_write(notes, ROOT, "b", bytes, limit - 2, &err));
	fault_disarm();
	assert_names("", "");
}

static void short_memory_leaves_what_was_there(void **state)
{
	static const char *const points[] = {"notes.grow", "notes.write"};
	struct wire_out out = {0};

	for (size_t i = 0; i < 2; i++) {
		fault_arm(points[i], 1, ENOMEM, false);
		FAILS(PAWL_ENOMEM, notes_write(notes, ROOT, "a", "new", 3, &err));
		fault_disarm();
		assert_names("", "");
	}
	put("a", "old");
	fault_arm("wire.grow", 1, ENOMEM, true);
	FAILS(PAWL_ENOMEM, notes_read(notes, ROOT, "a", &out, &err));
	FAILS(PAWL_ENOMEM, notes_list(notes, ROOT, "", &out, &err));
	fault_disarm();
	wire_out_deinit(&out);
	assert_note("a", "old");
	fault_arm("notes.open", 1, ENOMEM, false);
	FAILS(PAWL_ENOMEM, notes_open(&(struct notes *){NULL}, &err));
	fault_disarm();
	notes_close(NULL);
}

static void *write_and_read(void *user)
{
	char path[32];

	snprintf(path, sizeof(path), "t/%u", *(unsigned *)user);
	for (unsigned i = 0; i < TURNS; i++) {
		struct wire_out out = {0};

		if (notes_write(notes, ROOT, path, &i, sizeof(i), NULL) != 0 ||
			notes_write(notes, ROOT, "t/all", &i, sizeof(i), NULL) != 0 ||
			notes_read(notes, ROOT, path, &out, NULL) != 0 ||
			memcmp(out.bytes, &i, sizeof(i)) != 0 ||
			notes_list(notes, ROOT, "t", &out, NULL) != 0) {
			abort();
		}
		notes_remove(notes, ROOT, path);
		wire_out_deinit(&out);
	}
	return NULL;
}

static void threads_do_not_disturb_each_other(void **state)
{
	pthread_t threads[THREADS];
	unsigned numbers[THREADS];

	for (unsigned i = 0; i < THREADS; i++) {
		numbers[i] = i;
		assert_int_equal(pthread_create(&threads[i], NULL, write_and_read, &numbers[i]), 0);
	}
	for (unsigned i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
	}
	assert_names("t", "all ");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(what_is_written_is_read, begin, end),
		cmocka_unit_test_setup_teardown(names_of_a_folder_are_listed, begin, end),
		cmocka_unit_test_setup_teardown(a_note_or_a_folder_is_removed, begin, end),
		cmocka_unit_test_setup_teardown(many_notes_are_kept_in_order, begin, end),
		cmocka_unit_test_setup_teardown(all_notes_together_have_a_limit, begin, end),
		cmocka_unit_test_setup_teardown(short_memory_leaves_what_was_there, begin, end),
		cmocka_unit_test_setup_teardown(threads_do_not_disturb_each_other, begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
