/* Scripts that are a Python command: see plain.h. */
#include "engine/local/plain.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

#define BLANKS " \t"

/* Returns whether a shell leaves c unchanged in any word but the first (NAME=VALUE). */
static bool is_plain(char c)
{
	return isalnum((unsigned char)c) || (c != '\0' && strchr("_-+./,:=%@", c));
}

/* Returns the number of words; 0: too many, or one needs a shell. */
static uint32_t count_words(const char *text)
{
	uint32_t n = 0;

	while (*(text += strspn(text, BLANKS)) != '\0') {
		while (is_plain(*text)) {
			text++;
		}
		if (*text != '\0' && !strchr(BLANKS, *text)) {
			return 0;
		}
		n++;
	}
	return n <= PLAIN_WORDS_MAX ? n : 0;
}

uint32_t plain_split(char *text, const char *words[PLAIN_WORDS_MAX])
{
	char *end = text + strlen(text);
	uint32_t n;

	while (end > text && isspace((unsigned char)end[-1])) {
		end--;
	}
	char kept = *end;
	*end = '\0';
	n = count_words(text);
	if (n == 0) {
		*end = kept;
		return 0;
	}
	for (uint32_t i = 0; i < n; i++) {
		text += strspn(text, BLANKS);
		words[i] = text;
		text += strcspn(text, BLANKS);
		if (*text != '\0') {
			*text++ = '\0';
		}
	}
	return n;
}

static bool is_python(const char *path)
{
	const char *slash = strrchr(path, '/');
	const char *name = slash ? slash + 1 : path;
	size_t len = sizeof("python") - 1;

	return strncmp(name, "python", len) == 0 &&
		name[len + strspn(name + len, "0123456789.")] == '\0';
}

uint32_t plain_python(const char **words, uint32_t n)
{
	bool unbuffered = n > 1 && strcmp(words[1], "-u") == 0;
	uint32_t left = n - unbuffered;

	if (left < 2 || !is_python(words[0])) {
		return 0;
	}
	if (words[1 + unbuffered][0] == '-' &&
		(left < 3 || strcmp(words[1 + unbuffered], "-m") != 0)) {
		return 0;
	}
	memmove(words + 1, words + 1 + unbuffered, (left - 1) * sizeof(*words));
	return left;
}
