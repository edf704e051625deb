/* pawl explain: loads the files of a directory, group by group. */
#include "cli/explain.h"

#include "base/err.h"

#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the directory ---- */

static bool is_trace(const char *name)
{
	size_t len = strlen(name);
	size_t suffix = strlen(TRACE_SUFFIX);

	return len > suffix && len < sizeof(((struct explain_file *)0)->name) &&
		strcmp(name + len - suffix, TRACE_SUFFIX) == 0;
}

/* Reads len bytes from off on. PAWL_ECORRUPT: there are fewer. */
static int read_at(int fd, uint8_t *bytes, size_t len, size_t off, struct pawl_err *err)
{
	for (size_t got = 0; got < len;) {
		ssize_t n = pread(fd, bytes + got, len - got, (off_t)(off + got));

		if (n < 0 && errno == EINTR) {
			continue;
		}
		if (n < 0) {
			return pawl_err_sys(err, "read");
		}
		if (n == 0) {
			return pawl_err_set(err, PAWL_ECORRUPT, "the file is too short");
		}
		got += (size_t)n;
	}
	return 0;
}

static int open_file(const struct explain_files *files, const char *name, int *fd,
	struct pawl_err *err)
{
	*fd = openat(files->folder, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	return *fd >= 0 ? 0 : pawl_err_sys(err, "open");
}

/* Adds a file, with the group and the rank in its header. A file that is no trace is counted, and
 * skipped. */
static void add_file(struct explain_files *files, const char *name)
{
	uint8_t bytes[TRACE_HEADER_BYTES];
	struct explain_file *file = &files->at[files->n];
	struct trace_header header;
	struct pawl_err err;
	int fd = -1;
	int rv = open_file(files, name, &fd, &err);

	if (rv == 0) {
		rv = read_at(fd, bytes, sizeof(bytes), 0, &err);
	}
	if (rv == 0) {
		rv = trace_header_decode(bytes, &header, &err);
	}
	if (rv == 0) {
		*file = (struct explain_file){.group = header.group, .rank = header.rank};
		memcpy(file->name, name, strlen(name) + 1);
		files->n++;
	} else if (files->bad_n++ == 0) {
		snprintf(files->bad, sizeof(files->bad), "%.100s: %.80s", name, err.msg);
	}
	if (fd >= 0) {
		close(fd);
	}
}

static int compare_files(const void *a, const void *b)
{
	const struct explain_file *one = a;
	const struct explain_file *two = b;

	if (one->group != two->group) {
		return one->group < two->group ? -1 : 1;
	}
	return one->rank < two->rank ? -1 : one->rank > two->rank;
}

static int list_files(struct explain_files *files, DIR *dir, struct pawl_err *err)
{
	struct dirent *entry;
	size_t cap = 0;

	while ((entry = readdir(dir)) != NULL) {
		if (!is_trace(entry->d_name)) {
			continue;
		}
		if (files->n == EXPLAIN_FILES_MAX) {
			return pawl_err_set(err, PAWL_ELIMIT, "more than %u traces",
				EXPLAIN_FILES_MAX);
		}
		if (files->n == cap) {
			struct explain_file *more;

			cap = cap > 0 ? 2 * cap : 64;
			more = realloc(files->at, cap * sizeof(*files->at));
			if (!more) {
				return pawl_err_set(err, PAWL_ENOMEM, "no memory for traces");
			}
			files->at = more;
		}
		add_file(files, entry->d_name);
	}
	return 0;
}

int explain_files_open(struct explain_files *files, const char *path, struct pawl_err *err)
{
	DIR *dir = opendir(path);
	int rv;

	*files = (struct explain_files){.folder = -1};
	if (!dir) {
		return pawl_err_sys(err, "%s", path);
	}
	files->folder = dup(dirfd(dir));
	rv = files->folder >= 0 ? list_files(files, dir, err) : pawl_err_sys(err, "%s", path);
	closedir(dir);
	if (rv == 0 && files->n == 0) {
		rv = pawl_err_set(err, PAWL_ENOENT, "no trace in %s%s%s", path,
			files->bad_n > 0 ? "; " : "", files->bad);
	}
	if (rv != 0) {
		explain_files_close(files);
		return rv;
	}
	qsort(files->at, files->n, sizeof(*files->at), compare_files);
	return 0;
}

void explain_files_close(struct explain_files *files)
{
	if (files->folder >= 0) {
		close(files->folder);
	}
	free(files->at);
	*files = (struct explain_files){.folder = -1};
}

/* ---- one group ---- */

/* Loads a trace. A rank may be writing to the file meanwhile: therefore the count is read again. */
static int load_trace(const struct explain_files *files, const char *name, uint8_t *bytes,
	struct trace *trace, struct pawl_err *err)
{
	uint64_t count = 0;
	int fd = -1;
	int rv = open_file(files, name, &fd, err);

	if (rv == 0) {
		rv = read_at(fd, bytes, TRACE_FILE_BYTES, 0, err);
	}
	if (rv == 0) {
		rv = read_at(fd, (uint8_t *)&count, sizeof(count), TRACE_COUNT_AT, err);
	}
	if (rv == 0) {
		rv = trace_decode(trace, bytes, TRACE_FILE_BYTES, le64toh(count), err);
	}
	if (fd >= 0) {
		close(fd);
	}
	return rv == 0 ? 0 : pawl_err_prefix(err, rv, "%s", name);
}

static int make_group(struct explain_group *group, const struct trace_header *header,
	struct pawl_err *err)
{
	group->id = header->group;
	group->ranks = header->ranks;
	group->hosts = header->hosts;
	group->traces = calloc(header->ranks, sizeof(*group->traces));
	group->base_ns = calloc(header->ranks, sizeof(*group->base_ns));
	return group->traces && group->base_ns
		? 0
		: pawl_err_set(err, PAWL_ENOMEM, "no memory for %u ranks", header->ranks);
}

static int take_trace(struct explain_group *group, struct trace *trace, struct pawl_err *err)
{
	const struct trace_header *header = &trace->header;
	int rv = group->traces ? 0 : make_group(group, header, err);

	if (rv == 0 &&
		(header->ranks != group->ranks || header->hosts != group->hosts ||
			group->traces[header->rank].header.ranks != 0)) {
		rv = pawl_err_set(err, PAWL_ECORRUPT,
			"two traces of group %016llx contradict each other: keep those of one job "
			"only",
			(unsigned long long)group->id);
	}
	if (rv != 0) {
		trace_deinit(trace);
		return rv;
	}
	group->traces[header->rank] = *trace;
	group->base_ns[header->rank] = header->wall_ns - header->mono_ns;
	group->traced_ranks++;
	return 0;
}

int explain_group_load(struct explain_group *group, const struct explain_files *files, size_t first,
	size_t *n, struct pawl_err *err)
{
	uint8_t *bytes = malloc(TRACE_FILE_BYTES);
	uint64_t id = files->at[first].group;
	size_t end = first;
	int rv = bytes ? 0 : pawl_err_set(err, PAWL_ENOMEM, "no memory for a trace");

	*group = (struct explain_group){0};
	for (; end < files->n && files->at[end].group == id && rv == 0; end++) {
		struct trace trace = {0};

		rv = load_trace(files, files->at[end].name, bytes, &trace, err);
		if (rv == 0) {
			rv = take_trace(group, &trace, err);
		}
	}
	free(bytes);
	if (rv != 0) {
		explain_group_deinit(group);
		return rv;
	}
	*n = end - first;
	return 0;
}

void explain_group_deinit(struct explain_group *group)
{
	for (uint32_t r = 0; r < group->ranks && group->traces; r++) {
		trace_deinit(&group->traces[r]);
	}
	free(group->traces);
	free(group->base_ns);
	*group = (struct explain_group){0};
}

int64_t explain_group_begin(const struct explain_group *group)
{
	int64_t first_ns = INT64_MAX;

	for (uint32_t r = 0; r < group->ranks; r++) {
		const struct trace *trace = &group->traces[r];

		for (size_t i = 0; i < trace->n; i++) {
			int64_t ns = group->base_ns[r] + trace->records[i].at_ns[TRACE_SUBMITTED];

			first_ns = ns < first_ns ? ns : first_ns;
		}
	}
	return first_ns;
}
