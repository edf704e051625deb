/* Moments as texts of RFC 3339: "2026-11-26T13:09:00.250000Z". Pure; any thread. */
#ifndef BASE_DATE_H
#define BASE_DATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DATE_TEXT_MAX 96u /* bytes of a text of date_write, terminator included */

/*
 * Reads a moment, in nanoseconds since 1970. Fractions of a second, of any length, and a zone, "Z"
 * or "+02:00", may be there or not; without a zone it is UTC. What is before 1678 or behind
 * 2262-04-11, which nanoseconds cannot say, is INT64_MIN or INT64_MAX. Returns false if the text is
 * none.
 */
bool date_read(const char *text, int64_t *wall_ns);
/* Writes a moment in UTC with microseconds, as Kubernetes' MicroTime. Returns text, which has
 * DATE_TEXT_MAX bytes. */
const char *date_write(int64_t wall_ns, char *text);

#endif
