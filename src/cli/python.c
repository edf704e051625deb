/* Becoming a Python interpreter, for what Python does better, such as drawing. */
#include "base/err.h"
#include "cli/cli.h"
#include "launch/run_plan.h"

#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

int cli_python_become(const char *python, const char **words, struct pawl_err *err)
{
	char path[PATH_MAX];
	int rv = run_python_find(path, sizeof(path), python, err);

	if (rv != 0) {
		return rv;
	}
	words[0] = path;
	setenv("PYTHONSAFEPATH", "1", 1); /* no pawl.py or torch.py from the working directory */
	execv(path, (char **)(uintptr_t)words);
	words[0] = NULL;
	return pawl_err_sys(err, "run %s", path);
}
