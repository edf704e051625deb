"""A replica that meets the others through AdaptDL's own package, and sends hints to the
scheduler."""

from __future__ import annotations

import time

import adaptdl.env
import adaptdl.sched_hints
import adaptdl.torch
import torch
import torch.distributed as dist

adaptdl.torch.init_process_group("gloo")
one = torch.ones(1)
dist.all_reduce(one)
print("MET", int(one), dist.get_rank(), adaptdl.__file__, flush=True)
if dist.get_rank() == 0:
    hints = dict(adaptdl.sched_hints.SCHED_HINTS)
    hints.update(
        initBatchSize=32, maxBatchSize=256, localBszBounds=[8, 64], maxProfiledReplicas=2,
        gradParams={"norm": 1.0, "var": 2.0},
        perfParams={"alpha_c": 0.1, "beta_c": 0.001, "alpha_n": 0.1, "beta_n": 0.01,
                    "alpha_r": 0.1, "beta_r": 0.01, "gamma": 1.5},
    )  # fmt: skip
    adaptdl.sched_hints.post_sched_hints(hints, adaptdl.env.job_id())
    print("TOLD", flush=True)
time.sleep(3600)  # pace: until it is ended
