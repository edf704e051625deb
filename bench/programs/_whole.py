"""A rank that times servers of whole tensors beside balanced ones: _whole.py LENGTHS SERVERS TIMES.

LENGTHS: of the tensors, separated by "/". The last ranks are the servers: they add what all others
send them, and send the sum back. Tensors go whole, each to the server that has least so far (the
largest first), as parameter servers have them; or each is cut equally for all servers. Prints, as
the first rank, a JSON object: {"whole": RESULT, "cut": RESULT}, a RESULT as in _reduce.py.
"""

from __future__ import annotations

import json
import sys
import time

import torch
import torch.distributed as dist
from programs._reduce import MAX, SUM, Result, cpu_s, over_ranks, sent_bytes

WARM = 2
Parts = list[list[int]]  # for each server, the lengths of its tensors


def give_whole(lengths: list[int], servers: int) -> Parts:
    parts: Parts = [[] for _ in range(servers)]
    for length in sorted(lengths, reverse=True):
        min(parts, key=sum).append(length)
    return parts


def give_cut(lengths: list[int], servers: int) -> Parts:
    each = [
        [length * (s + 1) // servers - length * s // servers for length in lengths]
        for s in range(servers)
    ]
    return [[length for length in part if length > 0] for part in each]


def exchange(parts: Parts, tensors: list[list[torch.Tensor]], group: dist.ProcessGroup) -> None:
    """Exchanges the tensors. A worker sends all and receives the sums; a server
    adds its own ones.
    """
    workers = dist.get_world_size() - len(parts)
    own = dist.get_rank() - workers
    if own < 0:
        works = [
            start(tensor, workers + server, group, tag)
            for server, some in enumerate(tensors)
            for tag, tensor in enumerate(some)
            for start in (dist.isend, dist.irecv)
        ]
    else:
        works = []
        sums = [torch.zeros(length) for length in parts[own]]
        comes = [
            (tag, dist.irecv(tensors[worker][tag], worker, group, tag))
            for tag in range(len(sums))
            for worker in range(workers)
        ]
        for i, (tag, work) in enumerate(comes):
            work.wait()
            sums[tag] += tensors[i % workers][tag]
            if i % workers == workers - 1:
                works += [dist.isend(sums[tag], w, group, tag) for w in range(workers)]
    for work in works:
        work.wait()


def measure(parts: Parts, times: int, group: dist.ProcessGroup) -> Result:
    workers = dist.get_world_size() - len(parts)
    own = dist.get_rank() - workers
    # A tensor list per server at a worker, per worker at a server.
    room = parts if own < 0 else [parts[own]] * workers
    tensors = [[torch.zeros(length) for length in some] for some in room]
    for _ in range(WARM):
        exchange(parts, tensors, group)
    dist.barrier(group)
    begun, used, sent = time.perf_counter(), cpu_s(), sent_bytes()
    for _ in range(times):
        exchange(parts, tensors, group)
    wall, cpu = time.perf_counter() - begun, cpu_s() - used
    dist.barrier(group)
    sent = sent_bytes() - sent if own >= 0 else 0  # workers count 0: only servers' bytes matter
    found = [(wall, MAX), (cpu, SUM), (sent, SUM), (sent, MAX)]
    first, second, third, fourth = (over_ranks(value / times, op, group) for value, op in found)
    return first, second, third, fourth


def main() -> None:
    torch.set_num_threads(1)
    lengths = [int(length) for length in sys.argv[1].split("/")]
    servers, times = map(int, sys.argv[2:])
    dist.init_process_group("pawl")
    world = dist.group.WORLD
    assert world is not None
    said = {
        "whole": measure(give_whole(lengths, servers), times, world),
        "cut": measure(give_cut(lengths, servers), times, world),
    }
    if dist.get_rank() == 0:
        print(json.dumps(said))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
