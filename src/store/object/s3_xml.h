/* What the API of Amazon S3 and the XML API of Google Cloud Storage have in common: the addresses
 * of requests, and the XML of lists, uploads and errors. Conditions and checksums are each one's
 * own. Pure: nothing here does I/O. */
#ifndef STORE_OBJECT_S3_XML_H
#define STORE_OBJECT_S3_XML_H

#include "store/object/dialect.h"

/* Begins a request with method and path. The dialect's own headers follow. */
void s3_xml_begin(const struct object_place *place, const struct object_op *op,
	struct http_request *request);
/* Ends it with range and query, and the body of COMPLETE, which has the checksums of the parts if
 * sums is set. PAWL_ENOMEM; PAWL_ELIMIT: the request is too long. */
int s3_xml_end(struct object_op *op, bool sums, struct http_request *request, struct pawl_err *err);

/* Each reads an answer with status 2xx, as read of struct object_dialect does. */

/* Reads a page of a list of objects, of uploads, or of parts. */
int s3_xml_read_page(struct object_op *op, struct pawl_err *err);
/* Reads the id of an upload that was begun. */
int s3_xml_read_begun(struct object_op *op, struct pawl_err *err);
/* Reads the end of an upload. The etag in the text becomes op->etag. */
int s3_xml_read_completed(struct object_op *op, struct pawl_err *err);

/* Reads the text of an error, as read_error of struct object_dialect does. */
void s3_xml_read_error(struct object_op *op, char *message, char *region);

#endif
