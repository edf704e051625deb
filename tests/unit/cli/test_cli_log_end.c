/* The last lines of a log, as `pawl show` prints them for a job that failed. */
#include "cli/sched/log_end.h"

#include "pawl/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define COUNT(all) (sizeof(all) / sizeof((all)[0]))

static char text[LOG_END_BYTES + 1];

static void lines_are_whole_and_the_last(void **state)
{
	static const struct {
		const char *bytes;
		int cut;
		const char *text;
	} all[] = {{"", 0, ""}, {"\n", 0, "\n"}, {"a\nb\n", 0, "a\nb\n"}, {"a\nb", 0, "a\nb"},
		{"art of one\nb\n", 1, "b\n"}, {"part alone", 1, "part alone"},
		{"part alone\n", 1, "part alone\n"},
		{"1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n", 0, "2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n"},
		{"1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11", 0, "2\n3\n4\n5\n6\n7\n8\n9\n10\n11"},
		{"\n\nx\n", 0, "\n\nx\n"}, {" 1%\r 50%\r 99%\nend\n", 0, " 99%\nend\n"},
		{"of Windows\r\nb\r\n", 0, "of Windows\nb\n"}, {" 1%\r 2%\r", 0, " 2%"}};

	for (size_t i = 0; i < COUNT(all); i++) {
		size_t len = strlen(all[i].bytes);
		char *exact = malloc(len + 1); /* exact, so that ASan sees a byte beyond */

		assert_non_null(exact);
		memcpy(exact, all[i].bytes, len);
		log_end_of(exact, (uint32_t)len, all[i].cut, text);
		assert_string_equal(text, all[i].text);
		free(exact);
	}
	log_end_of("a\0b\n", 4, 0, text);
	assert_string_equal(text, "a b\n");
}

static void long_lines_are_cut_between_characters(void **state)
{
	char bytes[LOG_END_BYTES];

	memset(bytes, 'x', sizeof(bytes));
	log_end_of(bytes, sizeof(bytes), 1, text);
	assert_int_equal(strlen(text), LOG_END_LINE);
	memcpy(bytes + LOG_END_LINE - 1, "\xc3\xa4", 2);
	log_end_of(bytes, sizeof(bytes), 0, text);
	assert_int_equal(strlen(text), LOG_END_LINE - 1);
	bytes[LOG_END_LINE] = '\n'; /* a line of exactly the largest length */
	log_end_of(bytes, sizeof(bytes), 0, text);
	assert_int_equal(strcspn(text, "\n"), LOG_END_LINE);
}

static void only_a_plain_file_is_read(void **state)
{
	char dir[] = "/tmp/pawl-log-XXXXXX";
	char path[64];
	struct pawl_err err;
	FILE *file;

	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/log", dir);
	assert_int_equal(log_end_read(dir, geteuid(), text, &err), PAWL_ENOENT);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(log_end_read(dir, geteuid(), text, &err), PAWL_EINVAL);
	unlink(path);
	assert_int_equal(symlink("/etc/passwd", path), 0);
	assert_int_equal(log_end_read(dir, geteuid(), text, &err), PAWL_EINVAL);
	unlink(path);
	file = fopen(path, "we");
	assert_non_null(file);
	for (int i = 0; i < 3000; i++) {
		fprintf(file, "line %d\n", i);
	}
	assert_int_equal(fclose(file), 0);
	assert_int_equal(log_end_read(dir, geteuid(), text, &err), 0);
	assert_non_null(strstr(text, "line 2990\nline 2991\n"));
	assert_null(strstr(text, "line 2989"));
	unlink(path);
	rmdir(dir);
	assert_int_equal(log_end_read(dir, geteuid(), text, &err), PAWL_ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lines_are_whole_and_the_last),
		cmocka_unit_test(long_lines_are_cut_between_characters),
		cmocka_unit_test(only_a_plain_file_is_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
