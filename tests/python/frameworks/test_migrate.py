"""The programs of docs/migrate.md, one after the other, with the commands between them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import nursery
import program

PAGE = Path(__file__).parents[3] / "docs/migrate.md"


def run(folder: Path, *args: str) -> str:
    done = nursery.run(
        [*args],
        cwd=folder,
        env=program.clean_env(PAWL_JOB_ID=f"migrate-{folder.name}-{folder.parent.name}"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=program.LIMIT_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def snippets(heading: str) -> tuple[str, str, list[str]]:
    """Returns the programs before and after, and the commands, of a section."""
    section = PAGE.read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    before, after = re.findall(r"```python\n(.*?)```", section, re.S)
    commands = re.findall(r"^    (pawl .*?)(?: +#.*)?$", section, re.M)
    return before, after, commands


@pytest.mark.slow
@pytest.mark.real_interpreters
def test_from_torch_save(tmp_path: Path) -> None:
    before, after, (command,) = snippets("From torch.save")
    run(tmp_path, sys.executable, "-c", "import torch; torch.manual_seed(0)\n" + before)
    run(tmp_path, program.find(), *command.split()[1:])
    run(tmp_path, sys.executable, "-c", after)
    root = tmp_path / "runs/linear"
    steps = sorted(int(p.name[len("global_step") :]) for p in root.glob("global_step*"))
    assert steps[0] >= 10 and steps[-1] == 20  # training went on from step 10
    saved = torch.load(tmp_path / "last.pt", weights_only=True)
    optimizer = torch.load(root / "global_step20/optimizer", weights_only=False)
    assert saved["step"] == 10
    assert {int(s["step"]) for s in optimizer["state"].values()} == {20}  # not started anew


@pytest.mark.filterwarnings("ignore")
def test_from_dcp(tmp_path: Path) -> None:
    before, after, (import_, export) = snippets("From torch.distributed.checkpoint")
    keep = "\ntorch.save(model.state_dict(), 'model.pt')"
    run(tmp_path, sys.executable, "-c", before + keep)
    run(tmp_path, program.find(), *import_.split()[1:])
    run(tmp_path, sys.executable, "-c", after)
    expected = torch.load(tmp_path / "model.pt", weights_only=True)
    found = torch.load(tmp_path / "runs/dcp/global_step20/model", weights_only=True)
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    run(tmp_path, program.find(), *export.split()[1:])
    assert (tmp_path / "out/.metadata").is_file()
