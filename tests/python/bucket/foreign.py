"""A training program that knows nothing of Pawl, and writes checkpoints as Hugging Face's Trainer
does: straight into checkpoint-N, trainer_state.json last, the oldest removed. It checks what it
finds first.

foreign.py DIR STEPS [exit code] [seconds between steps] [MiB]
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
import time
from pathlib import Path

KEPT = 3


def sums(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "trainer_state.json"
    }


def units(folder: Path) -> dict[int, Path]:
    found = {}
    for path in folder.iterdir():
        if match := re.fullmatch(r"checkpoint-(\d+)", path.name):
            found[int(match.group(1))] = path
    return dict(sorted(found.items()))


def check(folder: Path) -> int:
    """Checks that all checkpoints are whole. Returns the newest step; 0: there is none."""
    for step, path in units(folder).items():
        state = json.loads((path / "trainer_state.json").read_text())
        assert state["step"] == step, path
        assert state["sums"] == sums(path), path
    return max(units(folder), default=0)


def save(folder: Path, step: int, size: int) -> None:
    path = folder / f"checkpoint-{step}"
    path.mkdir()
    # as safetensors does: another name first
    temporary = path / "model.safetensors.tmp"
    with temporary.open("wb") as file:
        for _ in range(size):
            file.write(os.urandom(1 << 20))
    temporary.rename(path / "model.safetensors")
    (path / "model.safetensors").chmod(0o644)
    (path / "optimizer.pt").write_bytes(os.urandom(300_001))
    (path / "sub").mkdir()
    (path / "sub" / "scheduler.pt").write_bytes(b"")
    state = {"step": step, "sums": sums(path), "best_model_checkpoint": str(path)}
    (path / "trainer_state.json").write_text(json.dumps(state))
    for old in list(units(folder).values())[:-KEPT]:
        shutil.rmtree(old)


def main() -> None:
    folder, steps = Path(sys.argv[1]), int(sys.argv[2])
    code, pause, size = int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5])
    begun = check(folder)
    print(f"start {begun} {sorted(units(folder))}", flush=True)
    with (folder / "train.log").open("a") as log:
        for step in range(begun + 1, begun + steps + 1):
            save(folder, step, size)
            print(f"step {step}", file=log, flush=True)
            print(f"saved {step}", flush=True)
            time.sleep(pause)  # pace
    (folder / "all_results.json").write_text("{}")
    sys.exit(code)


if __name__ == "__main__":
    main()
