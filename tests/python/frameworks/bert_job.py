"""Runs examples/bert_qa for the tests: starts it, waits for lines of its output, kills all of it.

`bert_job.py STEP ARG...` runs the example up to that step, and stops there.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import runpy
import shlex
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nursery
import program

EXAMPLE = Path(__file__).parents[3] / "examples/bert_qa"
LIMIT_S = 240.0  # the limit of any wait

ENV = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
# The guide's command line, word for word but for --output_dir and --run_name.
GUIDE = shlex.split("""
--model_name_or_path bert-base-uncased --dataset_name squad --do_train --do_eval
--per_device_train_batch_size 12 --learning_rate 3e-5 --num_train_epochs 50 --max_seq_length 384
--doc_stride 128 --report_to wandb --save_total_limit 10 --save_steps 1000
""")
# Options of a test that takes seconds: argparse takes the last value given for each.
SHORT = shlex.split("""
--num_train_epochs 5 --save_steps 10 --save_total_limit 3 --report_to none --use_cpu
--logging_steps 1 --disable_tqdm true --do_eval false
""")


class Job:
    """A process of the job, and the agent that it started."""

    def __init__(
        self,
        local: Path,
        output: Path,
        *extra: str,
        env: dict[str, str] | None = None,
        short: bool = True,
        until: int = 0,
    ) -> None:
        """Starts the job. ``until``: the step at which it stops and waits; 0: none."""
        self.output = output
        self.hidden = output.with_name(f".{output.name}.pawl")
        self._log = output.with_name(f"{output.name}.log")
        run = [__file__, str(until)] if until > 0 else [EXAMPLE / "run.py"]
        script = [*run, "--local", local]
        short_words = SHORT if short else ["--use_cpu"]
        where = ["--output_dir", output, "--run_name", "test"]
        with self._log.open("ab") as log:
            self._from = log.tell()
            self.process = nursery.Popen(
                [sys.executable, *script, *GUIDE, *where, *short_words, *extra],
                env={
                    **(env or program.clean_env()),
                    "HF_HUB_OFFLINE": "1",
                    "OMP_NUM_THREADS": "1",
                    "PYTHONUNBUFFERED": "1",
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=output.parent,
            )

    def said(self) -> str:
        with self._log.open("rb") as log:
            log.seek(self._from)
            return log.read().decode(errors="replace")

    def wait_for(
        self, what: str, true: Callable[[], bool], wait: Callable[..., None] = program.wait_until
    ) -> None:
        def comes() -> bool:
            if true():
                return True
            assert self.process.poll() is None, f"ended before {what}: {self.said()[-3000:]}"
            return False

        wait(comes, what, LIMIT_S)

    def wait_for_step(self, step: int) -> None:
        self.wait_for(f"step {step}", lambda: self.said().count("'loss'") >= step)

    def finished(self) -> Job:
        assert self.process.wait(LIMIT_S) == 0, self.said()[-3000:]
        return self

    def kill(self) -> None:
        """Kills trainer, loggers and agent all at once, as a power failure does."""
        pids = [self.process.pid, *self._agent()]
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGSTOP)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        os.killpg(self.process.pid, signal.SIGKILL)
        for pid in pids[1:]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        for pid in pids[1:]:
            self._await_gone(pid)

    def _agent(self) -> list[int]:
        lock = self.hidden / ".pawl-lock"
        match = re.search(r"\(pid (\d+) on ", lock.read_text()) if lock.exists() else None
        return [int(match[1])] if match else []

    def _await_gone(self, pid: int) -> None:
        program.wait_until(lambda: not program.is_alive(pid), f"process {pid} is gone")


def wandb_rows(folder: Path) -> tuple[set[str], list[dict[str, Any]]]:
    """Returns the ids of the runs that `wandb sync` would take from folder, and the rows of their
    histories.

    The file: seven bytes, then blocks of 32 KiB with records of checksum, length, kind.
    """
    from wandb.proto.wandb_internal_pb2 import Record

    ids, rows = set(), []
    for path in folder.glob("wandb/offline-run-*/run-*.wandb"):
        data, at, whole = path.read_bytes(), 7, b""
        while at + 7 <= len(data):
            if (left := 32768 - at % 32768) < 7:
                at += left
                continue
            _, size, kind = struct.unpack_from("<IHB", data, at)
            whole += data[at + 7 : at + 7 + size]
            at += 7 + size
            if kind not in (1, 4):  # whole, or the last part
                continue
            record, whole = Record.FromString(whole), b""
            if record.HasField("run"):
                ids.add(record.run.run_id)
            if record.HasField("history"):
                items = record.history.item
                pairs = [(i.key or "/".join(i.nested_key), i.value_json) for i in items]
                rows.append({name: json.loads(value) for name, value in pairs})
    return ids, rows


def stand_still(step: int) -> None:
    """Runs the example as its command line does, up to that step."""
    sys.path[0] = str(EXAMPLE)
    from transformers import trainer

    class Still(trainer.TrainerCallback):
        def on_step_end(self, args: object, state: Any, control: object, **more: object) -> None:
            if state.global_step >= step:
                time.sleep(240)  # pace: it is killed meanwhile

    trainer.DEFAULT_CALLBACKS.append(Still)
    runpy.run_path(str(EXAMPLE / "run.py"), run_name="__main__")


if __name__ == "__main__":
    stand_still(int(sys.argv.pop(1)))
