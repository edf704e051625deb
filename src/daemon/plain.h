/* Scripts that are a command of Python's and nothing else, which need no shell: `pawl run` starts
 * those itself, from its template. Pure. */
#ifndef DAEMON_PLAIN_H
#define DAEMON_PLAIN_H

#include <stdint.h>

#define PLAIN_WORDS_MAX 64u

/*
 * Cuts a script of one line into its words, in which nothing is for a shell to do. text: the
 * script, in which words are ended; they point into it. How many; 0: it is no such script, and its
 * text stays as it was.
 */
uint32_t plain_cut(char *text, const char *words[PLAIN_WORDS_MAX]);

/* Of words that are an interpreter of Python, by its name, and a file, or "-m" and a module: how
 * many they are without "-u", which is taken out and which `pawl run` has anyway. 0: they are
 * something else. */
uint32_t plain_python(const char **words, uint32_t n);

#endif
