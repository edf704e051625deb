/* The progress line: see progress.h. It is drawn a few times a second at most. */
#include "cli/progress.h"

#include "base/clock.h"
#include "base/text.h"
#include "base/times.h"
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define COLUMNS_MIN   20u
#define COLUMNS_MAX   200u
#define COLUMNS_PLAIN 80u /* columns of a terminal that does not report them */
#define BAR_MAX       30u
#define BAR_MIN       8u
#define WIPE          "\r\033[K"

static unsigned count_columns(void)
{
	struct winsize size;

	if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < COLUMNS_MIN) {
		return COLUMNS_PLAIN;
	}
	return size.ws_col < COLUMNS_MAX ? size.ws_col : COLUMNS_MAX;
}

/* Formats ", 1.1 GiB/s, 0:07 left", as far as it is known. */
static void format_rate(char *buf, size_t cap_bytes, const struct progress *progress,
	int64_t now_ns)
{
	double seconds = (double)(now_ns - progress->began_ns) / NS_PER_S;
	double rate = (double)progress->done_bytes / seconds;
	char size[CLI_TEXT_MAX];
	double left;
	int used;

	buf[0] = '\0';
	if (now_ns - progress->began_ns < times_ns(TIME_PROGRESS_RATE) ||
		progress->done_bytes == 0) {
		return;
	}
	used = snprintf(buf, cap_bytes, ", %s/s", cli_size(size, (uint64_t)rate));
	if (progress->total_bytes > progress->done_bytes) {
		left = (double)(progress->total_bytes - progress->done_bytes) / rate;
		left = left < 359999 ? left : 359999; /* 99:59:59 */
		if (left >= 3600) {
			snprintf(buf + used, cap_bytes - (size_t)used, ", %d:%02d:%02d left",
				(int)left / 3600, (int)left / 60 % 60, (int)left % 60);
		} else {
			snprintf(buf + used, cap_bytes - (size_t)used, ", %d:%02d left",
				(int)left / 60, (int)left % 60);
		}
	}
}

/* Formats "[=====>    ]", of width columns and NUL. */
static void format_bar(char *buf, unsigned width, double part)
{
	unsigned inner = width - 2;
	unsigned full = (unsigned)(part * inner);

	memset(buf, ' ', width);
	memset(buf + 1, '=', full);
	if (full < inner) {
		buf[1 + full] = '>';
	}
	buf[0] = '[';
	buf[width - 1] = ']';
	buf[width] = '\0';
}

const char *progress_line(const struct progress *progress, int64_t now_ns, unsigned columns,
	char *buf, uint32_t cap_bytes)
{
	char size[CLI_TEXT_MAX];
	char rate[2 * CLI_TEXT_MAX];
	char bar[BAR_MAX + 1] = "";
	char right[4 * CLI_TEXT_MAX];
	double part = 0;
	unsigned width = columns < cap_bytes ? columns : cap_bytes - 1;
	unsigned left = (unsigned)(strlen(progress->verb) + 1 + strlen(progress->name));
	unsigned used;

	format_rate(rate, sizeof(rate), progress, now_ns);
	if (progress->total_bytes > 0) {
		part = (double)progress->done_bytes / (double)progress->total_bytes;
		part = part < 1 ? part : 1; /* files may have grown since they were measured */
		snprintf(right, sizeof(right), "%3.0f %% of %s%s", 100 * part,
			cli_size(size, progress->total_bytes), rate);
	} else {
		snprintf(right, sizeof(right), "%s%s", cli_size(size, progress->done_bytes), rate);
	}
	used = left + 4 + (unsigned)strlen(right);
	if (progress->total_bytes > 0 && used + BAR_MIN <= width) {
		format_bar(bar, width - used < BAR_MAX ? width - used : BAR_MAX, part);
	}
	snprintf(buf, width + 1, "%s %s  %s%s%s", progress->verb, progress->name, bar,
		bar[0] != '\0' ? "  " : "", right);
	return buf;
}

void progress_start(struct progress *progress, const char *verb, uint64_t total_bytes)
{
	*progress = (struct progress){
		.verb = verb,
		.total_bytes = total_bytes,
		.began_ns = clock_mono_ns(),
		.shown = isatty(STDERR_FILENO) == 1,
	};
}

void progress_name(struct progress *progress, const char *dir, const char *file)
{
	char name[sizeof(progress->name)];

	snprintf(name, sizeof(name), "%s%s%s", dir, dir[0] != '\0' && file[0] != '\0' ? "/" : "",
		file);
	text_escape(progress->name, sizeof(progress->name), name);
}

void progress_add(struct progress *progress, uint64_t bytes)
{
	char line[COLUMNS_MAX + 1];
	int64_t now_ns;

	progress->done_bytes += bytes;
	if (!progress->shown) {
		return;
	}
	now_ns = clock_mono_ns();
	if (now_ns - progress->began_ns < times_ns(TIME_PROGRESS_FIRST) ||
		now_ns - progress->drawn_ns < times_ns(TIME_PROGRESS_DRAW)) {
		return;
	}
	progress->drawn_ns = now_ns;
	fprintf(stderr, WIPE "%s",
		progress_line(progress, now_ns, count_columns() - 1, line, sizeof(line)));
}

void progress_wipe(struct progress *progress)
{
	if (progress->drawn_ns != 0) {
		fprintf(stderr, WIPE);
		progress->drawn_ns = 0;
	}
}
