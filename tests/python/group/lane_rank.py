"""A rank whose tensors are on a device: a CUDA device, or a stand-in that is late (lanes.py)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import lanes
from group_checks import all_gather_single, check, rank, run_checks, world
from pawl._group import _staging

SLEEP = 300_000_000  # cycles of a CUDA device: more than 0.1 s
CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda", 0) if CUDA else torch.device("cpu")
STAND_IN = None if CUDA else lanes.install(patient=False)


def behind(kernel: Callable[[], object]) -> threading.Event:
    """Queues a kernel on the device, which runs once the returned event is set; on a CUDA device,
    some time later."""
    gate = threading.Event()

    def run() -> None:
        assert gate.wait(60)
        kernel()

    if STAND_IN is not None:
        STAND_IN.current().launch(run)
    else:
        torch.cuda._sleep(SLEEP)
        kernel()
    return gate


def after(kernel: Callable[[], object]) -> None:
    """Queues a kernel that is not late."""
    if STAND_IN is not None:
        STAND_IN.current().launch(kernel)
    else:
        kernel()


def settle() -> None:
    """Waits until the device has done all that was queued."""
    if STAND_IN is not None:
        STAND_IN.mark().synchronize()
    else:
        torch.cuda.synchronize()


@check
def the_host_goes_on() -> None:
    """Sums begin when the device has computed their input, and no call waits for that before; at
    least not once there is page-locked memory, which a CUDA device hands out when it is idle."""
    for anew in (CUDA, False):
        queue_and_go_on(anew)


def queue_and_go_on(anew: bool) -> None:
    tensors = [torch.zeros(1000, device=DEVICE) for _ in range(6)]
    gates = [behind(lambda t=t: t.add_(rank() + 1)) for t in tensors]
    works = [dist.all_reduce(t, async_op=True) for t in tensors]
    last = torch.ones(7, device=DEVICE)
    gates.append(behind(lambda: last.add_(1)))
    received = torch.zeros(7, device=DEVICE)
    works.append(dist.isend(last, (rank() + 1) % world()))
    works.append(dist.irecv(received, (rank() - 1) % world()))
    assert anew or not any(work.is_completed() for work in works)
    for gate in gates:
        gate.set()
    for work in works:
        work.wait()
    settle()
    for t in tensors:
        assert torch.equal(t.cpu(), torch.full((1000,), world() * (world() + 1) / 2)), t
    assert torch.equal(received.cpu(), torch.full((7,), 2.0))


@check
def what_comes_is_behind_what_was_queued() -> None:
    """A kernel that was queued on an output before the call writes to it before Pawl does. A kernel
    that is queued after waiting sees the result."""
    output = torch.zeros(world(), 100, device=DEVICE)
    source = torch.full((100,), float(rank()), device=DEVICE)
    gate = behind(lambda: output.fill_(-1))
    seen: list[torch.Tensor] = []
    work = all_gather_single(output, source, async_op=True)
    opener = threading.Timer(0.05, gate.set)
    opener.start()
    work.wait()
    after(lambda: seen.append(output.clone()))
    settle()
    wanted = torch.arange(float(world())).unsqueeze(1).expand(world(), 100)
    assert torch.equal(seen[0].cpu(), wanted), seen


@check
def an_output_that_is_still_written_to() -> None:
    """The same holds where the call takes no input from the device, and so is over before the
    kernel is."""
    output = torch.full((100,), 5.0, device=DEVICE)
    settle()
    gate = behind(lambda: output.fill_(-1)) if rank() else threading.Event()
    work = dist.broadcast(output, 0, async_op=True)
    while not work.is_completed():
        time.sleep(0.001)  # pace
    opener = threading.Timer(0.05, gate.set)
    opener.start()
    work.wait()
    settle()
    assert torch.equal(output.cpu(), torch.full((100,), 5.0)), output


@check
def futures_too() -> None:
    tensor = torch.zeros(50, device=DEVICE)
    gate = behind(lambda: tensor.fill_(1))
    future = dist.all_reduce(tensor, async_op=True).get_future()
    gate.set()
    (value,) = future.wait()
    settle()
    assert torch.equal(value.cpu(), torch.full((50,), float(world())))


@check
def a_group_of_one() -> None:
    group = dist.new_group([rank()], use_local_synchronization=True)
    output, tensor = torch.zeros(1, 10, device=DEVICE), torch.zeros(10, device=DEVICE)
    gate = behind(lambda: tensor.fill_(3))
    work = all_gather_single(output, tensor, group=group, async_op=True)
    gate.set()
    work.wait()
    settle()
    assert torch.equal(output.cpu(), torch.full((1, 10), 3.0))


@check
def a_device_that_fails() -> None:
    """The rank of the device leaves, with the reason; no rank hangs."""
    group = dist.new_group(backend="pawl")
    tensor = torch.zeros(10, device=DEVICE)
    lane = _staging.lane_of(tensor)
    assert lane is not None

    class Broken:
        def synchronize(self) -> None:
            raise RuntimeError("an illegal memory access was encountered")

    last = world() - 1
    if rank() == last:
        lane.fetch = lambda copies: Broken()  # type: ignore[method-assign]
    try:
        dist.all_reduce(tensor, group=group)
    except RuntimeError as error:
        assert f"rank {last} has left" in str(error) or rank() == last, error
    else:
        raise AssertionError("it worked")
    finally:
        lane.__dict__.pop("fetch", None)


@check
def ddp() -> None:
    """Gradients are those of one process with the whole batch."""
    if STAND_IN is not None:
        STAND_IN.patient = True  # DDP looks at tensors on the host
    torch.manual_seed(3)
    layers = [nn.Linear(20, 300), nn.ReLU(), nn.Linear(300, 5)]
    plain, model = nn.Sequential(*layers), nn.Sequential(*layers).to(DEVICE)
    batch = torch.randn(4 * world(), 20, device=DEVICE)
    wrapped = DDP(model, bucket_cap_mb=0.01)
    for _ in range(3):
        model.zero_grad()
        wrapped(batch[rank() :: world()]).square().mean().backward()
    got = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    plain.zero_grad()
    plain(batch).square().mean().backward()
    for gradient, p in zip(got, plain.parameters(), strict=True):
        torch.testing.assert_close(gradient, p.grad)


if __name__ == "__main__":
    dist.init_process_group("pawl")
    run_checks()
    dist.destroy_process_group()
