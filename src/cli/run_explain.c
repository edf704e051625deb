/* pawl run --explain: see run_explain.h for the contract. */
#include "cli/run_explain.h"

#include "base/err.h"
#include "cli/cli.h"
#include "cli/explain.h"

#include <dirent.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char made[PATH_MAX]; /* the directory, if run_explain_begin made it; else empty */

int run_explain_begin(struct pawl_err *err)
{
	const char *folder = getenv("PAWL_TRACE");
	const char *tmp = getenv("TMPDIR");

	if (folder && *folder != '\0') {
		return 0;
	}
	snprintf(made, sizeof(made), "%s/pawl-trace-XXXXXX", tmp && *tmp != '\0' ? tmp : "/tmp");
	if (!mkdtemp(made) || setenv("PAWL_TRACE", made, 1) != 0) {
		return pawl_err_sys(err, "make %s", made);
	}
	return 0;
}

static void remove_made(void)
{
	DIR *dir = opendir(made);
	struct dirent *entry;

	while (dir && (entry = readdir(dir)) != NULL) {
		if (strstr(entry->d_name, TRACE_SUFFIX)) {
			unlinkat(dirfd(dir), entry->d_name, 0);
		}
	}
	if (dir) {
		closedir(dir);
	}
	rmdir(made);
}

void run_explain_end(void)
{
	struct pawl_err err;

	cli_print(stdout, "\n");
	if (explain_print(getenv("PAWL_TRACE"), &err) != 0) {
		cli_print(stderr, "pawl run: --explain: %s\n", err.msg);
	}
	if (made[0] != '\0') {
		remove_made();
	}
}
