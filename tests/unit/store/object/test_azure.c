/* The dialect of Azure Blob Storage: each operation as a request, and what good and bad answers
 * come to. No network: answers are written by hand, as Azure's documentation and Azurite have
 * them. */
#include "azure_fixture.h"
#include "base/fault.h"
#include "each_fault.h"

#include <errno.h>

/* ---- requests ---- */

static void an_account_is_in_the_host_or_the_path(void **state)
{
	static const struct {
		const char *endpoint; /* endpoint that is set */
		const char *wants;    /* the right one */
		bool in_host;         /* whether it has the account */
	} cases[] = {
		{"", "https://acct.blob.core.windows.net", true},
		{"https://acct.blob.core.chinacloudapi.cn",
			"https://acct.blob.core.chinacloudapi.cn", true},
		{"http://127.0.0.1:10000", "http://127.0.0.1:10000", false},
		{"https://acct", "https://acct", false},
		{"https://acct2.blob.core.windows.net", "https://acct2.blob.core.windows.net",
			false},
		{"https://proxy.acct.org", "https://proxy.acct.org", false},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		locate(cases[i].endpoint);
		assert_string_equal(place.endpoint, cases[i].wants);
		assert_int_equal(place.in_host, cases[i].in_host);
	}
}

static void addresses_have_a_style(void **state)
{
	op.verb = OBJECT_HEAD;
	assert_sends("HEAD /box/dir/a%20b\n" VERSION);
	assert_string_equal(request.host, "acct.blob.core.windows.net");
	assert_true(request.tls);
	locate("http://127.0.0.1:10000");
	assert_sends("HEAD /acct/box/dir/a%20b\n" VERSION);
	assert_string_equal(request.host, "127.0.0.1:10000");
	assert_false(request.tls);
	op.verb = OBJECT_LIST;
	op.key = "";
	assert_sends(
		"GET "
		"/acct/box?comp=list&include=metadata&maxresults=1000&restype=container\n" VERSION);
}

static void objects_are_put_and_removed(void **state)
{
	op.verb = OBJECT_PUT;
	give_bytes();
	assert_sends("PUT /box/dir/a%20b\n" VERSION "x-ms-blob-type: BlockBlob\n" KEPT SUM);
	op.match = "";
	assert_sends("PUT /box/dir/a%20b\n" VERSION
		     "if-none-match: *\nx-ms-blob-type: BlockBlob\n" KEPT SUM);
	op.match = "\"0x8D\"";
	assert_sends("PUT /box/dir/a%20b\n" VERSION
		     "if-match: \"0x8D\"\nx-ms-blob-type: BlockBlob\n" KEPT SUM);
	place.bare_etags = true; /* no server of Azure's asks for that */
	assert_sends("PUT /box/dir/a%20b\n" VERSION
		     "if-match: \"0x8D\"\nx-ms-blob-type: BlockBlob\n" KEPT SUM);
	assert_int_equal(op.body_bytes, strlen(BYTES));
	op.body_bytes = 0;
	op.crc = 0;
	op.match = NULL;
	assert_sends("PUT /box/dir/a%20b\n" VERSION
		     "x-ms-blob-type: BlockBlob\nx-ms-meta-pawl_crc32c: AAAAAA==\n" EMPTY);
	op.verb = OBJECT_REMOVE;
	op.match = NULL;
	op.key = "\xe2\x82\xac+=&%41?#";
	assert_sends("DELETE /box/%E2%82%AC%2B%3D%26%2541%3F%23\n" VERSION);
}

static void objects_are_read(void **state)
{
	op.verb = OBJECT_GET;
	assert_sends("GET /box/dir/a%20b\n" VERSION);
	op.off_bytes = 7;
	op.len_bytes = 3;
	op.match = "\"0x8D\"";
	assert_sends("GET /box/dir/a%20b\n" VERSION "if-match: \"0x8D\"\nrange: bytes=7-9\n");
	assert_int_equal(op.text_max, 0);
}

static void pages_are_listed(void **state)
{
	op.verb = OBJECT_LIST;
	op.key = "dir/a b/";
	op.folders = true;
	op.keys_max = 2;
	assert_sends("GET /box?comp=list&delimiter=%2F&include=metadata&maxresults=2"
		     "&prefix=dir%2Fa%20b%2F&restype=container\n" VERSION);
	assert_int_equal(op.text_max, 16 << 20);
	op.token = "2!92!MDA=";
	op.folders = false;
	op.keys_max = 0;
	assert_sends("GET /box?comp=list&include=metadata&marker=2%2192%21MDA%3D&maxresults=1000"
		     "&prefix=dir%2Fa%20b%2F&restype=container\n" VERSION);
}

static int ignore_found(void *user, const struct object_found *found)
{
	return 0;
}

/* Azure cuts dots at the end of a name, and makes '\\' a '/': the object would be another one. */
static void keys_that_azure_changes_are_refused(void **state)
{
	static const char *const bad[] = {"a.", "a/b.", "a./b", ".", "..", "a/./b", "a/..", "a\\b",
		"a/b\\"};
	static const char *const good[] = {"a.b", ".a", "a/.b/c", "a/ ", "..a", "a/", "a//b"};

	for (enum object_verb verb = OBJECT_PUT; verb <= OBJECT_PARTS; verb++) {
		op.verb = verb;
		op.upload = UPLOAD;
		op.found = ignore_found;
		for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
			op.key = good[i];
			assert_true(azure_dialect.build(&place, &op, &request, &err) >= 0);
			free(op.body_text);
			op.body_text = NULL;
		}
		for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
			op.key = bad[i];
			if (verb == OBJECT_LIST || verb == OBJECT_UPLOADS) {
				assert_true(azure_dialect.build(&place, &op, &request, &err) >= 0);
				continue;
			}
			FAILS(PAWL_EINVAL, azure_dialect.build(&place, &op, &request, &err));
			SAYS("Azure would change it");
		}
	}
}

static void requests_have_limits(void **state)
{
	char key[TOO_LONG];

	memset(key, 'k', sizeof(key));
	key[sizeof(key) - 1] = '\0';
	op.key = key;
	op.verb = OBJECT_HEAD;
	FAILS(PAWL_ELIMIT, azure_dialect.build(&place, &op, &request, &err));
	op.verb = OBJECT_LIST;
	FAILS(PAWL_ELIMIT, azure_dialect.build(&place, &op, &request, &err));
	op.key = "k";
	op.verb = OBJECT_PUT;
	op.match = "\"a\"\r\nx-ms-lease-id: b";
	FAILS(PAWL_ELIMIT, azure_dialect.build(&place, &op, &request, &err));
	memset(key, 0xff, OBJECT_KEY_MAX - 1); /* each byte becomes three */
	key[OBJECT_KEY_MAX - 1] = '\0';
	op.key = key;
	op.match = NULL;
	build();
}

/* ---- answers ---- */

static void what_was_written_is_told(void **state)
{
	static const enum object_verb verbs[] = {OBJECT_PUT, OBJECT_COMPLETE};

	for (size_t i = 0; i < 2; i++) {
		op.verb = verbs[i];
		answer(201, "", HEADERS(ETAG));
		OK(read_answer());
		assert_string_equal(op.etag, "\"0x8D4BCC2E4835CD0\"");
		answer(201, "", NO_HEADERS);
		FAILS(PAWL_EIO, read_answer());
		SAYS("no usable etag");
		answer(201, "", HEADERS("etag", ""));
		FAILS(PAWL_EIO, read_answer());
		answer(200, "<html>Please log in</html>", HEADERS(ETAG));
		FAILS(PAWL_EIO, read_answer());
		SAYS("makes no sense (HTTP 200, nothing was written)");
	}
	op.verb = OBJECT_PART;
	op.upload = UPLOAD;
	op.part = 2;
	op.crc = CRC_2;
	answer(201, "", NO_HEADERS);
	OK(read_answer());
	assert_string_equal(op.etag, BLOCK_2);
	answer(202, "", HEADERS(ETAG));
	FAILS(PAWL_EIO, read_answer());
	SAYS("nothing was written");
	op.verb = OBJECT_REMOVE;
	answer(202, "", NO_HEADERS);
	OK(read_answer());
	answer(200, "<html>Please log in</html>", NO_HEADERS);
	FAILS(PAWL_EIO, read_answer());
	SAYS("nothing was removed");
}

static void etags_have_a_limit(void **state)
{
	char etag[OBJECT_ETAG_MAX + 1];

	memset(etag, 'e', sizeof(etag));
	etag[OBJECT_ETAG_MAX] = '\0';
	op.verb = OBJECT_PUT;
	answer(201, "", HEADERS("etag", etag));
	FAILS(PAWL_EIO, read_answer());
	etag[OBJECT_ETAG_MAX - 1] = '\0';
	answer(201, "", HEADERS("etag", etag));
	OK(read_answer());
	assert_string_equal(op.etag, etag);
}

static void objects_have_sizes(void **state)
{
	op.verb = OBJECT_HEAD;
	answer(200, "", HEADERS(ETAG, "content-length", "12345678901"));
	OK(read_answer());
	assert_int_equal(op.size_bytes, 12345678901);
	answer(200, "", HEADERS(ETAG, "content-length", "12 "));
	FAILS(PAWL_EIO, read_answer());
	SAYS("no size");
	answer(200, "", HEADERS(ETAG));
	FAILS(PAWL_EIO, read_answer());
	answer(200, "", HEADERS("content-length", "1"));
	FAILS(PAWL_EIO, read_answer());
	SAYS("no usable etag");
	op.verb = OBJECT_GET;
	answer(200, "12345", HEADERS(ETAG));
	OK(read_answer());
	assert_int_equal(op.size_bytes, 5);
}

/* Accounts of Data Lake Storage have objects that stand for folders. */
static void folders_are_no_objects(void **state)
{
	static const enum object_verb verbs[] = {OBJECT_HEAD, OBJECT_GET};

	for (size_t i = 0; i < 2; i++) {
		op.verb = verbs[i];
		answer(200, "",
			HEADERS(ETAG, "content-length", "0", "x-ms-meta-hdi_isfolder", "True"));
		FAILS(PAWL_ENOENT, read_answer());
		assert_string_equal(op.code, "");
		answer(200, "",
			HEADERS(ETAG, "content-length", "0", "x-ms-meta-hdi_isfolder", "false"));
		OK(read_answer());
	}
}

static bool take_bytes(void *user, uint64_t off, const void *bytes, size_t len_bytes)
{
	return true;
}

static void ranges_are_checked(void **state)
{
	static const struct {
		int status;         /* status of HTTP */
		const char *range;  /* Content-Range; NULL: none */
		uint64_t got_bytes; /* bytes that came */
		bool good;          /* whether that is the right answer */
	} cases[] = {
		{206, "bytes 7-9/100", 3, true},
		{206, "bytes 7-8/9", 2, true},
		{206, "bytes 7-9/100", 2, false},
		{206, "bytes 8-10/100", 3, false},
		{206, "bytes 7-10/100", 4, false},
		{206, "bytes 7-6/100", 0, false},
		{206, "bytes 7-9/9", 3, false},
		{206, "bytes 7-9/*", 3, false},
		{206, "bytes 7-9", 3, false},
		{206, "octets 7-9/100", 3, false},
		{206, NULL, 3, false},
		{200, "bytes 7-9/100", 3, true},
		{200, NULL, 3, false},
		{201, "bytes 7-9/100", 3, false},
	};

	op.verb = OBJECT_GET;
	op.write = take_bytes;
	op.off_bytes = 7;
	op.len_bytes = 3;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		answer(cases[i].status, "",
			cases[i].range != NULL ? HEADERS(ETAG, "content-range", cases[i].range)
					       : HEADERS(ETAG));
		op.got_bytes = cases[i].got_bytes;
		if (cases[i].good) {
			OK(read_answer());
		} else {
			FAILS(PAWL_EIO, read_answer());
		}
	}
	op.off_bytes = 0;
	op.got_bytes = 2; /* the whole object ends in the range */
	answer(200, "", HEADERS(ETAG));
	OK(read_answer());
	assert_int_equal(op.size_bytes, 2);
	answer(200, "", HEADERS(ETAG, "content-encoding", "gzip"));
	FAILS(PAWL_EIO, read_answer());
	SAYS("an encoding that was not asked for");
}

/* ---- lists ---- */

static char listed[1024]; /* results of the list, one a line */
static unsigned stop_at;  /* ends the page at this result; 0: never */

static int add_found(void *user, const struct object_found *found)
{
	unsigned *n = user;
	size_t len = strlen(listed);

	assert_null(found->upload);
	snprintf(listed + len, sizeof(listed) - len, "%s %u%s\n", found->key,
		(unsigned)found->size_bytes, found->folder ? " folder" : "");
	return ++*n == stop_at;
}

#define LIST(x)                                                                                    \
	BOM "<?xml version=\"1.0\" encoding=\"utf-8\"?><EnumerationResults "                       \
	    "ServiceEndpoint=\"https://acct.blob.core.windows.net/\" "                             \
	    "ContainerName=\"box\"><Prefix>dir/</Prefix>" x "</EnumerationResults>"
#define BLOB(k, n)                                                                                 \
	"<Blob><Name>" k "</Name><Properties><Etag>0x8D</Etag><Content-Length>" n                  \
	"</Content-Length><BlobType>BlockBlob</BlobType></Properties></Blob>"
#define META(k, m)                                                                                 \
	"<Blob><Name>" k "</Name><Properties><Content-Length>0</Content-Length>"                   \
	"</Properties><Metadata>" m "</Metadata></Blob>"
#define PREFIX(k) "<BlobPrefix><Name>" k "</Name></BlobPrefix>"
#define LAST      "<NextMarker />"

/* Reads a page of what begins with dir/. */
static int read_list(const char *text)
{
	unsigned n = 0;

	listed[0] = '\0';
	op.verb = OBJECT_LIST;
	op.key = "dir/";
	op.found = add_found;
	op.user = &n;
	answer(200, text, NO_HEADERS);
	return read_answer();
}

static void pages_are_read(void **state)
{
	OK(read_list(LIST("<Blobs>" BLOB("dir/a &amp;&#x20AC; b", "12") PREFIX("dir/d/")
			BLOB("dir/z", "0") "</Blobs><NextMarker>2!92!MDA=</NextMarker>")));
	assert_string_equal(listed, "dir/a &\xe2\x82\xac b 12\ndir/d/ 0 folder\ndir/z 0\n");
	assert_string_equal(op.next_token, "2!92!MDA=");
	OK(read_list(LIST("<Blobs />" LAST)));
	assert_string_equal(listed, "");
	assert_string_equal(op.next_token, "");
	OK(read_list(LIST("<Blobs></Blobs><NextMarker>more</NextMarker>"))); /* empty, with more */
	assert_string_equal(op.next_token, "more");
}

static void a_page_can_be_left(void **state)
{
	stop_at = 2;
	OK(read_list(LIST("<Blobs>" BLOB("dir/a", "1") BLOB("dir/b", "1")
			BLOB("elsewhere", "1") "</Blobs><NextMarker>x</NextMarker>")));
	stop_at = 0;
	assert_string_equal(listed, "dir/a 1\ndir/b 1\n");
	assert_string_equal(op.next_token, "");
}

static void marks_of_folders_are_left_out(void **state)
{
	OK(read_list(LIST("<Blobs>" META("dir/d", "<hdi_isfolder>true</hdi_isfolder>")
			META("dir/e", "<a>b</a><Hdi_isfolder>True</Hdi_isfolder>") META("dir/f",
				"<hdi_isfolder>false</hdi_isfolder>") META("dir/g",
				"<a>true</a>") "<Blob><Name>dir/h</Name><Properties><ResourceType>"
					       "directory</ResourceType></Properties></Blob>"
					       "<Blob><Name>dir/i</Name><Properties><ResourceType>"
					       "file</ResourceType></Properties></Blob>"
					       "<BlobPrefix><Name>dir/d/</Name><Properties>"
					       "<ResourceType>directory</ResourceType>"
					       "</Properties></BlobPrefix></Blobs>" LAST)));
	assert_string_equal(listed, "dir/f 0\ndir/g 0\ndir/i 0\ndir/d/ 0 folder\n");
}

static void lists_that_cannot_be_are_refused(void **state)
{
	static const struct {
		const char *text; /* text of the answer */
		const char *says; /* part of the message */
	} cases[] = {
		{LIST("<Blobs>" BLOB("other/a", "1") "</Blobs>" LAST), "a value that cannot be"},
		{LIST("<Blobs>" BLOB("dir", "1") "</Blobs>" LAST), "a value that cannot be"},
		{LIST("<Blobs>" PREFIX("d/") "</Blobs>" LAST), "a value that cannot be"},
		{LIST("<Blobs>" PREFIX("dir/d") "</Blobs>" LAST), "a value that cannot be"},
		{LIST("<Blobs>" BLOB("dir/a", "12x") "</Blobs>" LAST), "a value that cannot be"},
		{LIST("<Blobs><Blob><Properties/></Blob></Blobs>" LAST), "a value that cannot be"},
		{LIST("<Blobs>" META("d", "<hdi_isfolder>true</hdi_isfolder>") "</Blobs>" LAST),
			"a value that cannot be"},
		{LIST("<Blobs>" BLOB("dir/a", "111111111111111111111111111111111111") "</Blobs>"),
			"a value that cannot be"},
		{"", "XML"},
		{"<EnumerationResults><Blobs>", "XML"},
		{"<html>Please log in</html>", "no list"},
		{"<ListBucketResult></ListBucketResult>", "no list"},
		{"<a><EnumerationResults/></a>", "no list"},
		{"<!DOCTYPE a [<!ENTITY b \"c\">]><a/>", "document type"},
		{LIST("<Blobs />"
		      "<NextMarker>now</NextMarker>"),
			"a list that never ends"},
	};

	op.token = "now";
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		FAILS(PAWL_EIO, read_list(cases[i].text));
		SAYS(cases[i].says);
		assert_string_equal(op.code, "");
	}
	FAILS(PAWL_EIO, read_list("<Error><Code>ServerBusy</Code></Error>"));
	assert_string_equal(op.code, "ServerBusy");
}

static void markers_have_a_limit(void **state)
{
	char text[OBJECT_TOKEN_MAX + 128];
	int n = snprintf(text, sizeof(text), "<EnumerationResults><NextMarker>");

	memset(text + n, 'm', OBJECT_TOKEN_MAX);
	snprintf(text + n + OBJECT_TOKEN_MAX, sizeof(text) - OBJECT_TOKEN_MAX - (size_t)n,
		"</NextMarker></EnumerationResults>");
	FAILS(PAWL_EIO, read_list(text));
	SAYS("without a usable next page");
	assert_string_equal(op.next_token, "");
}

/* ---- errors ---- */

static void errors_have_names(void **state)
{
	static const char text[] = BOM
		"<?xml version=\"1.0\" encoding=\"utf-8\"?><Error><Code>ContainerNotFound</Code>"
		"<Message>The specified container does not exist.\nRequestId:1\nTime:2</Message>"
		"<AuthenticationErrorDetail>hush</AuthenticationErrorDetail></Error>";
	char message[OBJECT_MESSAGE_MAX] = "old";
	char region[OBJECT_NAME_MAX] = "old";

	op.verb = OBJECT_GET;
	answer(404, text, HEADERS("x-ms-error-code", "ContainerNotFound"));
	azure_dialect.read_error(&op, message, region);
	assert_string_equal(op.code, "ContainerNotFound");
	assert_string_equal(message, "The specified container does not exist.");
	assert_string_equal(region, "");
	answer(404, text, NO_HEADERS);
	azure_dialect.read_error(&op, message, region);
	assert_string_equal(op.code, "ContainerNotFound");
	answer(404, "", HEADERS("x-ms-error-code", "BlobNotFound")); /* a HEAD's */
	azure_dialect.read_error(&op, message, region);
	assert_string_equal(op.code, "BlobNotFound");
	assert_string_equal(message, "");
	answer(502, "<html>bad gateway", NO_HEADERS);
	azure_dialect.read_error(&op, message, region);
	assert_string_equal(op.code, "");
	assert_string_equal(message, "");
}

static void long_messages_are_cut(void **state)
{
	char text[1024] = "<Error><Message>";
	char message[OBJECT_MESSAGE_MAX];
	char region[OBJECT_NAME_MAX];
	size_t n = strlen(text);

	memset(text + n, 'm', 600);
	snprintf(text + n + 600, sizeof(text) - n - 600, "</Message></Error>");
	answer(400, text, NO_HEADERS);
	azure_dialect.read_error(&op, message, region);
	assert_int_equal(strlen(message), OBJECT_MESSAGE_MAX - 1);
}

/* ---- memory ---- */

static void memory_may_be_out(void **state)
{
	op.upload = UPLOAD;
	for (uint64_t nth = 1; each_fault(nth); nth++) {
		int rv;

		free(op.body_text);
		op.body_text = NULL;
		op.verb = OBJECT_COMPLETE;
		fault_arm("azure.", nth, ENOMEM, false);
		rv = azure_dialect.build(&place, &op, &request, &err);
		rv = rv == 0 ? read_list(LIST("<Blobs />" LAST)) : rv;
		fault_disarm();
		assert_int_equal(rv, fault_reached(nth) ? PAWL_ENOMEM : 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(an_account_is_in_the_host_or_the_path),
		TEST(addresses_have_a_style),
		TEST(objects_are_put_and_removed),
		TEST(objects_are_read),
		TEST(pages_are_listed),
		TEST(keys_that_azure_changes_are_refused),
		TEST(requests_have_limits),
		TEST(what_was_written_is_told),
		TEST(etags_have_a_limit),
		TEST(objects_have_sizes),
		TEST(folders_are_no_objects),
		TEST(ranges_are_checked),
		TEST(pages_are_read),
		TEST(a_page_can_be_left),
		TEST(marks_of_folders_are_left_out),
		TEST(lists_that_cannot_be_are_refused),
		TEST(markers_have_a_limit),
		TEST(errors_have_names),
		TEST(long_messages_are_cut),
		TEST(memory_may_be_out),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
