"""Restores with one more open file allowed each time: few_files.py ROOT. Prints what came of it."""

from __future__ import annotations

import os
import resource
import sys

from pawl import Checkpointer, PawlError

ROOM = 40  # open files, more than a restore needs


def main() -> None:
    root, files = sys.argv[1], resource.RLIMIT_NOFILE
    was = resource.getrlimit(files)
    with Checkpointer(root, persist_every=0, job="saves") as ckpt:
        for step in (1, 2):
            assert ckpt.save(step, {"n": step}).wait("durable")
    with Checkpointer(root, job="restores") as ckpt:  # nothing is in its memory
        for room in range(ROOM):
            live = {"n": 0}
            highest = max(map(int, os.listdir("/proc/self/fd")))
            taken = [os.open(os.devnull, os.O_RDONLY) for _ in range(highest)]
            resource.setrlimit(files, (max(taken) + 1 + room, was[1]))
            try:
                step = ckpt.restore(live)
            except PawlError as reason:
                print(reason)
            else:
                print("restored", step)
                assert live["n"] == step
                return
            finally:
                resource.setrlimit(files, was)
                for file in taken:
                    os.close(file)


if __name__ == "__main__":
    main()
