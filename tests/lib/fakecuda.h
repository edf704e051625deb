/*
 * A CUDA driver made of host memory, with the library name of the real one, so that loading that
 * finds it. Device addresses are host addresses. What it makes sure of is order: a copy happens
 * when its stream is waited for, after what the stream was told to wait for.
 */
#ifndef TEST_FAKECUDA_H
#define TEST_FAKECUDA_H

#include <stdbool.h>

#define FAKECUDA_DEVICES 2

/* From now on the default stream of the device has unfinished work, until it is finished. */
void fakecuda_busy(int device, bool busy);
/* The nth driver call from now on fails (0: none does). Returns how many there were since the last
 * call of this. */
unsigned fakecuda_fail(unsigned nth);
/* No more page-locked buffers than most are there at a time; -1: as many as are asked for. */
void fakecuda_most_buffers(int most);
/* Contexts retained, streams, events and buffers that were not given back. */
int fakecuda_held(void);

#endif
