/* Recognises scripts that are a Python command and nothing else, and need no shell: `pawl run`
 * starts these itself, from its template. Pure. */
#ifndef ENGINE_LOCAL_PLAIN_H
#define ENGINE_LOCAL_PLAIN_H

#include <stdint.h>

#define PLAIN_WORDS_MAX 64u

/*
 * Cuts a script of one line into its words, if nothing in them is for a shell to do. text: the
 * script, in which words are ended; they point into it. Returns how many; 0: the script is not so,
 * and text stays as it was.
 */
uint32_t plain_split(char *text, const char *words[PLAIN_WORDS_MAX]);

/* Takes "-u", which `pawl run` has anyway, out of words that are an interpreter of Python, by its
 * name, and a file, or "-m" and a module. Returns how many words are left; 0: they are something
 * else. */
uint32_t plain_python(const char **words, uint32_t n);

#endif
