/*
 * Copies out of the memory of CUDA devices through the driver, libcuda.so.1, which is loaded when a
 * piece first lies on a device. Nothing of CUDA is needed to build or to start.
 *
 * Copies run on streams of their own, beside what the program computes: they wait for what was
 * queued on the device's default stream before the last mark, and nothing waits for them.
 */
#ifndef CKPT_CUDA_H
#define CKPT_CUDA_H

#include <stddef.h>
#include <stdint.h>

struct pawl_err;
struct cuda;

#define CUDA_DEVICES_MAX 64 /* of one machine */
#define CUDA_COPIES_MAX  72 /* of a device at one time: the engine's threads and some in fences */

/*
 * Copies of this device that begin from now on see what is on its default stream now. Opens the
 * driver if *cuda is NULL. Any thread, but the opening. PAWL_ENOTSUP: no driver, or it does not
 * work; says why. PAWL_EINVAL: no such device; PAWL_EIO, PAWL_ENOMEM.
 */
int cuda_mark(struct cuda **cuda, int device, struct pawl_err *err);
void cuda_close(struct cuda *cuda); /* NULL is fine; no copy may be in progress */

/*
 * Copies len_bytes, at most CKPT_CHUNK, at src, an address of the device, to dst (NULL: checksum
 * only) and gives their CRC-32C; returns when that is done. Any thread; several at once: what is
 * more than CUDA_COPIES_MAX, or than there is page-locked memory for, waits. The device must have
 * been marked. PAWL_EIO, PAWL_ENOMEM (of page-locked memory, for one).
 */
int cuda_copy_crc32c(struct cuda *cuda, int device, void *dst, const void *src, size_t len_bytes,
	uint32_t *crc, struct pawl_err *err);

#endif
