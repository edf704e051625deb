/* Recognises scripts that consist of one Python command and need no shell. `pawl run` starts such
 * commands itself, from its template. Pure. */
#ifndef ENGINE_LOCAL_PLAIN_H
#define ENGINE_LOCAL_PLAIN_H

#include <stdint.h>

#define PLAIN_WORDS_MAX 64u

/*
 * Splits a script of one line into words, if a shell would change none of them. Terminates the
 * words in text; words points into it. Returns the number of words; 0: the script needs a shell or
 * has too many words, and text is unchanged.
 */
uint32_t plain_split(char *text, const char *words[PLAIN_WORDS_MAX]);

/* Checks that words are a Python interpreter (by its name) and a file, or "-m" and a module.
 * Removes "-u" behind the interpreter, which `pawl run` adds itself. Returns the number of words
 * left; 0: words are another command. */
uint32_t plain_python(const char **words, uint32_t n);

#endif
