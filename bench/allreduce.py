#!/usr/bin/env python3
"""All-reduce of 32 bit floats on one host and between hosts: ours beside Gloo and OpenMPI.

In each run all take their turns, in another order from run to run; a time is that of the slowest
rank, and beside it stand the CPU seconds of all ranks. OpenMPI is called from C, the others through
torch.distributed. Hosts are network namespaces with links of 1 Gbit/s, where there can be any.
--quick shows only that it works: its numbers mean nothing.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from shared._between import Result, describe, ratio, report_hosts
from shared._process import run_command, run_script
from shared._report import Report, describe_machine, make_parser, ratio_of

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"
LIMIT_S = 300
MIB = 1 << 20

# Key, name, numbers, operations, rounds, whether each is waited for; goal: times as fast as Gloo,
# at least. OpenMPI is to be no faster in any case.
CASES = [
    ("one", "25 MiB", 25 * MIB // 4, 1, 10, True, 3.0),
    ("many", "25 x 1 MiB, all at once", MIB // 4, 25, 5, False, 4.0),
    ("small", "1,000 x 4 KiB, each waited for", 1024, 1000, 1, True, 5.0),
]
# torch runs this at the end of its import, unless told not to.
IMPORT = """import time, torch
begun = time.perf_counter()
torch._import_device_backends()
print(time.perf_counter() - begun)"""
Times = dict[str, dict[str, list[Result]]]  # backend -> case -> one result a run


def case_of(numbers: int, count: int, times: int, wait: bool) -> str:
    return f"{numbers},{count},{times},{int(wait)}"


class OpenMpi:
    """OpenMPI over shared memory, if it is installed."""

    def __init__(self, folder: Path) -> None:
        self.program = folder / "mpi_allreduce"
        self.here = shutil.which("mpicc") is not None and shutil.which("mpirun") is not None
        if self.here:
            source = HERE / "mpi_allreduce.c"
            subprocess.run(["mpicc", "-O2", "-o", self.program, source], check=True)

    def run(self, ranks: int, case: str) -> tuple[float, float]:
        options = ["--oversubscribe", "--allow-run-as-root", "--mca", "btl", "self,vader"]
        options += ["--mca", "pml", "ob1", "-np", str(ranks)]
        command = ["mpirun", *options, self.program, *case.split(",")]
        found = run_command(command, limit_s=LIMIT_S)
        return found["wall"], found["cpu"]


def collect(mpi: OpenMpi, ranks: int, cases: list[str], runs: int) -> tuple[Times, list[float]]:
    """All results, and the seconds that copying a vector takes."""
    found: Times = {who: {case: [] for case in cases} for who in ("pawl", "gloo", "OpenMPI")}
    copies: list[float] = []
    for run in range(runs):
        order = ["pawl,gloo", "gloo,pawl"][run % 2]

        def run_torch(order: str = order) -> None:
            said = run_script(PROGRAMS / "_reduce.py", order, *cases, ranks=ranks, limit_s=LIMIT_S)
            for who in ("pawl", "gloo"):
                for case in cases:
                    found[who][case].append(said[who][case])
            copies.extend(said["memcpy"].values())

        def run_mpi() -> None:
            for case in cases if mpi.here else []:
                found["OpenMPI"][case].append(mpi.run(ranks, case))

        for work in (run_torch, run_mpi) if run // 2 % 2 == 0 else (run_mpi, run_torch):
            work()
    return found, copies


def report_cases(report: Report, mpi: OpenMpi, ranks: int, runs: int) -> None:
    rows = [(case_of(*row[2:6]), row) for row in CASES]
    found, copies = collect(mpi, ranks, [case for case, _ in rows], runs)
    report.title(f"{ranks} ranks on one host")
    copy_s = statistics.median(copies)
    report.bound(f"copy{ranks}_ms", "copying 25 MiB, all ranks at once", copy_s * 1e3, "ms")
    for case, (name, what, _, count, _, _, over_gloo) in rows:
        key = f"{name}{ranks}"
        wall = statistics.median(r[0] for r in found["pawl"][case])
        report.note(f"{key}_ms", what, wall * 1e3, "ms", describe(found["pawl"][case], count))
        beside = describe(found["gloo"][case], count)
        times = ratio(found["gloo"][case], found["pawl"][case])
        report.at_least(f"{key}_to_gloo", "  Gloo's time to ours", times, over_gloo, "x", beside)
        if mpi.here:
            beside = describe(found["OpenMPI"][case], count)
            times = ratio(found["pawl"][case], found["OpenMPI"][case])
            what = "  ours to OpenMPI's"
            report.at_most(f"{key}_to_openmpi", what, times, 1.0, "x", beside)


def report_binding(report: Report, runs: int) -> None:
    """Rows: the time of a call, and the time of loading Pawl."""
    report.title("the binding: 4 bytes, begun and waited for through dist.all_reduce")
    case = case_of(1, 200, 10, True)
    for ranks, what in ((2, "2 ranks, ours to Gloo's"), (1, "alone")):
        mine, gloo = [], []
        for run in range(runs):
            order = ["pawl,gloo", "gloo,pawl"][run % 2]
            said = run_script(PROGRAMS / "_reduce.py", order, case, ranks=ranks, limit_s=LIMIT_S)
            mine.append(said["pawl"][case][0] / 200 * 1e6)
            gloo.append(said["gloo"][case][0] / 200 * 1e6)
        us, theirs = statistics.median(mine), statistics.median(gloo)
        beside = f"{us:.1f} µs, Gloo {theirs:.1f} µs"
        if ranks == 2:
            report.at_most("binding_to_gloo", what, ratio_of(mine, gloo), 0.5, "x", beside)
        else:
            report.at_most("binding_us", what, us, 8, "µs", beside)
    more = []
    for _ in range(runs):
        done = subprocess.run(
            [sys.executable, "-c", IMPORT],
            check=True,
            capture_output=True,
            text=True,
            env={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        )
        more.append(float(done.stdout))
    what = "import torch: finding backends, and ours"
    report.at_most("import_s", what, statistics.median(more), 0.1, "s")


def main() -> None:
    options = make_parser(
        __doc__, "one run: shows that it works", "for a program that is compiled (a temporary one)"
    ).parse_args()
    runs = 1 if options.quick else 7
    with tempfile.TemporaryDirectory(dir=options.dir) as folder:
        mpi = OpenMpi(Path(folder))
        setting = describe_machine()
        setting["OpenMPI"] = "over shared memory" if mpi.here else "not installed: not compared"
        report = Report("allreduce", runs, setting)
        for ranks in (4, 2):
            report_cases(report, mpi, ranks, runs)
        report_hosts(report, Path(folder), mpi.program if mpi.here else None, runs)
    report_binding(report, runs)
    report.finish(options.json)


if __name__ == "__main__":
    main()
