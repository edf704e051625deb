/* Assertions that stay on in production: for what must be true of our own state, never for bytes
 * from outside. */
#ifndef BASE_ASSERT_H
#define BASE_ASSERT_H

#define ASSERT(cond) ((cond) ? (void)0 : base_assert_fail(#cond, __FILE__, __LINE__))

/* Prints the condition and place to stderr and aborts. */
_Noreturn void base_assert_fail(const char *cond, const char *file, int line);

#endif
