/* Log lines on stderr, one write(2) each: see log.h. */
#include "base/log.h"

#include "base/assert.h"
#include "base/text.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOG_NAME_MAX 32u   /* bytes, terminator included */
#define LOG_LINE_MAX 1024u /* bytes of one line; longer ones are cut */

static const char *const level_words[] = {"error", "warning", "info", "debug"};

_Static_assert(sizeof(level_words) / sizeof(*level_words) == LOG_DEBUG + 1,
	"each level has a word");

static atomic_int level_max = -1; /* -1: PAWL_LOG not read yet; any thread may read it */
static char log_name[LOG_NAME_MAX];

static int read_level(void)
{
	const char *word = getenv("PAWL_LOG");
	int level = LOG_INFO;

	for (int i = 0; word != NULL && i <= LOG_DEBUG; i++) {
		if (strcmp(word, level_words[i]) == 0) {
			level = i;
		}
	}
	return level;
}

void log_set_level(enum log_level level)
{
	ASSERT((int)level >= LOG_ERROR && (int)level <= LOG_DEBUG);
	atomic_store(&level_max, (int)level);
}

void log_set_name(const char *name)
{
	snprintf(log_name, sizeof(log_name), "%s", name);
}

/* Appends as much of text as fits, with unsafe characters escaped: a line stays one line. */
static size_t append_text(char *line, size_t used, const char *text)
{
	size_t room = LOG_LINE_MAX - used - 1; /* less the line's end */

	ASSERT(used + 1 < LOG_LINE_MAX); /* room for the terminator at least */
	text_escape(line + used, room, text);
	return used + strlen(line + used);
}

void log_line(enum log_level level, const char *fmt, ...)
{
	char text[LOG_LINE_MAX];
	char line[LOG_LINE_MAX];
	size_t used = 0;
	va_list args;

	if (atomic_load(&level_max) < 0) {
		log_set_level((enum log_level)read_level());
	}
	if ((int)level > atomic_load(&level_max)) {
		return;
	}
	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	used = append_text(line, used, "pawl: ");
	if (log_name[0] != '\0') {
		used = append_text(line, used, log_name);
		used = append_text(line, used, ": ");
	}
	if (level != LOG_INFO) {
		used = append_text(line, used, level_words[level]);
		used = append_text(line, used, ": ");
	}
	used = append_text(line, used, text);
	line[used++] = '\n';
	if (write(STDERR_FILENO, line, used) < 0) {
		return; /* nowhere left to report it */
	}
}
