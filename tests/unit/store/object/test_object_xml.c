/* XML of object stores: what services send, what breaks, and what somebody else might send. */
#include "base/rng.h"
#include "each_fault.h"
#include "expect.h"
#include "pawl/err.h"
#include "seed.h"
#include "store/object/object_xml.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define LEN(array) (sizeof(array) / sizeof((array)[0]))

static struct pawl_err err;

/* ---- reading into a text ---- */

/* The elements that were read, a line each: "path=text". */
static char seen[32768];

/* xml_fn */
static int see(void *user, const char *path, const char *text)
{
	size_t n = strlen(seen);
	int added = snprintf(seen + n, sizeof(seen) - n, "%s=%s\n", path, text);

	assert_in_range(added, 2, sizeof(seen) - n - 1);
	return 0;
}

static int read_xml(const char *xml)
{
	seen[0] = '\0';
	return xml_read(xml, strlen(xml), see, NULL, &err);
}

static void assert_reads(const char *xml, const char *wants)
{
	OK(read_xml(xml));
	assert_string_equal(seen, wants);
}

/* ---- what services send ---- */

static const char s3_list[] =
	"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
	"<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\n"
	"  <Name>bucket</Name>\n"
	"  <Prefix>a/</Prefix>\n"
	"  <NextContinuationToken>1ueGcxLPRx1Tr/XYExHnhbYLgveDs2J/wm36Hy4vbOwM=</"
	"NextContinuationToken>\n"
	"  <KeyCount>2</KeyCount>\n"
	"  <MaxKeys>1000</MaxKeys>\n"
	"  <IsTruncated>true</IsTruncated>\n"
	"  <Contents>\n"
	"    <Key>a/b &amp; c</Key>\n"
	"    <LastModified>2026-11-26T10:00:00.000Z</LastModified>\n"
	"    <ETag>&quot;d41d8cd98f00b204e9800998ecf8427e&quot;</ETag>\n"
	"    <Size>434234</Size>\n"
	"    <Owner><ID>75aa57f0</ID><DisplayName/></Owner>\n"
	"  </Contents>\n"
	"  <CommonPrefixes><Prefix>a/d/</Prefix></CommonPrefixes>\n"
	"</ListBucketResult>";

static void lists_of_s3_are_read(void **state)
{
	assert_reads(s3_list,
		"ListBucketResult/Name=bucket\n"
		"ListBucketResult/Prefix=a/\n"
		"ListBucketResult/NextContinuationToken="
		"1ueGcxLPRx1Tr/XYExHnhbYLgveDs2J/wm36Hy4vbOwM=\n"
		"ListBucketResult/KeyCount=2\n"
		"ListBucketResult/MaxKeys=1000\n"
		"ListBucketResult/IsTruncated=true\n"
		"ListBucketResult/Contents/Key=a/b & c\n"
		"ListBucketResult/Contents/LastModified=2026-11-26T10:00:00.000Z\n"
		"ListBucketResult/Contents/ETag=\"d41d8cd98f00b204e9800998ecf8427e\"\n"
		"ListBucketResult/Contents/Size=434234\n"
		"ListBucketResult/Contents/Owner/ID=75aa57f0\n"
		"ListBucketResult/Contents/Owner/DisplayName=\n"
		"ListBucketResult/Contents/Owner=\n"
		"ListBucketResult/Contents=\n"
		"ListBucketResult/CommonPrefixes/Prefix=a/d/\n"
		"ListBucketResult/CommonPrefixes=\n"
		"ListBucketResult=\n");
}

/* Azure begins with a byte order mark, and its root has attributes. */
static const char azure_list[] =
	"\xef\xbb\xbf<?xml version=\"1.0\" encoding=\"utf-8\"?>"
	"<EnumerationResults ServiceEndpoint=\"https://account.blob.core.windows.net/\" "
	"ContainerName=\"container\"><Prefix>a/</Prefix><Blobs><Blob><Name>a/b</Name><Properties>"
	"<Content-Length>5</Content-Length><Etag>0x8DBAD7EDDFAE2D1</Etag>"
	"<Content-MD5 /></Properties></Blob><BlobPrefix><Name>a/d/</Name></BlobPrefix></Blobs>"
	"<NextMarker>2!68!MDAwMDA</NextMarker></EnumerationResults>";

static void lists_of_azure_are_read(void **state)
{
	assert_reads(azure_list,
		"EnumerationResults/Prefix=a/\n"
		"EnumerationResults/Blobs/Blob/Name=a/b\n"
		"EnumerationResults/Blobs/Blob/Properties/Content-Length=5\n"
		"EnumerationResults/Blobs/Blob/Properties/Etag=0x8DBAD7EDDFAE2D1\n"
		"EnumerationResults/Blobs/Blob/Properties/Content-MD5=\n"
		"EnumerationResults/Blobs/Blob/Properties=\n"
		"EnumerationResults/Blobs/Blob=\n"
		"EnumerationResults/Blobs/BlobPrefix/Name=a/d/\n"
		"EnumerationResults/Blobs/BlobPrefix=\n"
		"EnumerationResults/Blobs=\n"
		"EnumerationResults/NextMarker=2!68!MDAwMDA\n"
		"EnumerationResults=\n");
}

/* While a service completes an upload, it sends white space, and only then what came of it. */
static void white_space_comes_before_the_xml(void **state)
{
	assert_reads(
		" \r\n\t  <?xml version=\"1.0\"?>\n<Error><Code>InternalError</Code></Error>\n",
		"Error/Code=InternalError\nError=\n");
	assert_reads("\n<Error/>", "Error=\n");
}

static void entities_are_decoded(void **state)
{
	assert_reads("<a>&lt;&gt;&amp;&apos;&quot;</a>", "a=<>&'\"\n");
	assert_reads("<a>&#x20AC;&#8364;</a>", "a=\xe2\x82\xac\xe2\x82\xac\n");
	assert_reads("<a>x<![CDATA[<b>&amp;</b>]]>y</a>", "a=x<b>&amp;</b>y\n");
	assert_reads("<a>x<!-- <b> --><?php <c> ?>y</a>", "a=xy\n");
	assert_reads("<?xml version='1.0' encoding='ISO-8859-1'?><a>\xe4</a>", "a=\xc3\xa4\n");
}

static void white_space_around_values_is_dropped(void **state)
{
	assert_reads("<a>\r\n\t x  y \n</a>", "a=x  y\n");
	assert_reads("<a> \t\r\n </a>", "a=\n");
	assert_reads("<a>\xc2\xa0x</a>", "a=\xc2\xa0x\n"); /* another kind of space */
}

/* The text of an element is its own, before and behind the elements inside. */
static void texts_of_nested_elements_are_apart(void **state)
{
	assert_reads("<a>1<b>2<c>3</c>4</b>5<b> </b> 6 </a>", "a/b/c=3\na/b=24\na/b=\na=15 6\n");
	assert_reads("<a><a><a/>x</a></a>", "a/a/a=\na/a=x\na=\n");
}

static void names_have_no_namespaces(void **state)
{
	assert_reads("<s3:a xmlns:s3=\"http://s3/\"><s3:b>x</s3:b><b xmlns=\"other\">y</b></s3:a>",
		"a/b=x\na/b=y\na=\n");
	assert_reads("<undeclared:a/>", "a=\n");
	assert_reads("<a:>x</a:>", "a:=x\n"); /* nothing behind the colon */
}

/* xml_fn; counts down, and stops at 0 */
static int stop_at_zero(void *user, const char *path, const char *text)
{
	int *left = user;

	assert_true(*left > 0);
	return --*left == 0 ? 7 : 0;
}

/* Nothing is called once a callback has enough, not even for what is broken behind. */
static void a_callback_can_stop(void **state)
{
	static const char *const xml[] = {"<a><b/><b/><c/></a>", "<a><b/><b/><c", "<a><b/><b></b>",
		"<a><b/><b/></a>"};

	for (size_t i = 0; i < LEN(xml); i++) {
		int left = 2;

		assert_int_equal(xml_read(xml[i], strlen(xml[i]), stop_at_zero, &left, NULL), 7);
		assert_int_equal(left, 0);
	}
	for (int n = 1; n <= 3; n++) {
		int left = n;

		assert_int_equal(xml_read(xml[3], strlen(xml[3]), stop_at_zero, &left, NULL), 7);
	}
}

/* ---- limits ---- */

/* Writes an element to xml: its name has n times the letter a. */
static void write_element(char *xml, size_t size_bytes, size_t n, const char *inside)
{
	char name[2 * XML_PATH_MAX] = "";

	assert_true(n < sizeof(name));
	memset(name, 'a', n);
	assert_in_range(snprintf(xml, size_bytes, "<%s>%s</%s>", name, inside, name), 1,
		size_bytes - 1);
}

static void paths_have_a_limit(void **state)
{
	char inner[4 * XML_PATH_MAX];
	char xml[8 * XML_PATH_MAX];

	write_element(xml, sizeof(xml), XML_PATH_MAX - 1, "");
	OK(read_xml(xml));
	write_element(xml, sizeof(xml), XML_PATH_MAX, "");
	FAILS(PAWL_EIO, read_xml(xml));
	SAYS("names of elements are too long");
	write_element(inner, sizeof(inner), XML_PATH_MAX - 3, "x");
	write_element(xml, sizeof(xml), 1, inner);
	OK(read_xml(xml));
	assert_int_equal(strcspn(seen, "="), XML_PATH_MAX - 1);
	write_element(inner, sizeof(inner), XML_PATH_MAX - 2, "x");
	write_element(xml, sizeof(xml), 1, inner);
	FAILS(PAWL_EIO, read_xml(xml));
	SAYS("names of elements are too long");
}

/* Reads an element on two lines, with a value of n bytes on the second. */
static int read_value(size_t n, const char *behind)
{
	static char value[XML_TEXT_MAX + 1];
	static char xml[XML_TEXT_MAX + 100];

	assert_true(n < sizeof(value));
	memset(value, 'x', n);
	value[n] = '\0';
	snprintf(xml, sizeof(xml), "<a>\n%s%s</a>", value, behind);
	return read_xml(xml);
}

static void values_have_a_limit(void **state)
{
	OK(read_value(XML_TEXT_MAX - 1, ""));
	assert_int_equal(strlen(seen), strlen("a=\n") + XML_TEXT_MAX - 1);
	OK(read_value(XML_TEXT_MAX - 1, " \n"));
	assert_int_equal(strlen(seen), strlen("a=\n") + XML_TEXT_MAX - 1);
	FAILS(PAWL_EIO, read_value(XML_TEXT_MAX - 1, " x"));
	SAYS("a value is too long");
	FAILS(PAWL_EIO, read_value(XML_TEXT_MAX, ""));
	SAYS("line 2: a value is too long");
}

/* Reads elements of this depth, the innermost of which is empty. */
static int read_nested(size_t depth)
{
	char xml[8 * (XML_DEPTH_MAX + 1)];
	size_t n = 0;

	assert_true(depth <= XML_DEPTH_MAX + 1);
	for (size_t i = 1; i < depth; i++) {
		n += (size_t)snprintf(xml + n, sizeof(xml) - n, "<a>");
	}
	n += (size_t)snprintf(xml + n, sizeof(xml) - n, "<a/>");
	for (size_t i = 1; i < depth; i++) {
		n += (size_t)snprintf(xml + n, sizeof(xml) - n, "</a>");
	}
	return read_xml(xml);
}

static void nesting_has_a_limit(void **state)
{
	OK(read_nested(XML_DEPTH_MAX));
	FAILS(PAWL_EIO, read_nested(XML_DEPTH_MAX + 1));
	SAYS("elements are nested too deep");
	assert_string_equal(seen, ""); /* nothing comes after an error */
}

/* A long list has more white space between its elements than a value may have bytes. */
static void lists_have_no_limit(void **state)
{
	static char xml[64 * XML_TEXT_MAX];
	size_t n = (size_t)snprintf(xml, sizeof(xml), "<a>");
	int left = XML_TEXT_MAX + 1;

	for (uint32_t i = 0; i < XML_TEXT_MAX; i++) {
		n += (size_t)snprintf(xml + n, sizeof(xml) - n, "\n\t\t\t<b>%u</b>", i);
	}
	snprintf(xml + n, sizeof(xml) - n, "</a>");
	assert_int_equal(xml_read(xml, strlen(xml), stop_at_zero, &left, &err), 7);
}

/* Bytes behind the XML are not read. */
static void the_length_is_obeyed(void **state)
{
	FAILS(PAWL_EIO, xml_read("   <a/>", 2, see, NULL, &err));
	SAYS("no element found");
	seen[0] = '\0';
	OK(xml_read("<a/><", 4, see, NULL, &err));
	assert_string_equal(seen, "a=\n");
}

/* The length is checked before any byte is looked at. */
static void the_whole_has_a_limit(void **state)
{
	FAILS(PAWL_EIO, xml_read(" ", SIZE_MAX, see, NULL, &err));
	SAYS("at most");
}

/* ---- what is no XML, or none that a service sends ---- */

struct bad {
	const char *xml;  /* text that is read */
	const char *says; /* what the error says */
};

static const struct bad bad[] = {
	{"", "no element found"},
	{" \n ", "no element found"},
	{"<?xml version=\"1.0\"?>", "no element found"},
	{"<!-- nothing -->", "no element found"},
	{"{\"error\": {\"code\": 503}}", "not well-formed"},
	{"Service Unavailable", "syntax error"},
	{"<a>", "no element found"},
	{"<a><b>x</b>", "no element found"},
	{"<a", "unclosed token"},
	{"<a>&amp", "unclosed token"},
	{"<a><![CDATA[x", "unclosed CDATA section"},
	{"<a>\n\n<b></a>", "line 3: mismatched tag"},
	{"<a/><b/>", "junk after document element"},
	{"<a/>x", "junk after document element"},
	{"x<a/>", "not well-formed"},
	{"<a>&nbsp;</a>", "undefined entity"},
	{"<a>&#0;</a>", "reference to invalid character number"},
	{"<a>&#1;</a>", "reference to invalid character number"},
	{"<a>\x01</a>", "not well-formed"},
	{"<a>\xff</a>", "not well-formed"},
	{"<a>\xed\xa0\x80</a>", "not well-formed"}, /* half a surrogate pair */
	{"<a b></a>", "not well-formed"},
	{"<a b='1' b='2'/>", "duplicate attribute"},
	{"<a><?xml version=\"1.0\"?></a>", "XML or text declaration not at start of entity"},
	{"<?xml version='1.0' encoding='Klingon'?><a/>", "unknown encoding"},
	{"<!DOCTYPE html><html><body>Log in</body></html>", "document type"},
	{"<!DOCTYPE a SYSTEM \"file:///etc/passwd\"><a/>", "document type"},
	{"<!DOCTYPE a [<!ENTITY x SYSTEM \"file:///etc/passwd\">]><a>&x;</a>", "document type"},
	{"<!DOCTYPE a [<!ENTITY x \"y\"><!ENTITY z \"&x;&x;\">]><a>&z;</a>", "document type"},
	{"<!DOCTYPE a [<!ENTITY % x \"y\"> %x;]><a/>", "document type"},
	{"<!ENTITY x \"y\"><a>&x;</a>", "syntax error"},
	{"<html><head><meta charset=utf-8></head></html>", "not well-formed"},
};

static void anything_else_is_refused(void **state)
{
	for (size_t i = 0; i < LEN(bad); i++) {
		if (read_xml(bad[i].xml) != PAWL_EIO || strstr(err.msg, bad[i].says) == NULL) {
			fail_msg("%s: %s, where \"%s\" should be", bad[i].xml, err.msg,
				bad[i].says);
		}
		assert_int_equal(xml_read(bad[i].xml, strlen(bad[i].xml), see, NULL, NULL),
			PAWL_EIO);
	}
}

/* An answer that is torn is never taken for a whole one. */
static void torn_xml_is_refused(void **state)
{
	static const char *const whole[] = {s3_list, azure_list};

	for (size_t i = 0; i < LEN(whole); i++) {
		for (size_t n = 1; n < strlen(whole[i]); n++) {
			char *torn = malloc(n);

			assert_non_null(torn);
			memcpy(torn, whole[i], n);
			seen[0] = '\0';
			FAILS(PAWL_EIO, xml_read(torn, n, see, NULL, &err));
			free(torn);
		}
	}
}

static void memory_may_run_out(void **state)
{
	uint64_t failed = 0;

	for (uint64_t nth = 1; each_fault(nth); nth++) {
		int rv;

		fault_arm("xml.parser", nth, ENOMEM, false);
		rv = read_xml(s3_list);
		fault_disarm();
		assert_true(rv == 0 || (rv == PAWL_ENOMEM && err.code == PAWL_ENOMEM));
		assert_true(rv == 0 || fault_reached(nth));
		failed += rv != 0;
	}
	assert_true(failed >= 3);
}

/* ---- random bytes ---- */

#define ROUNDS   2000
#define GROW_MAX 64u /* bytes that a change adds at most */

/* Changes len bytes of a text, which has room for GROW_MAX more, in one place. Returns the new
 * length. */
static size_t change(struct rng *rng, char *text, size_t len_bytes)
{
	static const char marks[] = "<>/&;:\"'=![]-? x#%\n\xff\x80";
	size_t at = rng_below(rng, len_bytes + 1);
	size_t most = len_bytes - at < GROW_MAX ? len_bytes - at : GROW_MAX;
	size_t n = rng_below(rng, most + 1);

	switch (rng_below(rng, 5)) {
	case 0: /* flip a bit */
		text[at % len_bytes] = (char)(text[at % len_bytes] ^ (1 << rng_below(rng, 8)));
		return len_bytes;
	case 1: /* put a character that means something */
		text[at % len_bytes] = marks[rng_below(rng, sizeof(marks) - 1)];
		return len_bytes;
	case 2: /* drop a piece */
		memmove(text + at, text + at + n, len_bytes - at - n);
		return len_bytes - n;
	case 3: /* have a piece twice */
		memmove(text + at + n, text + at, len_bytes - at);
		return len_bytes + n;
	default: /* cut it */
		return at > len_bytes / 2 ? at : len_bytes;
	}
}

/* xml_fn; an element has at least 4 bytes */
static int check_element(void *user, const char *path, const char *text)
{
	size_t *left_bytes = user;

	assert_true(strlen(path) < XML_PATH_MAX && strlen(text) < XML_TEXT_MAX);
	assert_true(*left_bytes >= 4);
	*left_bytes -= 4;
	return 0;
}

static void changed_xml_does_no_harm(void **state)
{
	struct rng rng = {test_seed()};
	int whole = 0;

	for (int round = 0; round < ROUNDS; round++) {
		const char *xml = round % 2 == 0 ? s3_list : azure_list;
		size_t len_bytes = strlen(xml);
		uint64_t changes = 1 + rng_below(&rng, 4);
		char *text = malloc(len_bytes + changes * GROW_MAX);
		size_t left_bytes;
		int rv;

		assert_non_null(text);
		memcpy(text, xml, len_bytes);
		for (uint64_t i = 0; i < changes && len_bytes > 0; i++) {
			len_bytes = change(&rng, text, len_bytes);
		}
		text = realloc(text, len_bytes + 1); /* a sanitizer sees reads behind it */
		assert_non_null(text);
		left_bytes = len_bytes;
		err.msg[0] = '\0';
		rv = xml_read(text, len_bytes, check_element, &left_bytes, &err);
		assert_true(rv == 0 || (rv == PAWL_EIO && err.msg[0] != '\0'));
		whole += rv == 0;
		free(text);
	}
	printf("%d of %d were still XML\n", whole, ROUNDS);
	assert_in_range(whole, 1, ROUNDS - 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lists_of_s3_are_read),
		cmocka_unit_test(lists_of_azure_are_read),
		cmocka_unit_test(white_space_comes_before_the_xml),
		cmocka_unit_test(entities_are_decoded),
		cmocka_unit_test(white_space_around_values_is_dropped),
		cmocka_unit_test(texts_of_nested_elements_are_apart),
		cmocka_unit_test(names_have_no_namespaces),
		cmocka_unit_test(a_callback_can_stop),
		cmocka_unit_test(paths_have_a_limit),
		cmocka_unit_test(values_have_a_limit),
		cmocka_unit_test(nesting_has_a_limit),
		cmocka_unit_test(lists_have_no_limit),
		cmocka_unit_test(the_length_is_obeyed),
		cmocka_unit_test(the_whole_has_a_limit),
		cmocka_unit_test(anything_else_is_refused),
		cmocka_unit_test(torn_xml_is_refused),
		cmocka_unit_test(memory_may_run_out),
		cmocka_unit_test(changed_xml_does_no_harm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
