"""How evenly U-Nets of MONAI are cut: _unets.py STAGES.

Each model's modules are measured once. By these costs: the largest stage of our plan, of SMP's
heuristic, and of a cut into equal numbers of leaf modules. Prints a JSON object:
{model: {"ours_s", "smp_s", "equal_s", "mean_s"}}: seconds of the largest stage for one microbatch,
and what all stages would have if they were even.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import torch
from monai.losses import DiceLoss
from monai.networks.nets import AttentionUnet, BasicUNet, UNet
from shared._process import build
from torch import nn

from pawl.pipeline._divide import _profile
from pawl.pipeline._divide._plan import Wishes, plan_model
from pawl.pipeline._divide._profile import Survey
from pawl.pipeline._divide._tree import Node

CLASSES = 3
SIZES = {2: 128, 3: 32}  # pixels, or voxels, of an edge
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
    "UNet 2D, 4 levels": (_unet(2, 16, 4, 2), 2),
    "UNet 2D, 5 levels": (_unet(2, 16, 5, 2), 2),
    "UNet 2D, 5 levels, no residuals": (_unet(2, 16, 5, 0), 2),
    "UNet 3D, 4 levels": (_unet(3, 8, 4, 2), 3),
    "UNet 3D, 4 levels, 3 units": (_unet(3, 8, 4, 3), 3),
    "UNet 3D, 5 levels": (_unet(3, 16, 5, 2), 3),
    "BasicUNet 2D": (_basic(2, 16), 2),
    "BasicUNet 3D": (_basic(3, 8), 3),
    "AttentionUnet 2D": (_attention(2, 16), 2),
    "AttentionUnet 3D": (_attention(3, 8), 3),
}


# ---- SMP's heuristic ----


def partition_as_smp(seen: Survey, root: Node, devices: int) -> dict[int, int]:
    """The device of each module, by identity; see bench/smp_cut.c."""
    nodes, lines = [root], []
    for node in nodes:  # grows in the loop: children are adjacent
        inner = seen.children(node)
        lines.append(f"{seen.time_s(node)!r} {len(inner)} {len(nodes)}")
        nodes += inner
    done = subprocess.run(
        [build("bench/smp_cut"), str(devices)],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        check=True,
    )
    return {
        id(node.module): int(device)
        for node, device in zip(nodes, done.stdout.split(), strict=True)
    }


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


def measure(make: Callable[[], nn.Module], dims: int, stages: int) -> dict[str, float]:
    torch.manual_seed(0)
    model = make()
    shape = (1, 1, *[SIZES[dims]] * dims)
    x, label = torch.randn(shape), torch.randint(0, CLASSES, shape)
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
    smp = partition_as_smp(seen, root, stages)
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
    found = {name: measure(make, dims, stages) for name, (make, dims) in MODELS.items()}
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
