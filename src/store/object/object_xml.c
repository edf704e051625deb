/*
 * Reads XML of object stores: see object_xml.h.
 *
 * Each element that is open has its own text, as characters may stand before and behind an element
 * inside of it. An error or a callback that has enough stops the parser, and rv says why.
 *
 * An entity can be declared only in a document type, so whoever refuses the latter need not count
 * what entities expand to. The parser reports a document type before it reads what stands in it.
 */
#include "store/object/object_xml.h"

#include "base/err.h"
#include "base/fault.h"

#include <expat.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define LEN_MAX (64u << 20) /* bytes of XML; a list of 5,000 blobs has some MiB */

/* An element that is open. */
struct level {
	size_t parent_n;         /* bytes of the path of the element around it */
	size_t text_n;           /* bytes in text */
	char text[XML_TEXT_MAX]; /* characters so far; does not begin with white space */
};

struct reader {
	XML_Parser parser;                  /* owned */
	xml_fn *each;                       /* the caller's */
	void *user;                         /* the caller's, for each */
	struct pawl_err *err;               /* the caller's; may be NULL */
	int rv;                             /* why the parser was stopped; 0: it was not */
	size_t depth;                       /* elements that are open */
	size_t path_n;                      /* bytes in path */
	char path[XML_PATH_MAX];            /* the innermost open element's, with a terminator */
	struct level levels[XML_DEPTH_MAX]; /* the first depth are in use, outermost first */
};

static bool is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static void stop(struct reader *reader, int rv)
{
	reader->rv = rv;
	XML_StopParser(reader->parser, XML_FALSE);
}

static int set_error(struct reader *reader, const char *what)
{
	return pawl_err_set(reader->err, PAWL_EIO, "XML, line %lu: %s",
		(unsigned long)XML_GetCurrentLineNumber(reader->parser), what);
}

/* ---- what the parser reports; it may do so once more after it was stopped ---- */

static void XMLCALL start_element(void *user, const char *name, const char **attributes)
{
	struct reader *reader = user;
	const char *colon = strrchr(name, ':');
	const char *local = colon != NULL && colon[1] != '\0' ? colon + 1 : name;
	bool inner = reader->depth > 0;
	size_t local_n = strlen(local);
	struct level *level;

	if (reader->rv != 0) {
		return;
	}
	if (reader->depth == XML_DEPTH_MAX) {
		stop(reader, set_error(reader, "elements are nested too deep"));
		return;
	}
	if (local_n >= XML_PATH_MAX - reader->path_n - inner) {
		stop(reader, set_error(reader, "names of elements are too long"));
		return;
	}
	level = &reader->levels[reader->depth++];
	level->parent_n = reader->path_n;
	level->text_n = 0;
	if (inner) {
		reader->path[reader->path_n++] = '/';
	}
	memcpy(reader->path + reader->path_n, local, local_n + 1);
	reader->path_n += local_n;
}

static void XMLCALL end_element(void *user, const char *name)
{
	struct reader *reader = user;
	struct level *level;
	int rv;

	if (reader->rv != 0) {
		return;
	}
	level = &reader->levels[--reader->depth];
	while (level->text_n > 0 && is_space(level->text[level->text_n - 1])) {
		level->text_n--;
	}
	level->text[level->text_n] = '\0';
	rv = reader->each(reader->user, reader->path, level->text);
	reader->path_n = level->parent_n;
	reader->path[reader->path_n] = '\0';
	if (rv != 0) {
		stop(reader, rv);
	}
}

/* Adds a character to a text. Drops white space at the start; and once the text is full, where it
 * stands at the end, as anything else behind it fails. */
static bool add_char(struct level *level, char c)
{
	bool full = level->text_n == XML_TEXT_MAX - 1;

	if (is_space(c) && (level->text_n == 0 || full)) {
		return true;
	}
	if (!full) {
		level->text[level->text_n++] = c;
	}
	return !full;
}

static void XMLCALL add_text(void *user, const char *text, int len_bytes)
{
	struct reader *reader = user;

	if (reader->rv != 0) {
		return;
	}
	for (int i = 0; i < len_bytes; i++) {
		if (!add_char(&reader->levels[reader->depth - 1], text[i])) {
			stop(reader, set_error(reader, "a value is too long"));
			return;
		}
	}
}

static void XMLCALL refuse_doctype(void *user, const char *name, const char *system,
	const char *public, int has_subset)
{
	struct reader *reader = user;

	stop(reader, set_error(reader, "it has a document type, which no object store sends"));
}

/* ---- memory of the parser ---- */

static void *alloc(size_t len_bytes)
{
	return FAULT_MEM("xml.parser", malloc(len_bytes));
}

static void *alloc_again(void *p, size_t len_bytes)
{
	return FAULT_MEM("xml.parser", realloc(p, len_bytes));
}

/* ---- reading ---- */

static int parse(struct reader *reader, const char *bytes, size_t len_bytes)
{
	enum XML_Error error;

	XML_SetUserData(reader->parser, reader);
	XML_SetElementHandler(reader->parser, start_element, end_element);
	XML_SetCharacterDataHandler(reader->parser, add_text);
	XML_SetStartDoctypeDeclHandler(reader->parser, refuse_doctype);
	if (XML_Parse(reader->parser, bytes, (int)len_bytes, XML_TRUE) == XML_STATUS_OK) {
		return 0;
	}
	if (reader->rv != 0) {
		return reader->rv;
	}
	error = XML_GetErrorCode(reader->parser);
	if (error == XML_ERROR_NO_MEMORY) {
		return pawl_err_set(reader->err, PAWL_ENOMEM, "read XML");
	}
	return set_error(reader, XML_ErrorString(error));
}

int xml_read(const char *bytes, size_t len_bytes, xml_fn *each, void *user, struct pawl_err *err)
{
	static const XML_Memory_Handling_Suite memory = {alloc, alloc_again, free};
	struct reader *reader;
	int rv;

	if (len_bytes > LEN_MAX) {
		return pawl_err_set(err, PAWL_EIO, "XML of %zu bytes: at most %u", len_bytes,
			LEN_MAX);
	}
	/* Services keep a connection alive by white space, before which no XML may begin. */
	while (len_bytes > 0 && is_space(*bytes)) {
		bytes++;
		len_bytes--;
	}
	reader = alloc(sizeof(*reader));
	if (reader == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "read XML");
	}
	reader->each = each;
	reader->user = user;
	reader->err = err;
	reader->rv = 0;
	reader->depth = 0;
	reader->path_n = 0;
	reader->parser = XML_ParserCreate_MM(NULL, &memory, NULL);
	rv = reader->parser != NULL ? parse(reader, bytes, len_bytes)
				    : pawl_err_set(err, PAWL_ENOMEM, "read XML");
	XML_ParserFree(reader->parser); /* NULL is fine */
	free(reader);
	return rv;
}
