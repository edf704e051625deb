"""Writes one checkpoint as the Trainer of transformers does: run by mirror.py, in a process of its
own, since a mount may hang.

`_write_checkpoint.py DIR STEP MIB [--shards N] [--sync] [--rename]` removes the other checkpoints
of DIR first, and prints one JSON object: seconds from the first call to the last close, when that
was. --sync: each file is synced before it is closed, and the object says in how many seconds this
machine's disks had all bytes. --rename: the model gets its name once it is written, as by
safetensors 0.8. With shards the model is in N files, and an index names them.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import time
from pathlib import Path

PIECE = 16 << 20  # bytes of a write
STATE = 10_000  # bytes of trainer_state.json
RANDOM = 14_000  # bytes of rng_state.pth


def layout(mib: int, shards: int) -> list[tuple[str, int]]:
    """Names and sizes of the files, in the order in which the Trainer writes them. AdamW has two
    numbers for each of the model's."""
    model = (mib << 20) // 3
    names = ["model.safetensors"]
    if shards:
        names = [f"model-{i + 1:05}-of-{shards:05}.safetensors" for i in range(shards)]
    files = [(name, model // len(names)) for name in names]
    if shards:
        files.append(("model.safetensors.index.json", 0))
    files.append(("optimizer.pt", (mib << 20) - model))
    return [*files, ("rng_state.pth", RANDOM), ("trainer_state.json", STATE)]


def index_of(files: list[tuple[str, int]]) -> bytes:
    shards = [name for name, _ in files if name.endswith(".safetensors")]
    return json.dumps({"weight_map": {f"layer{i}": name for i, name in enumerate(shards)}}).encode()


def write(path: Path, size: int, piece: bytes, sync: bool) -> None:
    with path.open("wb", buffering=0) as file:
        for begin in range(0, size, len(piece)):
            left = memoryview(piece)[: size - begin]
            while left:
                left = left[file.write(left) :]
        if sync:
            os.fsync(file.fileno())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("step", type=int)
    parser.add_argument("mib", type=int)
    parser.add_argument("--shards", type=int, default=0)
    parser.add_argument("--sync", action="store_true")
    parser.add_argument("--rename", action="store_true")
    options = parser.parse_args()
    files = layout(options.mib, options.shards)
    piece = os.urandom(PIECE)
    for old in options.folder.glob("checkpoint-*"):
        shutil.rmtree(old)
    os.sync()
    begun = time.perf_counter()
    folder = options.folder / f"checkpoint-{options.step}"
    folder.mkdir()
    for name, size in files:
        path = folder / name
        if name.endswith(".index.json"):
            index = index_of(files)
            write(path, len(index), index, options.sync)
        elif name.endswith(".safetensors") and options.rename:
            first = folder / ".tmpLkoA9Y"
            write(first, size, piece, options.sync)
            first.rename(path)
        elif name == "trainer_state.json":
            write(path, size, b'{"log_history": []}'.ljust(STATE), options.sync)
        else:
            write(path, size, piece, options.sync)
    said = {"s": time.perf_counter() - begun, "ended": time.time()}
    if options.sync:
        os.sync()  # there is nothing to do, unless a mount has only said that it synced
        said["disk_s"] = time.perf_counter() - begun
    print(json.dumps(said))


if __name__ == "__main__":
    main()
