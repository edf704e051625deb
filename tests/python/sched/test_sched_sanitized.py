"""The scheduler built with the address sanitizer, through some of its tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import program

HERE = Path(__file__).parent
SANITIZED = HERE.parents[2] / "build/asan/src/cli/pawl"
TESTS = (
    "test_sched_faults.py::test_damaged_files_are_named_or_do_not_matter",
    "test_sched_faults.py::test_what_is_no_request_is_refused_or_cut_off",
    "test_sched_faults.py::test_a_thousand_connections_keep_nobody_out",
    "test_sched_faults.py::test_who_reads_no_replies_costs_one_of_them",
    "test_sched_kills.py::test_a_killed_shepherd_takes_its_job_with_it_and_the_job_starts_again",
    "test_sched_kills.py::test_another_scheduler_version_finds_jobs_that_run",
)


@pytest.mark.slow
@pytest.mark.skipif(not SANITIZED.is_file(), reason="build/asan has no program (--only asan)")
def test_the_scheduler_makes_no_mistake_with_memory(tmp_path: Path) -> None:
    env = {
        **os.environ,
        "PAWL_PROGRAM": str(SANITIZED),
        "ASAN_OPTIONS": f"detect_stack_use_after_return=1:log_path={tmp_path}/said",
        "UBSAN_OPTIONS": f"halt_on_error=1:print_stacktrace=1:log_path={tmp_path}/said",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, *(str(HERE / test) for test in TESTS)],
        env=env, capture_output=True, text=True, timeout=5 * program.LIMIT_S, check=False,
    )  # fmt: skip
    said = "".join(file.read_text() for file in tmp_path.glob("said*"))
    assert done.returncode == 0 and said == "", done.stdout[-4000:] + said[:8000]
