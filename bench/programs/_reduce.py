"""A rank that times all-reduces: _reduce.py ORDER CASE..., each case NUMBERS,COUNT,TIMES,WAIT.

NUMBERS: lengths of vectors, separated by "/"; there are COUNT vectors of each length. ORDER:
backends in the order in which they take their turns. Prints, as the first rank, a JSON object:
{backend: {case: RESULT}}, and under "memcpy" the seconds that copying a vector takes while all
ranks do so. A RESULT is of a round: seconds in the slowest rank, CPU seconds of all ranks, bytes
that all hosts sent, and bytes that the busiest host sent.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from resource import RUSAGE_SELF, getrusage

import torch
import torch.distributed as dist

Result = tuple[float, float, float, float]
# Operations before measuring: they open each connection, and TCP learns what the network allows.
WARM = 12
SUM, MAX = dist.ReduceOp.SUM, dist.ReduceOp.MAX
COUNTERS = Path("/proc/self/net/dev")  # counters of this network namespace
SENT_COLUMN = 8


def cpu_s() -> float:
    use = getrusage(RUSAGE_SELF)
    return use.ru_utime + use.ru_stime


def sent_bytes() -> int:
    """Bytes that this host has sent to others; 0 at all but one of its ranks."""
    if int(os.environ.get("LOCAL_RANK", "0")) != 0:
        return 0
    rows = [line.partition(":") for line in COUNTERS.read_text().splitlines()[2:]]
    return sum(int(row[2].split()[SENT_COLUMN]) for row in rows if row[0].strip() != "lo")


def run_round(tensors: list[torch.Tensor], wait: bool, group: dist.ProcessGroup) -> None:
    if wait:
        for tensor in tensors:
            dist.all_reduce(tensor, group=group, async_op=True).wait()
        return
    for work in [dist.all_reduce(t, group=group, async_op=True) for t in tensors]:
        work.wait()


def over_ranks(value: float, op: dist.ReduceOp, group: dist.ProcessGroup) -> float:
    total = torch.tensor(value, dtype=torch.float64)
    dist.all_reduce(total, op, group)
    return float(total)


def measure(case: str, group: dist.ProcessGroup) -> Result:
    numbers = [int(length) for length in case.split(",")[0].split("/")]
    count, times, wait = map(int, case.split(",")[1:])
    tensors = [torch.full((length,), float(dist.get_rank())) for length in numbers * count]
    run_round(tensors, wait == 1, group)
    want = sum(range(dist.get_world_size()))
    assert all(float(t[0]) == want == float(t[-1]) for t in tensors)
    for tensor in tensors:
        tensor.zero_()
    for _ in range(WARM - len(tensors)):
        run_round(tensors, wait == 1, group)
    dist.barrier(group)
    begun, used, sent = time.perf_counter(), cpu_s(), sent_bytes()
    for _ in range(times):
        run_round(tensors, wait == 1, group)
    wall, cpu = time.perf_counter() - begun, cpu_s() - used
    dist.barrier(group)
    sent = sent_bytes() - sent
    found = [(wall, MAX), (cpu, SUM), (sent, SUM), (sent, MAX)]
    first, second, third, fourth = (over_ranks(value / times, op, group) for value, op in found)
    return first, second, third, fourth


def measure_memcpy(case: str, group: dist.ProcessGroup) -> float:
    source = torch.zeros(int(case.split(",")[0].split("/")[0]))
    target = torch.zeros_like(source)
    dist.barrier(group)
    begun = time.perf_counter()
    for _ in range(5):
        target.copy_(source)
    return over_ranks((time.perf_counter() - begun) / 5, MAX, group)


def main() -> None:
    torch.set_num_threads(1)
    order, *cases = sys.argv[1:]
    dist.init_process_group("gloo")
    gloo = dist.group.WORLD
    assert gloo is not None
    groups = {name: dist.new_group(backend=name) for name in sorted(order.split(","))}
    said = {
        name: {case: measure(case, groups[name]) for case in cases} for name in order.split(",")
    }
    said["memcpy"] = {case: measure_memcpy(case, gloo) for case in cases[:1]}
    if dist.get_rank() == 0:
        print(json.dumps(said))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
