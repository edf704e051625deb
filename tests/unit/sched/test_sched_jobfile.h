/* Decodes job files for tests, and compares the remarks on wrong ones. */
#ifndef TEST_SCHED_JOBFILE_H
#define TEST_SCHED_JOBFILE_H

#include "pawl/err.h"
#include "sched/jobfile/jobfile.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(all) (sizeof(all) / sizeof((all)[0]))

static struct sched_spec spec;
static struct remarks remarks;
static struct remarks notes;
static struct pawl_err err;

static inline int teardown(void **state)
{
	sched_spec_deinit(&spec);
	return 0;
}

static inline int decode_given(const char *text, const struct jobfile_given *given)
{
	sched_spec_deinit(&spec);
	remarks = (struct remarks){0};
	notes = (struct remarks){0};
	return jobfile_decode(&spec, text, strlen(text), given, &remarks, &notes, &err);
}

static inline int decode(const char *text)
{
	return decode_given(text, &(struct jobfile_given){NULL});
}

static inline int decode_strict(const char *text)
{
	return decode_given(text, &(struct jobfile_given){.strict = true});
}

static inline void accept(const char *text)
{
	if (decode(text) != 0) {
		fail_msg("%s: %s", text, err.msg);
	}
}

/* Accepts a file that runs something; line: its text from the second line on. */
static inline void accept_line(const char *line)
{
	char text[1024];

	snprintf(text, sizeof(text), "run: x\n%s\n", line);
	accept(text);
}

/* Expects the i-th note to be at this place, and to contain what. */
static inline void expect_note(uint32_t i, uint32_t line, uint32_t column, const char *what)
{
	assert_true(i < notes.n);
	if (!strstr(notes.at[i].text, what) || notes.at[i].line != line ||
		notes.at[i].column != column) {
		fail_msg("not %u:%u: \"%s\" but %u:%u: \"%s\"", line, column, what,
			notes.at[i].line, notes.at[i].column, notes.at[i].text);
	}
}

static inline void refused(uint32_t i, uint32_t line, uint32_t column, const char *what)
{
	assert_true(i < remarks.n);
	if (!strstr(remarks.at[i].text, what) || remarks.at[i].line != line ||
		remarks.at[i].column != column) {
		fail_msg("not %u:%u: \"%s\" but %u:%u: \"%s\"", line, column, what,
			remarks.at[i].line, remarks.at[i].column, remarks.at[i].text);
	}
}

static inline void refuse(const char *text, uint32_t line, uint32_t column, const char *what)
{
	if (decode(text) != PAWL_EINVAL) {
		fail_msg("not refused: %s", text);
	}
	refused(0, line, column, what);
	if (remarks.n != 1) {
		fail_msg("also: %s", remarks.at[1].text);
	}
}

/* Refuses a key with that value, in the second line. */
static inline void refuse_value(const char *key, const char *value, const char *what)
{
	char text[1024];

	snprintf(text, sizeof(text), "run: x\n%s: %s\n", key, value);
	refuse(text, 2, (uint32_t)strlen(key) + 3, what);
}

#endif
