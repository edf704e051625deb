"""Transformers' own example of question answering, which no package has: tests run it where
PAWL_RUN_QA_DIR names a directory with run_qa.py, trainer_qa.py and utils_qa.py."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import packages
import program

FILES = ("run_qa.py", "trainer_qa.py", "utils_qa.py")
_DIR = os.environ.get("PAWL_RUN_QA_DIR")
needed = pytest.mark.skipif(
    _DIR is None, reason=f"PAWL_RUN_QA_DIR names no directory with transformers' {', '.join(FILES)}"
)
_SQUAD = Path(__file__).parents[3] / "examples/bert_qa/squad.py"
# The package `evaluate`, as far as run_qa.py uses it: the real one asks the hub for its metric.
METRIC = f"""
import runpy

squad = runpy.run_path({str(_SQUAD)!r})

class Metric:
    def compute(self, predictions, references):
        return squad["score"]([one["prediction_text"] for one in predictions], references)

def load(name, **options):
    assert name == "squad"
    return Metric()
"""


def folder() -> Path:
    assert _DIR is not None
    return Path(_DIR)


def looks_for_checkpoints() -> bool:
    """Returns whether run_qa.py itself goes on from the newest checkpoint: that of transformers 5
    does not."""
    return "get_last_checkpoint(" in (folder() / "run_qa.py").read_text()


def env(**extra: str) -> dict[str, str]:
    """Returns an environment with the transformers that run_qa.py is of; skips the test if it is
    not here."""
    if looks_for_checkpoints():
        return packages.with_package("transformers", "4.47.1", **extra)
    return program.clean_env(**extra)
