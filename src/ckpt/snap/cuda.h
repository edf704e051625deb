/*
 * Copies out of the memory of CUDA devices through the driver, libcuda.so.1, which is loaded when a
 * piece first lies on a device. Nothing of CUDA is needed to build or to start.
 *
 * Copies run on their own streams, beside the program's computation: they wait for the work queued
 * on the device's default stream before the last mark, and nothing waits for them.
 */
#ifndef CKPT_SNAP_CUDA_H
#define CKPT_SNAP_CUDA_H

#include <stddef.h>
#include <stdint.h>

struct pawl_err;
struct cuda;

#define CUDA_DEVICES_MAX 64 /* devices of one machine, at most */
#define CUDA_COPIES_MAX  72 /* copies of one device at a time: engine threads, and some in fences */

/*
 * Marks the device's default stream: copies of this device that begin from now on see what is
 * queued there now. Opens the driver if *cuda is NULL. Any thread, except for the opening.
 * PAWL_ENOTSUP: there is no driver, or it does not work, and err says why. PAWL_EINVAL: there is no
 * such device; PAWL_EIO, PAWL_ENOMEM.
 */
int cuda_mark(struct cuda **cuda, int device, struct pawl_err *err);
void cuda_close(struct cuda *cuda); /* NULL is fine; no copy may be in progress */

/*
 * Copies len_bytes, at most CKPT_CHUNK, at src, an address of the device, to dst (NULL: checksum
 * only) and stores their CRC-32C in *crc. Returns when the copy is done. Any thread. Copies beyond
 * CUDA_COPIES_MAX at one time, or beyond the page-locked memory, wait. The device must have been
 * marked. PAWL_EIO, PAWL_ENOMEM (also for page-locked memory).
 */
int cuda_copy_crc32c(struct cuda *cuda, int device, void *dst, const void *src, size_t len_bytes,
	uint32_t *crc, struct pawl_err *err);

#endif
