/*
 * What clang-tidy is told before each file. It sees one file at a time and so does not know that
 * these never return 0; without it every output that is set only on success looks unset.
 */
#ifndef TOOLS_ANALYZER_H
#define TOOLS_ANALYZER_H

#include "base/err.h"

#define pawl_err_set(err, code, ...)    (code)
#define pawl_err_sys(err, ...)          (PAWL_EIO)
#define pawl_err_prefix(err, code, ...) (code)

#endif
