/* Blocks, and checksums in their ids and in the metadata of blobs: what Azure's dialect makes of
 * uploads in parts. No network: answers are written by hand. */
#include "azure_fixture.h"

static void parts_are_blocks(void **state)
{
	static const struct object_part parts[2] = {{BLOCK_1, CRC_1}, {BLOCK_2, CRC_2}};

	op.verb = OBJECT_PART;
	op.upload = UPLOAD;
	op.part = 1;
	give_bytes();
	op.crc = CRC_1;
	assert_sends("PUT /box/dir/a%20b?blockid=" BLOCK_1 "&comp=block\n" VERSION SUM);
	op.part = OBJECT_PARTS_MAX;
	op.crc = UINT32_MAX;
	assert_sends("PUT /box/dir/a%20b?blockid=" BLOCK_10000 "&comp=block\n" VERSION SUM);
	place.bare_bodies = true;
	assert_sends("PUT /box/dir/a%20b?blockid=" BLOCK_10000 "&comp=block\n" VERSION);
	op.verb = OBJECT_COMPLETE;
	op.parts = parts;
	op.parts_n = 2;
	assert_sends("PUT /box/dir/a%20b?comp=blocklist\n" VERSION
		     "content-type: application/xml\nx-ms-meta-pawl_crc32c: " SUM_OF_TWO "\n");
	assert_string_equal(op.body_text,
		"<?xml version=\"1.0\" encoding=\"utf-8\"?><BlockList><Latest>" BLOCK_1
		"</Latest><Latest>" BLOCK_2 "</Latest></BlockList>");
	assert_int_equal(op.body_bytes, strlen(op.body_text));
}

/* The longest list there can be has room. */
static void all_parts_are_listed(void **state)
{
	struct object_part *parts = calloc(OBJECT_PARTS_MAX, sizeof(*parts));

	op.verb = OBJECT_COMPLETE;
	op.upload = UPLOAD;
	op.parts = parts;
	op.parts_n = OBJECT_PARTS_MAX;
	parts[OBJECT_PARTS_MAX - 1].crc = UINT32_MAX;
	build();
	assert_non_null(strstr(op.body_text, "<Latest>" BLOCK_10000 "</Latest></BlockList>"));
	assert_int_equal(op.body_bytes, strlen(op.body_text));
	free(parts);
}

/* Bytes that cannot be read are not sent. */
static size_t read_none(void *user, uint64_t off, void *bytes, size_t size)
{
	return 0;
}

static void bytes_that_cannot_be_read_are_named(void **state)
{
	op.verb = OBJECT_PUT;
	give_bytes();
	op.read = read_none;
	FAILS(PAWL_EINVAL, azure_dialect.build(&place, &op, &request, &err));
	SAYS("cannot be read");
}

/* ---- uploads ---- */

static char uploads[64]; /* keys and ids of uploads, one a line */

static int add_upload(void *user, const struct object_found *found)
{
	size_t len = strlen(uploads);

	snprintf(uploads + len, sizeof(uploads) - len, "%s %s\n", found->key, found->upload);
	return 0;
}

static void uploads_need_no_request(void **state)
{
	static const char *const folders[] = {"", "dir/", "dir/a b/"};

	op.verb = OBJECT_BEGIN;
	assert_int_equal(azure_dialect.build(&place, &op, &request, &err), BUILD_DONE);
	assert_string_equal(op.upload_id, UPLOAD);
	op.verb = OBJECT_ABORT;
	assert_int_equal(azure_dialect.build(&place, &op, &request, &err), BUILD_DONE);
	op.verb = OBJECT_UPLOADS;
	op.found = add_upload;
	uploads[0] = '\0';
	for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
		op.key = folders[i];
		snprintf(op.next_token, sizeof(op.next_token), "old");
		assert_int_equal(azure_dialect.build(&place, &op, &request, &err), BUILD_DONE);
		assert_string_equal(op.next_token, "");
		assert_string_equal(uploads, "");
	}
	op.key = "dir/a b";
	assert_int_equal(azure_dialect.build(&place, &op, &request, &err), BUILD_DONE);
	assert_string_equal(uploads, "dir/a b " UPLOAD "\n");
	op.verb = OBJECT_PARTS;
	op.upload = UPLOAD;
	assert_sends("GET /box/dir/a%20b?blocklisttype=uncommitted&comp=blocklist\n" VERSION);
	assert_int_equal(op.text_max, 16 << 20);
}

/* ---- checksums in answers ---- */

/* The service tells the sum of what it got. That of a list of blocks is none of ours. */
static void other_bytes_than_ours_are_noticed(void **state)
{
	static const enum object_verb verbs[] = {OBJECT_PUT, OBJECT_PART};

	op.upload = UPLOAD;
	op.part = 1;
	op.request = &request;
	give_bytes();
	for (size_t i = 0; i < 2; i++) {
		op.verb = verbs[i];
		build();
		answer(201, "", HEADERS(ETAG, "x-ms-content-crc64", "iJh5CoYUi64="));
		OK(read_answer());
		answer(201, "", HEADERS(ETAG, "x-ms-content-crc64", "AAAAAAAAAAA="));
		FAILS(PAWL_EIO, read_answer());
		SAYS("other bytes than those that were sent");
	}
	op.verb = OBJECT_COMPLETE;
	build();
	answer(201, "", HEADERS(ETAG, "x-ms-content-crc64", "AAAAAAAAAAA="));
	OK(read_answer());
}

static void sums_of_objects_are_told(void **state)
{
	op.verb = OBJECT_HEAD;
	snprintf(op.sum, sizeof(op.sum), "old");
	answer(200, "", HEADERS(ETAG, "content-length", "1", "x-ms-meta-pawl_crc32c", SUM_OF_TWO));
	OK(read_answer());
	assert_string_equal(op.sum, SUM_OF_TWO);
	answer(200, "", HEADERS(ETAG, "content-length", "1"));
	OK(read_answer());
	assert_string_equal(op.sum, "");
	answer(200, "",
		HEADERS(ETAG, "content-length", "1", "x-ms-meta-pawl_crc32c",
			"4waSgw==4waSgw==4waSgw==4waSgw=="));
	OK(read_answer());
	assert_string_equal(op.sum, "");
}

/* ---- lists of blocks ---- */

static char listed[1024]; /* blocks of the list, one a line */
static unsigned stop_at;  /* ends the list at this block; 0: never */

static int add_block(void *user, const struct object_found *found)
{
	unsigned *n = user;
	size_t len = strlen(listed);

	assert_string_equal(found->key, op.key);
	assert_true(found->has_crc);
	snprintf(listed + len, sizeof(listed) - len, "%u %08x %u %s\n", found->part,
		(unsigned)found->crc, (unsigned)found->size_bytes, found->etag);
	return ++*n == stop_at;
}

#define BLOCKS(x)    BOM "<?xml version=\"1.0\" encoding=\"utf-8\"?><BlockList>" x "</BlockList>"
#define BLOCK(id, n) "<Block><Name>" id "</Name><Size>" n "</Size></Block>"

static int read_blocks(const char *text)
{
	unsigned n = 0;

	listed[0] = '\0';
	op.verb = OBJECT_PARTS;
	op.upload = UPLOAD;
	op.found = add_block;
	op.user = &n;
	answer(200, text, NO_HEADERS);
	return read_answer();
}

static void blocks_say_what_they_have(void **state)
{
	OK(read_blocks(BLOCKS("<CommittedBlocks>" BLOCK(BLOCK_10000,
		"7") "</CommittedBlocks>"
		     "<UncommittedBlocks>" BLOCK(BLOCK_2, "12")
			     BLOCK(BLOCK_1, "16777216") "</UncommittedBlocks>")));
	assert_string_equal(listed, "2 fedcba98 12 " BLOCK_2 "\n1 1a2b3c4d 16777216 " BLOCK_1 "\n");
	assert_string_equal(op.next_token, "");
	stop_at = 1;
	OK(read_blocks(BLOCKS("<UncommittedBlocks>" BLOCK(BLOCK_2, "12")
			BLOCK(BLOCK_1, "1") "</UncommittedBlocks>")));
	stop_at = 0;
	assert_string_equal(listed, "2 fedcba98 12 " BLOCK_2 "\n");
	OK(read_blocks(BLOCKS("<UncommittedBlocks />")));
	assert_string_equal(listed, "");
	OK(read_blocks("<BlockList />"));
	assert_string_equal(listed, "");
}

/* Blocks of other programs, and of earlier versions, are no obstacle. */
static void blocks_of_others_are_left_out(void **state)
{
	static const char *const ids[] = {
		"",
		"AAAA",
		"MDEyMzQ1Njc4OWFiY2RlZi0wMDAwMDAx",     /* 0123456789abcdef-0000001 */
		"Y3JjMzJjLTAwMDAwMDAwLTFhMmIzYzRk",     /* part 0 */
		"Y3JjMzJjLTAwMDEwMDAxLTFhMmIzYzRk",     /* part 10001 */
		"Y3JjMzJjLTAwMDAwMDAxLTFBMkIzQzRE",     /* upper case */
		"Y3JjMzJjLSAgICAgICAxLTFhMmIzYzRk",     /* blanks */
		"Y3JjMzJkLTAwMDAwMDAxLTFhMmIzYzRk",     /* crc32d */
		"Y3JjMzJjLTAwMDAwMDAxLTFhMmIzYzR*",     /* no base64 */
		"Y3JjMzJjLTAwMDAwMDAxLTFhMmIzYzR=",     /* one byte less */
		"Y3JjMzJjLTAwMDAwMDAxLTFhMmIzYzRkAAAA", /* BLOCK_1, and three bytes more */
		"Y3JjMzJjLTAwMDAwMDAxLTFhMmIzYzRk=",
	};

	for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
		char text[512];

		snprintf(text, sizeof(text),
			BLOCKS("<UncommittedBlocks>" BLOCK("%s", "1")
					BLOCK(BLOCK_2, "2") "</UncommittedBlocks>"),
			ids[i]);
		OK(read_blocks(text));
		assert_string_equal(listed, "2 fedcba98 2 " BLOCK_2 "\n");
	}
}

static void lists_of_blocks_that_cannot_be_are_refused(void **state)
{
	static const struct {
		const char *text; /* text of the answer */
		const char *says; /* part of the message */
	} cases[] = {
		{BLOCKS("<UncommittedBlocks>" BLOCK(BLOCK_1, "x") "</UncommittedBlocks>"),
			"a value that cannot be"},
		{BLOCKS("<UncommittedBlocks>" BLOCK(BLOCK_1, "") "</UncommittedBlocks>"),
			"a value that cannot be"},
		{BLOCKS("<UncommittedBlocks>" BLOCK(BLOCK_1,
			 "1") "<Block><Name>" BLOCK_2 "</Name></Block></UncommittedBlocks>"),
			"a value that cannot be"},
		{"<BlockList><UncommittedBlocks>", "XML"},
		{"", "XML"},
		{"<html>Please log in</html>", "no list"},
		{"<EnumerationResults></EnumerationResults>", "no list"},
		{"<a><BlockList/></a>", "no list"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		FAILS(PAWL_EIO, read_blocks(cases[i].text));
		SAYS(cases[i].says);
		assert_string_equal(op.code, "");
	}
	FAILS(PAWL_EIO, read_blocks("<Error><Code>ServerBusy</Code></Error>"));
	assert_string_equal(op.code, "ServerBusy");
	op.verb = OBJECT_LIST;
	answer(200, "<BlockList></BlockList>", NO_HEADERS);
	FAILS(PAWL_EIO, read_answer());
	SAYS("no list");
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		TEST(parts_are_blocks),
		TEST(all_parts_are_listed),
		TEST(bytes_that_cannot_be_read_are_named),
		TEST(uploads_need_no_request),
		TEST(other_bytes_than_ours_are_noticed),
		TEST(sums_of_objects_are_told),
		TEST(blocks_say_what_they_have),
		TEST(blocks_of_others_are_left_out),
		TEST(lists_of_blocks_that_cannot_be_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
