/*
 * A CUDA driver made of host memory, with the library name of the real one, so that the loader
 * finds it instead. Device addresses are host addresses. It enforces order: a copy happens when the
 * program waits for its stream, after everything that the stream waits for.
 */
#ifndef TEST_FAKECUDA_H
#define TEST_FAKECUDA_H

#include <stdbool.h>

#define FAKECUDA_DEVICES 2

/* Gives the default stream of the device unfinished work (busy), or finishes it. */
void fakecuda_busy(int device, bool busy);
/* Makes the nth driver call from now on fail (0: none). Returns how many calls there were since the
 * last call of this function. */
unsigned fakecuda_fail(unsigned nth);
/* Limits the number of page-locked buffers at one time; -1: no limit. */
void fakecuda_most_buffers(int most);
/* Returns the number of retained contexts, streams, events and buffers that were not released. */
int fakecuda_live_objects(void);

#endif
