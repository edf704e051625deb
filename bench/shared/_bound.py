"""What the machine allows: memcpy into shared memory, and O_DIRECT at depth 16, in plain Python."""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

DEPTH = 16  # blocks in flight, one a thread
BLOCK_BYTES = 1 << 20
HUGE_BYTES = 2 << 20
_MAP_FIXED = 0x10  # the module mmap has no name for it

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]


def _map(address: int | None, size_bytes: int, flags: int, fd: int = -1) -> int:
    where = _libc.mmap(address, size_bytes, mmap.PROT_READ | mmap.PROT_WRITE, flags, fd, 0)
    assert where != ctypes.c_void_p(-1).value, os.strerror(ctypes.get_errno())
    return where


class Memcpy:
    """A prefaulted mapping of a memfd, with huge pages where the system gives
    them; never unmapped.
    """

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        self._tensors = tensors
        self.size_bytes = sum(tensor.nbytes for tensor in tensors)
        fd = os.memfd_create("memcpy")
        os.truncate(fd, self.size_bytes + HUGE_BYTES)
        space = _map(None, self.size_bytes + 2 * HUGE_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._address = -(-space // HUGE_BYTES) * HUGE_BYTES  # huge pages need the alignment
        _map(self._address, self.size_bytes + HUGE_BYTES, mmap.MAP_SHARED | _MAP_FIXED, fd)
        os.close(fd)
        _libc.madvise(ctypes.c_void_p(self._address), self.size_bytes, mmap.MADV_HUGEPAGE)
        ctypes.memset(self._address, 1, self.size_bytes)

    def run(self) -> float:
        """Seconds to copy all tensors, one after the other, by one thread."""
        to = self._address
        begun = time.perf_counter()
        for tensor in self._tensors:
            ctypes.memmove(to, tensor.data_ptr(), tensor.nbytes)
            to += tensor.nbytes
        return time.perf_counter() - begun


def _run_blocks(fd: int, blocks: int, work: Callable[[int, mmap.mmap, int], int]) -> None:
    def run(first: int) -> None:
        with mmap.mmap(-1, BLOCK_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as buffer:
            buffer[:] = os.urandom(4096) * (BLOCK_BYTES // 4096)
            for block in range(first, blocks, DEPTH):
                moved = work(fd, buffer, block * BLOCK_BYTES)
                assert moved == BLOCK_BYTES, f"block {block}: {moved} bytes"

    with ThreadPoolExecutor(DEPTH) as pool:
        for done in [pool.submit(run, first) for first in range(DEPTH)]:
            done.result()


def _open_direct(path: Path, flags: int) -> int:
    try:
        return os.open(path, flags | os.O_DIRECT, 0o600)
    except OSError:  # a filesystem without O_DIRECT, as tmpfs was
        return os.open(path, flags, 0o600)


def round_up(size_bytes: int) -> int:
    return -(-size_bytes // BLOCK_BYTES) * BLOCK_BYTES


def raw_write(path: Path, size_bytes: int) -> float:
    """Seconds to write a fresh, preallocated file of about so many bytes and fsync it."""
    size_bytes = round_up(size_bytes)
    path.unlink(missing_ok=True)
    begun = time.perf_counter()
    fd = _open_direct(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        os.posix_fallocate(fd, 0, size_bytes)
        _run_blocks(fd, size_bytes // BLOCK_BYTES, lambda fd, b, at: os.pwritev(fd, [b], at))
        os.fsync(fd)
    finally:
        os.close(fd)
    return time.perf_counter() - begun


def raw_read(path: Path) -> float:
    """Seconds to read a file that raw_write wrote."""
    begun = time.perf_counter()
    fd = _open_direct(path, os.O_RDONLY)
    try:
        blocks = os.fstat(fd).st_size // BLOCK_BYTES
        _run_blocks(fd, blocks, lambda fd, b, at: os.preadv(fd, [b], at))
    finally:
        os.close(fd)
    return time.perf_counter() - begun


def files_under(path: Path) -> list[Path]:
    return [path] if path.is_file() else [one for one in path.rglob("*") if one.is_file()]


def drop_caches(*paths: Path) -> None:
    """Drops the pages of these files from the page cache; with no file, all
    pages, where allowed.
    """
    try:
        Path("/proc/sys/vm/drop_caches").write_text("1\n")
    except OSError:
        for path in [file for one in paths for file in files_under(one)]:
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def fill_cache(*paths: Path) -> None:
    """Reads these files through the page cache."""
    for path in [file for one in paths for file in files_under(one)]:
        with path.open("rb", buffering=0) as file:
            while file.read(BLOCK_BYTES):
                pass
