"""How evenly U-Nets of MONAI are cut: _unets.py STAGES.

Each model's modules are measured once. By these costs: the largest stage of our plan, of SMP's
heuristic (partition_as_smp), and of a cut into equal numbers of leaf modules. Prints a JSON object:
{model: {"ours_s", "smp_s", "equal_s", "mean_s"}}: seconds of the largest stage for one microbatch,
and what all stages would have if they were even.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from monai.losses import DiceLoss
from monai.networks.nets import AttentionUnet, BasicUNet, UNet
from torch import nn

from pawl.pipeline._divide import _profile
from pawl.pipeline._divide._plan import Wishes, plan_model
from pawl.pipeline._divide._profile import Survey
from pawl.pipeline._divide._tree import Node

CLASSES = 3
IO: dict[str, Any] = {"in_channels": 1, "out_channels": CLASSES}


def _unet(dims: int, first: int, levels: int, units: int) -> Callable[[], nn.Module]:
    channels = [first * 2**level for level in range(levels)]
    strides = [2] * (levels - 1)
    return lambda: UNet(dims, **IO, channels=channels, strides=strides, num_res_units=units)


def _basic(dims: int, first: int) -> Callable[[], nn.Module]:
    features = (first, first, 2 * first, 4 * first, 8 * first, first)
    return lambda: BasicUNet(dims, **IO, features=features)


def _attention(dims: int, first: int) -> Callable[[], nn.Module]:
    channels = [first, 2 * first, 4 * first, 8 * first]
    return lambda: AttentionUnet(dims, **IO, channels=channels, strides=[2, 2, 2])


MODELS = {
    "UNet 2D, 4 levels": (_unet(2, 16, 4, 2), 128),
    "UNet 2D, 5 levels": (_unet(2, 16, 5, 2), 128),
    "UNet 2D, 5 levels, no residuals": (_unet(2, 16, 5, 0), 128),
    "UNet 3D, 4 levels": (_unet(3, 8, 4, 2), 32),
    "UNet 3D, 4 levels, 3 units": (_unet(3, 8, 4, 3), 32),
    "UNet 3D, 5 levels": (_unet(3, 16, 5, 2), 32),
    "BasicUNet 2D": (_basic(2, 16), 128),
    "BasicUNet 3D": (_basic(3, 8), 32),
    "AttentionUnet 2D": (_attention(2, 16), 128),
    "AttentionUnet 3D": (_attention(3, 8), 32),
}


# ---- SMP's heuristic ----


def partition_as_smp(seen: Survey, root: Node, devices: list[int]) -> dict[int, int]:
    """The device of each module, by identity: Algorithms 1 to 3 of C. Karakus and others, arXiv
    2111.05972. The same in C: tests/lib/smp_heuristic.c.
    """
    found: dict[int, int] = {}

    def place(node: Node, devices: list[int]) -> None:
        found[id(node.module)] = devices[0]
        inner = seen.children(node)
        if len(devices) > 1 and inner:
            place_all(inner, devices, devices[0])
        else:
            for child in inner:
                place(child, devices)

    def place_all(nodes: list[Node], devices: list[int], parent: int) -> None:
        costs = [seen.time_s(node) for node in nodes]
        segments = _segments(costs, min(len(devices), len(nodes)))
        shares = _apportion([sum(costs[a:b]) for a, b in segments], devices)
        for (a, b), share in zip(segments, shares, strict=True):
            if len(share) > 1 and b - a > 1:
                place_all(nodes[a:b], share, parent)
            else:
                for node in nodes[a:b]:
                    place(node, share or [parent])

    place(root, devices)
    return found


def _segments(costs: Sequence[float], n: int) -> list[tuple[int, int]]:
    """Cuts a row into segments with the least largest sum."""
    sums = [sum(costs[:i]) for i in range(len(costs) + 1)]
    best: list[tuple[float, list[int]]] = [
        (0.0 if i == 0 else float("inf"), []) for i in range(len(sums))
    ]
    for _ in range(n):
        best = [
            min(
                ((max(best[j][0], sums[i] - sums[j]), [*best[j][1], i]) for j in range(i)),
                default=(float("inf"), []),
                key=lambda found: found[0],
            )
            for i in range(len(sums))
        ]
    ends = best[-1][1]
    return list(zip([0, *ends[:-1]], ends, strict=True))


def _apportion(costs: list[float], devices: list[int]) -> list[list[int]]:
    """d'Hondt: gives each device to the segment with the largest cost / (devices + 1)."""
    shares: list[list[int]] = [[] for _ in costs]
    for device in devices:
        most = max(range(len(costs)), key=lambda i: costs[i] / (len(shares[i]) + 1))
        shares[most].append(device)
    return shares


# ---- loads ----


def largest(seen: Survey, stage_of: dict[int, int], stages: int) -> float:
    """Seconds of the largest stage; modules that have no stage, and what is outside of all, run on
    the first one.
    """
    loads = [0.0] * stages
    for scope in seen.scopes:
        one = id(scope.node.module) if scope.node is not None else 0
        loads[stage_of.get(one, 0)] += scope.forward_s + scope.backward_s
    return max(loads)


def measure(make: Callable[[], nn.Module], size: int, stages: int) -> dict[str, float]:
    torch.manual_seed(0)
    model = make()
    dims = (
        3 if isinstance(next(m for m in model.modules() if hasattr(m, "stride")), nn.Conv3d) else 2
    )
    x = torch.randn(1, 1, *[size] * dims)
    label = torch.randint(0, CLASSES, (1, 1, *[size] * dims))
    loss_of = DiceLoss(to_onehot_y=True, softmax=True)

    def sample(backward: Callable[..., None]) -> None:
        backward(loss_of(model(x), label))

    plan = plan_model(model, sample, Wishes(stages, 4 * stages, "1f1b"))
    seen = _profile.survey(model, sample)
    root = seen.tree.nodes[id(model)]
    ours = {}
    for place in plan.places:
        for module in model.get_submodule(place.unit.path).modules():
            ours[id(module)] = place.stage
    leaves = list(dict.fromkeys(
        id(s.node.module) for s in seen.scopes if s.node is not None and not seen.children(s.node)
    ))  # fmt: skip
    equal = {leaf: i * stages // len(leaves) for i, leaf in enumerate(leaves)}
    smp = partition_as_smp(seen, root, list(range(stages)))
    return {
        "ours_s": largest(seen, ours, stages),
        "smp_s": largest(seen, smp, stages),
        "equal_s": largest(seen, equal, stages),
        "mean_s": seen.total_s / stages,
    }


def main() -> None:
    torch.set_num_threads(1)
    logging.getLogger("pawl.pipeline").setLevel(logging.WARNING)
    stages = int(sys.argv[1])
    found = {name: measure(make, size, stages) for name, (make, size) in MODELS.items()}
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
