/* XML of object stores, by libexpat: the values of elements, each with its path. Pure; any
 * thread. */
#ifndef STORE_OBJECT_OBJECT_XML_H
#define STORE_OBJECT_OBJECT_XML_H

#include <stddef.h>

struct pawl_err;

#define XML_PATH_MAX  256u  /* bytes of a path, terminator included */
#define XML_TEXT_MAX  4096u /* bytes of a value, terminator included: a key has at most 1024 */
#define XML_DEPTH_MAX 16u

/* Called at the end of each element. path: the names of the elements around it and its own, joined
 * by '/', without namespaces: "ListBucketResult/Contents/Key". text: its own characters without
 * white space at both ends, decoded; of elements inside of it has none. Return nonzero to stop. */
typedef int xml_fn(void *user, const char *path, const char *text);

/* Calls each for every element, in the order of their ends. PAWL_EIO: this is no XML, it has a
 * document type or entities of its own, or a limit above is exceeded; err says which. A value that
 * each returned is returned. PAWL_ENOMEM. Before an error each may have been called for what comes
 * before it. White space before the XML is fine. */
int xml_read(const char *bytes, size_t len_bytes, xml_fn *each, void *user, struct pawl_err *err);

#endif
