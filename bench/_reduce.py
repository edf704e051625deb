"""A rank that times all-reduces: _reduce.py ORDER CASE..., each case NUMBERS,COUNT,TIMES,WAIT.

ORDER: backends in the order in which they take their turns. Prints, as the first rank, a JSON
object: {backend: {case: [seconds a round in the slowest rank, CPU seconds a round of all ranks]}},
and under "memcpy" the seconds that copying a vector takes while all ranks do so.
"""

from __future__ import annotations

import json
import sys
import time
from resource import RUSAGE_SELF, getrusage

import torch
import torch.distributed as dist

Result = tuple[float, float]


def cpu_s() -> float:
    use = getrusage(RUSAGE_SELF)
    return use.ru_utime + use.ru_stime


def run_round(tensors: list[torch.Tensor], wait: bool, group: dist.ProcessGroup) -> None:
    if wait:
        for tensor in tensors:
            dist.all_reduce(tensor, group=group, async_op=True).wait()
        return
    for work in [dist.all_reduce(t, group=group, async_op=True) for t in tensors]:
        work.wait()


def over_ranks(wall: float, cpu: float, group: dist.ProcessGroup) -> Result:
    slowest = torch.tensor(wall, dtype=torch.float64)
    total = torch.tensor(cpu, dtype=torch.float64)
    dist.all_reduce(slowest, dist.ReduceOp.MAX, group)
    dist.all_reduce(total, group=group)
    return float(slowest), float(total)


def measure(case: str, group: dist.ProcessGroup) -> Result:
    numbers, count, times, wait = map(int, case.split(","))
    tensors = [torch.full((numbers,), float(dist.get_rank())) for _ in range(count)]
    run_round(tensors, wait == 1, group)  # connects
    want = sum(range(dist.get_world_size()))
    assert all(float(t[0]) == want == float(t[-1]) for t in tensors)
    for tensor in tensors:
        tensor.zero_()
    dist.barrier(group)
    begun, used = time.perf_counter(), cpu_s()
    for _ in range(times):
        run_round(tensors, wait == 1, group)
    wall, cpu = time.perf_counter() - begun, cpu_s() - used
    return over_ranks(wall / times, cpu / times, group)


def measure_memcpy(case: str, group: dist.ProcessGroup) -> float:
    source = torch.zeros(int(case.split(",")[0]))
    target = torch.zeros_like(source)
    dist.barrier(group)
    begun = time.perf_counter()
    for _ in range(5):
        target.copy_(source)
    return over_ranks((time.perf_counter() - begun) / 5, 0.0, group)[0]


def main() -> None:
    torch.set_num_threads(1)
    order, *cases = sys.argv[1:]
    dist.init_process_group("gloo")
    groups = {name: dist.new_group(backend=name) for name in sorted(order.split(","))}
    said = {
        name: {case: measure(case, groups[name]) for case in cases} for name in order.split(",")
    }
    said["memcpy"] = {case: measure_memcpy(case, groups["gloo"]) for case in cases[:1]}
    if dist.get_rank() == 0:
        print(json.dumps(said))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
