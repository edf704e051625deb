#!/usr/bin/env python3
"""A checkpoint's cost and the time of a restore: against torch.save, DCP and the machine.

One state of 1 GiB, one compute thread. Every value stands beside a comparison from the same run,
the order alternated. --quick shows only that it works: its numbers mean nothing.
"""

from __future__ import annotations

import logging
import sys

import torch
import torch.distributed as dist
from shared._agent import scratch
from shared._bound import Memcpy
from shared._costs import measure_due, measure_growth, measure_starts
from shared._peers import init_dcp
from shared._report import Report, describe_machine, make_parser
from shared._saving import measure_background, measure_now, measure_overlap
from shared._sizes import FULL, QUICK
from shared._state import State, Training
from shared._storing import fork_server, measure_persist, measure_restore


def main() -> int:
    args = make_parser(
        __doc__, "a small state, few repeats", "on the disk to be measured", "/var/tmp"
    ).parse_args()
    sizes = QUICK if args.quick else FULL
    logging.getLogger("pawl").setLevel(logging.ERROR)
    context = fork_server()
    torch.set_num_threads(1)
    with scratch(args.dir) as folder:
        init_dcp(folder)
        state = State(sizes.blocks, sizes.width)
        training = Training(state)
        memcpy = Memcpy(state.tensors())
        setting = describe_machine()
        setting["tensors"] = len(state.tensors())
        setting["state MB"] = round(memcpy.size_bytes / 1e6)
        setting["optimizer"] = "AdamW, fused"
        setting["compute threads"] = torch.get_num_threads()
        if sizes.quick:
            setting["quick"] = "yes: these numbers mean nothing"
        report = Report("checkpoint", sizes.repeats, setting)
        measure_overlap(report, sizes, folder, state, training, memcpy)
        measure_background(report, sizes, folder, state, training)
        measure_now(report, sizes, folder, state, memcpy)
        measure_persist(report, sizes, folder, state)
        measure_restore(report, sizes, folder, state, context)
        measure_growth(report, sizes, folder, context)
        measure_due(report, folder)
        measure_starts(report, sizes)
        report.finish(args.json)
        dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
