/* What a YAML file may be: its text, its size and depth, anchors, and what scalars are. */
#include "pawl/err.h"
#include "sched/jobfile/tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct sched_arena arena;
static struct remarks remarks;

static int teardown(void **state)
{
	sched_arena_deinit(&arena);
	return 0;
}

/* Returns the root of the text, or NULL if the text was refused. */
static const struct tree_node *parse_bytes(const char *bytes, size_t len_bytes)
{
	const struct tree_node *root = NULL;
	int rv;

	sched_arena_deinit(&arena);
	remarks = (struct remarks){0};
	rv = tree_parse(&root, bytes, len_bytes, &arena, &remarks, NULL);
	assert_int_equal(rv, rv == 0 ? 0 : PAWL_EINVAL);
	assert_true(rv == 0 || remarks.n > 0);
	return root;
}

static const struct tree_node *parse(const char *text)
{
	return parse_bytes(text, strlen(text));
}

static void refuse_bytes(const char *bytes, size_t len_bytes, uint32_t line, uint32_t column,
	const char *what)
{
	assert_null(parse_bytes(bytes, len_bytes));
	assert_int_equal(remarks.n, 1);
	if (!strstr(remarks.at[0].text, what)) {
		fail_msg("\"%s\" is not in \"%s\"", what, remarks.at[0].text);
	}
	assert_int_equal(remarks.at[0].line, line);
	assert_int_equal(remarks.at[0].column, column);
}

static void refuse(const char *text, uint32_t line, uint32_t column, const char *what)
{
	refuse_bytes(text, strlen(text), line, column, what);
}

/* ---- what is read ---- */

static void nodes_have_their_places(void **state)
{
	const struct tree_node *root = parse("# a job\na: 1\nb:\n  - x\n  - {\"ü\": y}\n");
	const struct tree_item *b = root->items->next;
	const struct tree_item *inner = b->value->items->next->value->items;

	assert_int_equal(root->kind, TREE_MAP);
	assert_int_equal(root->items_n, 2);
	assert_int_equal(root->nodes, 1 + 2 + 1 + 1 + 1 + 1 + 2);
	assert_int_equal(root->height, 3);
	assert_string_equal(root->items->key->text, "a");
	assert_int_equal(root->items->value->line, 2);
	assert_int_equal(root->items->value->column, 4);
	assert_int_equal(b->value->kind, TREE_LIST);
	assert_string_equal(b->value->items->value->text, "x");
	assert_string_equal(inner->key->text, "ü");
	assert_int_equal(inner->value->line, 5);
	assert_int_equal(inner->value->column, 11); /* characters, not bytes */
	assert_null(parse(""));
	assert_null(parse("# nothing\n"));
	assert_int_equal(remarks.n, 0);
	/* An empty document does not count. */
	assert_int_equal(parse("---\na: 1\n---\n")->items_n, 1);
	assert_int_equal(parse("# x\n---\n---\n# y\n---\na: 1\n...\n---\n# z\n")->items_n, 1);
	assert_int_equal(remarks.n, 0);
	assert_non_null(parse("\xef\xbb\xbf"
			      "a: 1\r\nb: 2\r\n")); /* as Windows writes it */
}

static void scalars_are_what_yaml_makes_of_them(void **state)
{
	static const struct {
		const char *text;
		enum tree_kind kind;
	} all[] = {{"yes", TREE_BOOL}, {"No", TREE_BOOL}, {"on", TREE_BOOL}, {"OFF", TREE_BOOL},
		{"true", TREE_BOOL}, {"False", TREE_BOOL}, {"y", TREE_TEXT}, {"n", TREE_TEXT},
		{"yEs", TREE_TEXT}, {"~", TREE_NULL}, {"null", TREE_NULL}, {"None", TREE_TEXT},
		{"0", TREE_NUMBER}, {"-12", TREE_NUMBER}, {"+1", TREE_NUMBER},
		{"1_000", TREE_NUMBER}, {"0x1f", TREE_NUMBER}, {"0b11", TREE_NUMBER},
		{"017", TREE_NUMBER}, {"1:30", TREE_NUMBER}, {"12:30:45", TREE_NUMBER},
		{"1.5", TREE_NUMBER}, {".5", TREE_NUMBER}, {"1.", TREE_NUMBER},
		{"1.5e+3", TREE_NUMBER}, {".inf", TREE_NUMBER}, {"-.inf", TREE_NUMBER},
		{".nan", TREE_NUMBER}, {"1e5", TREE_TEXT}, {"3e-5", TREE_TEXT}, {"1:", TREE_TEXT},
		{"1:300", TREE_TEXT}, {"0x", TREE_TEXT}, {"-", TREE_TEXT}, {".", TREE_TEXT},
		{"1.2.3", TREE_TEXT}, {"2..8", TREE_TEXT}, {"A100:4", TREE_TEXT},
		{"10.0.0.1", TREE_TEXT}, {"4+", TREE_TEXT}, {"", TREE_NULL}};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		enum tree_kind kind = tree_text_kind(all[i].text, strlen(all[i].text));

		if (kind != all[i].kind) {
			fail_msg("\"%s\" is %d", all[i].text, (int)kind);
		}
	}
	assert_int_equal(parse("'yes'")->kind, TREE_TEXT);
	assert_int_equal(parse("\"1\"")->kind, TREE_TEXT);
	assert_int_equal(parse("!!str yes")->kind, TREE_TEXT);
	assert_int_equal(parse("! 5")->kind, TREE_TEXT);
	assert_int_equal(parse("|\n  1\n")->kind, TREE_TEXT);
	assert_int_equal(parse("\"a\\0b\"")->len_bytes, 3);
}

static void aliases_are_the_nodes_they_name(void **state)
{
	const struct tree_node *root = parse("a: &x {b: [1, 2]}\nc: *x\n&k d: *k\n");
	const struct tree_node *first = root->items->value;

	assert_ptr_equal(first, root->items->next->value);
	assert_true(first->shared);
	assert_int_equal(first->nodes, 5);
	assert_int_equal(root->nodes, 1 + (1 + 5) + (1 + 5) + (1 + 1));
	assert_string_equal(root->items->next->next->value->text, "d");
	/* If several anchors have one name, the latest before the alias counts. */
	assert_string_equal(parse("[&a 1, &a 2, *a]")->last->value->text, "2");
}

/* ---- what is refused ---- */

static void text_must_be_text(void **state)
{
	refuse("a: \xff\n", 1, 4, "byte 0xff is not UTF-8");
	refuse("a: 1\nü: \xc3", 2, 4, "byte 0xc3");
	refuse("\xc0\x80", 1, 1, "byte 0xc0"); /* a NUL, too long */
	refuse("\xe0\x80\x80", 1, 1, "byte 0xe0");
	refuse("\xed\xa0\x80", 1, 1, "byte 0xed"); /* half of a pair */
	refuse("\xf5\x80\x80\x80", 1, 1, "byte 0xf5");
	refuse("\xf4\x90\x80\x80", 1, 1, "byte 0xf4");
	refuse("\xff\xfe"
	       "a",
		1, 1, "byte 0xff"); /* UTF-16 */
	refuse_bytes("a: 1\r\nb\0c", 9, 2, 2, "U+0000");
	refuse("\x7f"
	       "ELF",
		1, 1, "U+007F");
	refuse("a: \x1b[2J", 1, 4, "U+001B");
	refuse("a\xef\xbb\xbf", 1, 2, "U+FEFF");
	refuse("a\rb\r\nc\n\x01", 4, 1, "U+0001");
}

static void a_file_is_bounded(void **state)
{
	size_t len_bytes = TREE_BYTES_MAX + 1;
	char *text = malloc(len_bytes);

	assert_non_null(text);
	memset(text, '#', len_bytes);
	assert_null(parse_bytes(text, TREE_BYTES_MAX)); /* a comment, and allowed */
	assert_int_equal(remarks.n, 0);
	refuse_bytes(text, len_bytes, 1, 1, "more than 1048576 bytes");
	memset(text, '[', len_bytes);
	refuse_bytes(text, TREE_BYTES_MAX, 1, TREE_DEPTH_MAX + 1, "more than 32 lists");
	for (size_t i = 0; i + 1 < len_bytes; i += 2) {
		memcpy(text + i, "-\n", 2);
	}
	refuse_bytes(text, TREE_BYTES_MAX, TREE_ITEMS_MAX + 1, 2, "more than 1000 items");
	free(text);
}

static void depth_is_bounded_through_aliases_too(void **state)
{
	char text[256];

	snprintf(text, sizeof(text), "%.*sx%.*s", 32, "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", 32,
		"]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]");
	assert_int_equal(parse(text)->height, 32);
	snprintf(text, sizeof(text), "a: &a %.*sx%.*s\nb: *a\nc: [*a]\n", 31,
		"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", 31, "]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]");
	refuse(text, 3, 5, "*a: more than 32 lists");
}

/* Each level has the one before ten times: a billion laughs. */
static void alias_bombs_are_refused(void **state)
{
	char text[1024] = "a0: &a0 lol\n";
	size_t len = strlen(text);

	for (int i = 1; i < 10; i++) {
		len += (size_t)snprintf(text + len, sizeof(text) - len, "a%d: &a%d [", i, i);
		for (int j = 0; j < 10; j++) {
			len += (size_t)snprintf(text + len, sizeof(text) - len, "*a%d,", i - 1);
		}
		len += (size_t)snprintf(text + len, sizeof(text) - len, "]\n");
	}
	assert_null(parse(text));
	assert_int_equal(remarks.n, 1);
	assert_int_equal(remarks.at[0].line, 5);
	assert_non_null(strstr(remarks.at[0].text, "more than 10000 values"));
	refuse("&a [*a]", 1, 5, "*a is inside of &a: it would have no end");
	refuse("x: &a\n  y: *a\n", 2, 6, "it would have no end");
	refuse("a: *b\nb: &b 1\n", 1, 4, "*b: there is no &b before it");
}

static void anchors_are_bounded(void **state)
{
	char *text = malloc(16384);
	size_t len = 0;

	assert_non_null(text);
	for (unsigned i = 0; i <= TREE_ANCHORS_MAX; i++) {
		len += (size_t)snprintf(text + len, 16384 - len, "- &a%u x\n", i);
	}
	refuse(text, TREE_ANCHORS_MAX + 1, 3, "more than 256 anchors");
	free(text);
}

static void what_yaml_has_and_job_files_do_not(void **state)
{
	refuse("a: 1\n---\nb: 2\n", 2, 1, "a second document (---)");
	refuse("a: 1\n...\n---\nb: 2\n", 3, 1, "a second document");
	refuse("---\na: 1\n---\n---\n[b]\n", 4, 1, "a second document");
	refuse("a: !!int \"1\"\n", 1, 4, "the tag tag:yaml.org,2002:int");
	refuse("a: !!python/object:os.system [x]\n", 1, 4, "the tag tag:yaml.org,2002:python");
	refuse("!!map {a: 1}\n", 1, 1, "the tag tag:yaml.org,2002:map");
	refuse("d: &d {a: 1}\ne:\n  <<: *d\n", 3, 3, "<< (merging");
	refuse("? [a]\n: b\n", 1, 3, "a list or mapping as a key");
	refuse("a: &x [1]\n*x : 2\n", 2, 1, "a list or mapping as a key");
	assert_non_null(parse("--- \na: 1\n"));
	assert_non_null(parse("%YAML 1.1\n---\na: 1\n...\n"));
	refuse("\"<<\": 1\n", 1, 1, "<< (merging"); /* in quotes, too */
}

static void mistakes_of_yaml_have_a_place(void **state)
{
	refuse("a: [1, 2\nb: 3\n", 2, 2, "while parsing a flow sequence");
	refuse("a: 1\n b: 2\n", 2, 3, "mapping values are not allowed");
	refuse("a:\n\t- 1\n", 2, 1, "cannot start any token");
	refuse("a: \"x\n", 2, 1, "unexpected end of stream");
	refuse("a: b: c\n", 1, 5, "mapping values are not allowed");
	refuse("- a\nb: 1\n", 2, 1, "did not find expected '-' indicator");
}

static void a_duplicate_key_is_reported_and_the_rest_read(void **state)
{
	const struct tree_node *root = parse("a: 1\nb: 2\n\"a\": 3\nb: 4\nc: {d: 1, d: 2}\n");

	assert_non_null(root);
	assert_int_equal(root->items_n, 3);
	assert_string_equal(root->items->value->text, "1");
	assert_int_equal(remarks.n, 3);
	assert_string_equal(remarks.at[0].text,
		"the key a is given twice, first in line 1: keep one of them");
	assert_int_equal(remarks.at[0].line, 3);
	assert_int_equal(remarks.at[1].line, 4);
	assert_int_equal(remarks.at[2].column, 11);
}

/* ---- remarks ---- */

static void remarks_are_bounded_sorted_and_fit_a_terminal(void **state)
{
	struct remarks all = {0};
	char shown[REMARK_SHOW_MAX];
	char many[256];

	for (uint32_t i = 0; i < REMARKS_MAX + 5; i++) {
		remarks_add(&all, 100 - i / 2, i % 2 == 0 ? 9 : 3, "%u", i);
	}
	remarks_sort(&all);
	assert_int_equal(all.n, REMARKS_MAX);
	assert_int_equal(all.dropped, 5);
	assert_string_equal(all.at[0].text, "19");
	assert_string_equal(all.at[1].text, "18");
	assert_string_equal(all.at[REMARKS_MAX - 1].text, "0");

	assert_string_equal(remark_show(shown, "a\x1b[2Jb\x7f\n", 8), "a?[2Jb??");
	assert_string_equal(remark_show(shown, "\xc2\x9bx\xc3\xa4", 5), "??x\xc3\xa4");
	assert_string_equal(remark_show(shown, "a\0b", 3), "a?b");
	for (size_t i = 0; i < sizeof(many) - 1; i += 2) {
		memcpy(many + i, "\xc3\xa4", 2); /* ä */
	}
	remark_show(shown, many, 200);
	assert_int_equal(strlen(shown), 63);
	assert_string_equal(shown + 60, "…");
	all.n = 0;
	remarks_add(&all, 1, 1, "x%.200s%.200s%.200s", many, many, many);
	assert_int_equal(strlen(all.at[0].text), REMARK_TEXT_MAX - 1 - 1);
	assert_true(tree_text_check((const uint8_t *)all.at[0].text, strlen(all.at[0].text), &all));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nodes_have_their_places),
		cmocka_unit_test(scalars_are_what_yaml_makes_of_them),
		cmocka_unit_test(aliases_are_the_nodes_they_name),
		cmocka_unit_test(text_must_be_text),
		cmocka_unit_test(a_file_is_bounded),
		cmocka_unit_test(depth_is_bounded_through_aliases_too),
		cmocka_unit_test(alias_bombs_are_refused),
		cmocka_unit_test(anchors_are_bounded),
		cmocka_unit_test(what_yaml_has_and_job_files_do_not),
		cmocka_unit_test(mistakes_of_yaml_have_a_place),
		cmocka_unit_test(a_duplicate_key_is_reported_and_the_rest_read),
		cmocka_unit_test(remarks_are_bounded_sorted_and_fit_a_terminal),
	};

	return cmocka_run_group_tests(tests, NULL, teardown);
}
