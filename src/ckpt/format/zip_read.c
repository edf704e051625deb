/*
 * Reads where the payloads of a torch zip lie, from its central directory. See zip.h for the
 * contract.
 *
 * Everything in the file is checked before use: end record, directory inside the file, each record
 * inside the directory, each local header equal in name, each payload in front of the directory, no
 * two members in the same bytes. A member is one entry as the directory describes it.
 */
#include "ckpt/format/zip.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/wire.h"
#include "ckpt/format/zip_bytes.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_CAP                                                                                   \
	512u /* bytes of a member's name, in which torch puts the file's stem (255 at most) twice */
#define OTHERS_MAX  64u /* members that are neither storage nor pickle, at most */
#define MEMBERS_MAX (ZIP_STORAGES_MAX + 1 + OTHERS_MAX)

/* The file to read from. */
struct source {
	zip_read_fn *read;   /* the caller's */
	void *user;          /* passed to read */
	uint64_t size_bytes; /* size of the file */
	bool tail; /* do not read the local headers of storages, which lie all over the file */
};

/* The central directory. */
struct directory {
	uint64_t off;        /* offset in the file */
	uint64_t size_bytes; /* size of all records */
	uint64_t members;    /* number of records */
};

enum member_kind { MEMBER_STORAGE, MEMBER_PICKLE, MEMBER_BYTEORDER, MEMBER_OTHER };

struct member {
	struct zip_entry entry; /* as described by the directory and the local header */
	enum member_kind kind;
	uint32_t index; /* number of a storage */
};

/* The archive's name, which begins the names of all members. */
struct prefix {
	char bytes[NAME_CAP]; /* "archive/", not terminated */
	size_t len_bytes;     /* 0 before the first member */
};

static int read_at(const struct source *src, uint64_t off, void *buf, size_t len_bytes,
	const char *what, struct pawl_err *err)
{
	if (off > src->size_bytes || len_bytes > src->size_bytes - off) {
		return pawl_err_set(err, PAWL_ECORRUPT, "zip: %s lies outside of the file", what);
	}
	return src->read(src->user, off, buf, len_bytes, err);
}

/* ---- end records ---- */

/* Replaces dir by the zip64 end record, if a locator stands before the end record. */
static int read_end64(const struct source *src, struct directory *dir, struct pawl_err *err)
{
	uint8_t bytes[ZIP_END64_BYTES];
	struct wire_in in;
	uint64_t at;
	int rv;

	if (src->size_bytes < ZIP_END_BYTES + ZIP_LOCATOR_BYTES) {
		return 0;
	}
	rv = read_at(src, src->size_bytes - ZIP_END_BYTES - ZIP_LOCATOR_BYTES, bytes,
		ZIP_LOCATOR_BYTES, "zip64 locator", err);
	if (rv != 0) {
		return rv;
	}
	wire_in_init(&in, bytes, ZIP_LOCATOR_BYTES);
	if (wire_get_u32(&in) != ZIP_SIG_LOCATOR) {
		return 0;
	}
	wire_get_u32(&in); /* disk */
	at = wire_get_u64(&in);
	rv = read_at(src, at, bytes, sizeof(bytes), "zip64 end record", err);
	if (rv != 0) {
		return rv;
	}
	wire_in_init(&in, bytes, sizeof(bytes));
	if (wire_get_u32(&in) != ZIP_SIG_END64) {
		return pawl_err_set(err, PAWL_ECORRUPT, "zip: no zip64 end record");
	}
	wire_get_raw(&in, 8 + 2 + 2 + 4 + 4); /* length, versions, disks */
	dir->members = wire_get_u64(&in);
	wire_get_u64(&in); /* on all disks */
	dir->size_bytes = wire_get_u64(&in);
	dir->off = wire_get_u64(&in);
	return 0;
}

/* Finds the directory. A comment behind the end record is not supported: torch writes none. */
static int read_end(const struct source *src, struct directory *dir, struct pawl_err *err)
{
	uint8_t bytes[ZIP_END_BYTES];
	struct wire_in in;
	uint32_t sig;
	int rv;

	if (src->size_bytes < ZIP_END_BYTES) {
		return pawl_err_set(err, PAWL_ECORRUPT, "zip: only %" PRIu64 " bytes long",
			src->size_bytes);
	}
	rv = read_at(src, src->size_bytes - ZIP_END_BYTES, bytes, sizeof(bytes), "end record", err);
	if (rv != 0) {
		return rv;
	}
	wire_in_init(&in, bytes, sizeof(bytes));
	sig = wire_get_u32(&in);
	wire_get_u32(&in); /* disks */
	dir->members = wire_get_u16(&in);
	wire_get_u16(&in); /* on all disks */
	dir->size_bytes = wire_get_u32(&in);
	dir->off = wire_get_u32(&in);
	if (sig != ZIP_SIG_END || wire_get_u16(&in) != 0) {
		return pawl_err_set(err, PAWL_ECORRUPT, "zip: no end record at its end");
	}
	rv = read_end64(src, dir, err);
	if (rv != 0) {
		return rv;
	}
	if (dir->off > src->size_bytes || dir->size_bytes > src->size_bytes - dir->off) {
		return pawl_err_set(err, PAWL_ECORRUPT,
			"zip: the directory lies outside of the file");
	}
	if (dir->members > MEMBERS_MAX) {
		return pawl_err_set(err, PAWL_ELIMIT, "zip: %" PRIu64 " entries, at most %u",
			dir->members, MEMBERS_MAX);
	}
	return 0;
}

/* ---- directory records ---- */

/* Sets the kind of a member from its name behind the archive's. Returns false if a number is
 * malformed. */
static bool parse_kind(struct member *m, const char *name, size_t len_bytes)
{
	static const char data[] = "data/";
	uint64_t index = 0;
	size_t i = sizeof(data) - 1;

	m->kind = MEMBER_OTHER;
	if (len_bytes == strlen("data.pkl") && memcmp(name, "data.pkl", len_bytes) == 0) {
		m->kind = MEMBER_PICKLE;
	} else if (len_bytes == strlen("byteorder") && memcmp(name, "byteorder", len_bytes) == 0) {
		m->kind = MEMBER_BYTEORDER;
	}
	if (len_bytes < i || memcmp(name, data, i) != 0) {
		return true;
	}
	if (len_bytes == i || (name[i] == '0' && len_bytes > i + 1)) {
		return false;
	}
	for (; i < len_bytes; i++) {
		if (name[i] < '0' || name[i] > '9' || index > ZIP_STORAGES_MAX) {
			return false;
		}
		index = index * 10 + (uint64_t)(name[i] - '0');
	}
	m->kind = MEMBER_STORAGE;
	m->index = (uint32_t)index;
	return index < ZIP_STORAGES_MAX;
}

/* Checks the archive's name and sets the member's kind. */
static int parse_name(struct member *m, struct prefix *prefix, const char *name, size_t len_bytes,
	struct pawl_err *err)
{
	const char *slash = memchr(name, '/', len_bytes);

	if (slash == NULL || len_bytes >= NAME_CAP) {
		return pawl_err_set(err, PAWL_ECORRUPT, "zip: entry %.*s is in no archive folder",
			(int)(len_bytes < 64 ? len_bytes : 64), name);
	}
	if (prefix->len_bytes == 0) {
		prefix->len_bytes = (size_t)(slash - name) + 1;
		memcpy(prefix->bytes, name, prefix->len_bytes);
	}
	if (len_bytes < prefix->len_bytes || memcmp(name, prefix->bytes, prefix->len_bytes) != 0 ||
		!parse_kind(m, name + prefix->len_bytes, len_bytes - prefix->len_bytes)) {
		return pawl_err_set(err, PAWL_ECORRUPT, "zip: unexpected entry %.*s",
			(int)len_bytes, name);
	}
	return 0;
}

/* Reads the numbers that did not fit from the zip64 extra field, in the order of the format.
 * Returns false if one is missing. */
static bool parse_zip64(struct zip_entry *entry, uint64_t *stored_bytes, const uint8_t *extra,
	size_t len_bytes)
{
	struct wire_in in;

	wire_in_init(&in, extra, len_bytes);
	while (!in.failed && wire_in_left(&in) >= ZIP_EXTRA_HEADER_BYTES) {
		uint16_t id = wire_get_u16(&in);
		uint16_t field_bytes = wire_get_u16(&in);
		const uint8_t *field = wire_get_raw(&in, field_bytes);

		if (id == ZIP_EXTRA_ZIP64 && field != NULL) {
			wire_in_init(&in, field, field_bytes);
			break;
		}
	}
	if (entry->size_bytes == ZIP_U32_FULL) {
		entry->size_bytes = wire_get_u64(&in);
	}
	if (*stored_bytes == ZIP_U32_FULL) {
		*stored_bytes = wire_get_u64(&in);
	}
	if (entry->header_off == ZIP_U32_FULL) {
		entry->header_off = wire_get_u64(&in);
	}
	return !in.failed;
}

/* Decodes one record of the directory. *name points into the record. data_off is not known yet. */
static int parse_record(struct wire_in *in, struct member *m, const char **name,
	uint16_t *name_bytes, struct pawl_err *err)
{
	uint32_t sig = wire_get_u32(in);
	uint64_t stored_bytes;
	uint16_t flags, method, extra_bytes, comment_bytes;
	const uint8_t *extra;

	wire_get_u32(in); /* versions */
	flags = wire_get_u16(in);
	method = wire_get_u16(in);
	wire_get_u32(in); /* time and date */
	m->entry.crc = wire_get_u32(in);
	stored_bytes = wire_get_u32(in);
	m->entry.size_bytes = wire_get_u32(in);
	*name_bytes = wire_get_u16(in);
	extra_bytes = wire_get_u16(in);
	comment_bytes = wire_get_u16(in);
	wire_get_raw(in, 2 + 2 + 4); /* disk, attributes */
	m->entry.header_off = wire_get_u32(in);
	*name = (const char *)wire_get_raw(in, *name_bytes);
	extra = wire_get_raw(in, extra_bytes);
	wire_get_raw(in, comment_bytes);
	if (in->failed || sig != ZIP_SIG_DIRECTORY) {
		return pawl_err_set(err, PAWL_ECORRUPT, "zip: the directory is damaged");
	}
	if (method != ZIP_METHOD_STORED || (flags & ZIP_FLAG_ENCRYPTED) != 0) {
		return pawl_err_set(err, PAWL_ENOTSUP, "zip: entry %.*s is %s", (int)*name_bytes,
			*name, method != ZIP_METHOD_STORED ? "compressed" : "encrypted");
	}
	if (!parse_zip64(&m->entry, &stored_bytes, extra, extra_bytes) ||
		stored_bytes != m->entry.size_bytes) {
		return pawl_err_set(err, PAWL_ECORRUPT, "zip: entry %.*s has an impossible size",
			(int)*name_bytes, *name);
	}
	return 0;
}

/* ---- local headers ---- */

/* Reads the local header: sets data_off and checks that the payload lies between its header and the
 * directory. */
static int read_local(const struct source *src, const struct directory *dir, struct member *m,
	const char *name, uint16_t name_bytes, struct pawl_err *err)
{
	uint8_t header[ZIP_LOCAL_BYTES + NAME_CAP];
	struct wire_in in;
	uint32_t sig;
	uint16_t extra_bytes;
	const uint8_t *local_name;
	int rv;

	ASSERT(name_bytes < NAME_CAP); /* parse_name refuses longer ones */
	if (src->tail && m->kind == MEMBER_STORAGE) {
		m->entry.data_off = m->entry.header_off + ZIP_LOCAL_BYTES + name_bytes;
		return 0;
	}
	rv = read_at(src, m->entry.header_off, header, ZIP_LOCAL_BYTES + name_bytes,
		"a local header", err);
	if (rv != 0) {
		return rv;
	}
	wire_in_init(&in, header, ZIP_LOCAL_BYTES + name_bytes);
	sig = wire_get_u32(&in);
	wire_get_raw(&in, 22);
	if (sig != ZIP_SIG_LOCAL || wire_get_u16(&in) != name_bytes) {
		goto corrupt;
	}
	extra_bytes = wire_get_u16(&in);
	local_name = wire_get_raw(&in, name_bytes);
	if (local_name == NULL || memcmp(local_name, name, name_bytes) != 0) {
		goto corrupt;
	}
	m->entry.data_off = m->entry.header_off + ZIP_LOCAL_BYTES + name_bytes + extra_bytes;
	if (m->entry.data_off > dir->off || m->entry.size_bytes > dir->off - m->entry.data_off) {
		goto corrupt;
	}
	return 0;
corrupt:
	return pawl_err_set(err, PAWL_ECORRUPT,
		"zip: entry %.*s: its header at %" PRIu64 " is damaged", (int)name_bytes, name,
		m->entry.header_off);
}

/* Checks the byte order of the numbers in the payloads: only the writer's little endian is
 * supported. */
static int check_byteorder(const struct source *src, const struct member *m, struct pawl_err *err)
{
	char order[sizeof("little") - 1];
	int rv;

	if (m->entry.size_bytes == sizeof(order)) {
		rv = read_at(src, m->entry.data_off, order, sizeof(order), "byteorder", err);
		if (rv != 0 || memcmp(order, "little", sizeof(order)) == 0) {
			return rv;
		}
	}
	return pawl_err_set(err, PAWL_ENOTSUP, "zip: its byte order is not little-endian");
}

/* ---- all together ---- */

static int read_members(const struct source *src, const struct directory *dir,
	const uint8_t *records, struct member *members, struct pawl_err *err)
{
	struct prefix prefix = {.len_bytes = 0};
	struct wire_in in;
	int rv = 0;

	wire_in_init(&in, records, dir->size_bytes);
	for (uint64_t i = 0; i < dir->members && rv == 0; i++) {
		const char *name;
		uint16_t name_bytes;

		rv = parse_record(&in, &members[i], &name, &name_bytes, err);
		if (rv == 0) {
			rv = parse_name(&members[i], &prefix, name, name_bytes, err);
		}
		if (rv == 0) {
			rv = read_local(src, dir, &members[i], name, name_bytes, err);
		}
		if (rv == 0 && members[i].kind == MEMBER_BYTEORDER) {
			rv = check_byteorder(src, &members[i], err);
		}
	}
	if (rv == 0 && wire_in_left(&in) != 0) {
		rv = pawl_err_set(err, PAWL_ECORRUPT, "zip: the directory is too long");
	}
	return rv;
}

static int compare_offsets(const void *a, const void *b)
{
	const struct member *x = a;
	const struct member *y = b;

	return (x->entry.header_off > y->entry.header_off) -
		(x->entry.header_off < y->entry.header_off);
}

/* Sorts members by place; PAWL_ECORRUPT if two share a byte. */
static int check_overlap(struct member *members, uint64_t n, struct pawl_err *err)
{
	qsort(members, n, sizeof(*members), compare_offsets);
	for (uint64_t i = 1; i < n; i++) {
		const struct zip_entry *before = &members[i - 1].entry;

		if (before->data_off + before->size_bytes > members[i].entry.header_off) {
			return pawl_err_set(err, PAWL_ECORRUPT, "zip: entries overlap at %" PRIu64,
				members[i].entry.header_off);
		}
	}
	return 0;
}

/* Puts storages and pickle at their places in the plan. Each place must be taken exactly once. */
static int fill_plan(struct zip_plan *plan, const struct member *members, uint64_t n,
	struct pawl_err *err)
{
	uint32_t storages = 0;
	uint32_t filled = 0;

	for (uint64_t i = 0; i < n; i++) {
		storages += members[i].kind == MEMBER_STORAGE;
	}
	plan->storages = storages;
	plan->entries_n = storages + 1;
	plan->entries = FAULT_MEM("zip.read", calloc(plan->entries_n, sizeof(*plan->entries)));
	if (plan->entries == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "zip: no memory for %u storages", storages);
	}
	for (uint64_t i = 0; i < n; i++) {
		bool is_storage = members[i].kind == MEMBER_STORAGE;
		uint32_t place = is_storage ? members[i].index : storages;

		if (members[i].kind > MEMBER_PICKLE) {
			continue;
		}
		/* a payload never begins at 0, so data_off 0 marks a free place */
		if ((is_storage && place >= storages) || plan->entries[place].data_off != 0) {
			break;
		}
		plan->entries[place] = members[i].entry;
		filled++;
	}
	if (filled != plan->entries_n) {
		return pawl_err_set(err, PAWL_ECORRUPT,
			"zip: its storages are not numbered from 0 on, or it has not exactly one "
			"data.pkl");
	}
	return 0;
}

static int read_plan(struct zip_plan *plan, const struct source *src, struct pawl_err *err)
{
	struct zip_plan p = {.size_bytes = src->size_bytes};
	struct directory dir = {0};
	struct member *members = NULL;
	uint8_t *records = NULL;
	int rv;

	rv = read_end(src, &dir, err);
	if (rv != 0) {
		return rv;
	}
	members = FAULT_MEM("zip.read", calloc(dir.members + 1, sizeof(*members)));
	records = FAULT_MEM("zip.read", malloc(dir.size_bytes + 1));
	if (members == NULL || records == NULL) {
		rv = pawl_err_set(err, PAWL_ENOMEM,
			"zip: no memory for a directory of %" PRIu64 " entries", dir.members);
		goto out;
	}
	rv = read_at(src, dir.off, records, dir.size_bytes, "the directory", err);
	if (rv == 0) {
		rv = read_members(src, &dir, records, members, err);
	}
	if (rv == 0) {
		rv = check_overlap(members, dir.members, err);
	}
	if (rv == 0) {
		rv = fill_plan(&p, members, dir.members, err);
	}
	if (rv != 0) {
		goto out;
	}
	p.tail_off = dir.off;
	*plan = p;
	p.entries = NULL;
out:
	zip_plan_deinit(&p);
	free(records);
	free(members);
	return rv;
}

int zip_plan_read(struct zip_plan *plan, zip_read_fn *read, void *user, uint64_t size_bytes,
	struct pawl_err *err)
{
	return read_plan(plan, &(struct source){read, user, size_bytes, .tail = false}, err);
}

int zip_plan_read_tail(struct zip_plan *plan, zip_read_fn *read, void *user, uint64_t size_bytes,
	struct pawl_err *err)
{
	return read_plan(plan, &(struct source){read, user, size_bytes, .tail = true}, err);
}
