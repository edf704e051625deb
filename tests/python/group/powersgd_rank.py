"""A rank of DDP with the hook of pawl.distributed.powersgd, over the backend "pawl" and over gloo.

Usage: powersgd_rank.py NAME...: the checks to run, or none for all. Prints "> NAME" for each that
held.
"""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from group_checks import check, rank, refused, run_checks, world
from pawl import distributed

gloo: dist.ProcessGroup
SMALL = 0.004  # MB: a bucket holds one layer


class Net(nn.Module):
    """Matrices of several shapes, a matrix with two names, a convolution, vectors, and a part used
    at times.

    Only rank 0 uses one layer, and only where asked for; another layer is then used by no rank.
    """

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.convolution = nn.Conv1d(4, 16, 3, padding=1)
        self.first = nn.Linear(96, 40)
        self.tied = nn.Linear(40, 40)
        self.again = nn.Linear(40, 40)
        self.again.weight = self.tied.weight
        self.rare = nn.Linear(40, 40)
        self.last = nn.Linear(40, 3)

    def forward(self, x: torch.Tensor, rare: bool = True) -> torch.Tensor:
        x = torch.relu(self.convolution(x.view(-1, 4, 6))).flatten(1)
        x = torch.relu(self.first(x))
        x = torch.tanh(self.again(torch.tanh(self.tied(x))))
        return self.last(torch.tanh(self.rare(x)) if rare else x)


def batch(step: int, of: int | None = None) -> torch.Tensor:
    made = torch.Generator().manual_seed(1000 * step + (rank() if of is None else of))
    return torch.randn(8, 24, generator=made)


def flat(model: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def same_on_all(model: nn.Module) -> None:
    mine = flat(model)
    into = [torch.empty_like(mine) for _ in range(world())]
    dist.all_gather(into, mine, group=gloo)
    for other in into:
        assert torch.equal(other, mine)


class Training:
    """A model in DDP with the hook, its optimizer, and steps."""

    def __init__(
        self,
        group: dist.ProcessGroup | None = None,
        hooked: bool = True,
        model: nn.Module | None = None,
        options: dict[str, object] | None = None,
        **arguments: object,
    ) -> None:
        arguments = {"start_iter": 0, "rank": 2, **arguments}
        self.net = model or Net()
        self.ddp = DDP(self.net, process_group=group, bucket_cap_mb=SMALL, **(options or {}))
        self.state, hook = distributed.powersgd(self.ddp, group=group, **arguments)
        if hooked:
            self.ddp.register_comm_hook(self.state, hook)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.05, momentum=0.9)

    def step(self, number: int, rare: bool = True) -> float:
        loss = (self.ddp(batch(number), rare) - 1).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def run(self, steps: range, uses: Callable[[int], bool] = lambda step: True) -> Training:
        for number in steps:
            self.step(number, uses(number))
        same_on_all(self.net)
        return self


@check
def same_bits() -> None:
    """With many buckets, which DDP makes anew after the first step, all ranks have the same bits,
    before and after compression starts."""
    for start_iter in (0, 1, 2, 3):
        Training(start_iter=start_iter).run(range(6))
    Training(warm_start=False).run(range(4))
    Training(gloo).run(range(4))
    Training(options={"gradient_as_bucket_view": True}).run(range(4))
    Training(options={"static_graph": True}).run(range(4))


@check
def like_the_paper() -> None:
    """The result is that of the paper's algorithm for one matrix, with all ranks' gradients in one
    place."""
    n, m, r, steps = 30, 20, 2, 5
    gradients = torch.randn(steps, world(), n, m, generator=torch.Generator().manual_seed(1))
    model = nn.Linear(m, n, bias=False, dtype=torch.float64)
    state, hook = distributed.powersgd(model, r, start_iter=0, min_compression_rate=1)
    ddp = DDP(model)
    ddp.register_comm_hook(state, hook)
    q = state.state_dict()["q"]["weight"].clone()
    left = torch.zeros(world(), n, m, dtype=torch.float64)
    for step in range(steps):
        model.weight.grad = None
        weights = gradients[step, rank()].double()
        (ddp(torch.eye(m, dtype=torch.float64)) * weights.t()).sum().backward()
        matrices = gradients[step].double() / world() + left
        p = torch.linalg.qr((matrices @ torch.linalg.qr(q).Q).sum(0)).Q
        q = (matrices.transpose(1, 2) @ p).sum(0)
        left = matrices - p @ (p.t() @ matrices)
        torch.testing.assert_close(model.weight.grad, p @ q.t())
        torch.testing.assert_close(state.state_dict()["error"]["weight"], left[rank()])


@check
def nothing_is_lost() -> None:
    """The parameters' updates and the errors that all ranks still keep add up to the sum of all
    gradients."""
    training = Training(options={"find_unused_parameters": True})
    optimizer = torch.optim.SGD(training.net.parameters(), lr=1.0)
    training.optimizer = torch.optim.SGD(training.net.parameters(), lr=0.0)
    start = copy.deepcopy(training.net)
    total = [torch.zeros_like(p) for p in start.parameters()]
    for number in range(6):
        for of in range(world()):
            plain = copy.deepcopy(start)
            (plain(batch(number, of), number % 2 == 0) - 1).square().mean().backward()
            for into, p in zip(total, plain.parameters(), strict=True):
                into.add_(p.grad if p.grad is not None else 0, alpha=1 / world())
        before = copy.deepcopy(training.net.state_dict())
        training.step(number, number % 2 == 0)
        optimizer.step()
        for (name, p), into in zip(training.net.named_parameters(), total, strict=True):
            into.add_(p.detach() - before[name])  # the negative of the gradient that was applied
        training.net.load_state_dict(before)
    kept = training.state.state_dict()["error"]
    assert set(kept) >= {"first.weight", "tied.weight", "rare.weight"}, set(kept)
    for (name, _), left in zip(start.named_parameters(), total, strict=True):
        wanted = torch.zeros_like(left)
        if name in kept:
            wanted = kept[name].clone()
            dist.all_reduce(wanted)
        torch.testing.assert_close(left, wanted.view_as(left), atol=1e-5, rtol=1e-4)


@check
def unused() -> None:
    """A layer that no rank uses keeps its gradient, and a layer that some ranks use gets their
    gradient."""
    options = {"find_unused_parameters": True}
    training = Training(options=options).run(range(3), uses=lambda step: rank() == 0)
    kept = training.state.state_dict()["error"]["rare.weight"].clone()
    assert kept.any() == (rank() == 0)
    training.optimizer.zero_grad()
    (training.ddp(batch(3), False) - 1).square().mean().backward()
    assert training.net.rare.weight.grad is None
    assert torch.equal(training.state.state_dict()["error"]["rare.weight"], kept)
    training.run(range(4, 8), uses=lambda step: step % 2 == rank() % 2)


@check
def full_rank() -> None:
    """With full rank, compression loses nothing."""
    plain = Training(hooked=False).run(range(6))
    whole = Training(rank=1000, min_compression_rate=0.1).run(range(6))
    assert whole.state.compression_ratio < 1
    torch.testing.assert_close(flat(whole.net), flat(plain.net), atol=1e-5, rtol=1e-4)


@check
def accumulation() -> None:
    training = Training()
    with training.ddp.no_sync():
        training.ddp(batch(0)).sum().backward()
    assert training.state.step == 0
    training.ddp(batch(1)).sum().backward()
    assert training.state.step == 1
    training.optimizer.step()
    same_on_all(training.net)


@check
def resumed() -> None:
    """A restored job has the same bits as one that went on, though its first buckets are others."""
    for start_iter in (0, 4):
        whole = Training(start_iter=start_iter).run(range(7))
        stopped = Training(start_iter=start_iter).run(range(3))
        file = io.BytesIO()
        kept = [x.state_dict() for x in (stopped.net, stopped.optimizer, stopped.state)]
        torch.save(kept, file)
        file.seek(0)
        resumed = Training(start_iter=start_iter)
        for into, state in zip(
            (resumed.net, resumed.optimizer, resumed.state), torch.load(file), strict=True
        ):
            into.load_state_dict(state)
        resumed.run(range(3, 7))
        assert resumed.state.step == 7
        assert torch.equal(flat(resumed.net), flat(whole.net))
        for name, error in resumed.state.state_dict()["error"].items():
            assert torch.equal(error, whole.state.state_dict()["error"][name])


@check
def saved_by_pawl() -> None:
    import tempfile

    import pawl

    folder = [tempfile.mkdtemp() if rank() == 0 else ""]
    dist.broadcast_object_list(folder)
    training = Training().run(range(3))
    with pawl.Checkpointer(folder[0]) as ckpt:
        state = {"model": training.ddp, "optimizer": training.optimizer, "hook": training.state}
        ckpt.save(3, state)
        ckpt.flush()
        training.run(range(3, 6))
        resumed = Training()
        again = {"model": resumed.ddp, "optimizer": resumed.optimizer, "hook": resumed.state}
        assert ckpt.restore(again) == 3
        resumed.run(range(3, 6))
    assert torch.equal(flat(resumed.net), flat(training.net))


class Bilinear(nn.Module):
    """A weak pull along one direction, under a noise along another that ranks share."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(16, 16))

    def forward(self, noise: float) -> torch.Tensor:
        return 0.5 * (self.weight[0, 0] - 1).square() + noise * self.weight[1, 1]


@check
def error_feedback() -> None:
    """The single column goes to the noise in each step; only the kept error carries the
    weak pull."""
    ends = []
    for keeps in (True, False):
        model = Bilinear()
        ddp = DDP(model)
        state, hook = distributed.powersgd(model, start_iter=0)
        ddp.register_comm_hook(state, hook)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for step in range(400):
            optimizer.zero_grad()
            ddp(10.0 * (-1) ** step).backward()
            optimizer.step()
            if not keeps:
                state.state_dict()["error"]["weight"].zero_()
        ends.append(abs(model.weight[0, 0].item() - 1))
    assert ends[0] < 0.1 and ends[1] > 0.9, ends


@check
def other_data() -> None:
    """Where ranks pull in opposite directions, the error that each keeps does not grow with every
    step."""
    made = torch.Generator().manual_seed(3)
    apart = torch.randn(30, 20, generator=made) * (-1) ** rank()
    model = nn.Linear(20, 30, bias=False)
    ddp = DDP(model)
    state, hook = distributed.powersgd(ddp, 2, start_iter=0, min_compression_rate=1)
    ddp.register_comm_hook(state, hook)
    kept = []
    for step in range(1, 601):
        weights = apart + torch.randn(30, 20, generator=made)
        (ddp(torch.eye(20)) * weights.t()).sum().backward()
        model.weight.grad = None
        if step % 300 == 0:
            kept.append(state.state_dict()["error"]["weight"].norm().item())
    assert kept[1] < 1.5 * kept[0], kept


class Transformer(nn.Module):
    """Predicts the token some places before."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.embedding = nn.Embedding(16, 64)
        self.places = nn.Parameter(0.1 * torch.randn(12, 64))
        layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(64, 16)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        return self.head(self.layers(self.embedding(tokens) + self.places, mask, is_causal=True))


@check
def transformer() -> None:
    """A transformer learns as much as from gradients that are sent whole."""
    ends = []
    for hooked in (False, True):
        training = Training(model=Transformer(), hooked=hooked, rank=4, start_iter=10)
        optimizer = torch.optim.SGD(training.net.parameters(), lr=0.1, momentum=0.9)
        for step in range(240):
            made = torch.Generator().manual_seed(100 * step + rank())
            tokens = torch.randint(0, 16, (16, 12), generator=made)
            said = training.ddp(tokens)[:, 2:].flatten(0, 1)
            loss = nn.functional.cross_entropy(said, tokens[:, :-2].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        same_on_all(training.net)
        ends.append(loss.detach())
        if hooked:
            assert training.state.compression_ratio > 6, training.state.compression_ratio
    both = torch.stack(ends)
    dist.all_reduce(both, dist.ReduceOp.AVG)
    assert (both < 0.05).all(), both  # the loss begins at 2.9


@check
def bytes_are_counted() -> None:
    """The bytes given to all_reduce match the shapes."""
    training = Training(start_iter=2)
    given = 0
    original = dist.all_reduce

    def counted(tensor: torch.Tensor, *args: object, **options: object) -> object:
        nonlocal given
        given += tensor.nbytes
        return original(tensor, *args, **options)

    dist.all_reduce = counted
    try:
        training.run(range(2))
        plain = 2 * sum(p.nbytes for p in training.net.parameters())
        assert given == plain == training.state.reduced_bytes == training.state.gradient_bytes
        assert training.state.compression_ratio == 1
        training.run(range(2, 3))
    finally:
        dist.all_reduce = original
    low = {"convolution.weight": (16, 12), "first.weight": (40, 96)}
    low |= {"tied.weight": (40, 40), "rare.weight": (40, 40)}
    # Two columns each of P and of Q, and whether the parameter was used. last.weight would hardly
    # shrink.
    wanted = sum(8 * (n + m) + 4 for n, m in low.values())
    wanted += sum(p.nbytes for name, p in training.net.named_parameters() if name not in low)
    assert given - plain == wanted == training.state.reduced_bytes - plain, (given, plain, wanted)
    assert training.state.gradient_bytes == plain * 3 // 2


@check
def not_finite() -> None:
    """An overflow at one rank reaches all, as without the hook, and is over at the next step."""
    training = Training().run(range(3))
    before = copy.deepcopy(training.net.state_dict())
    training.optimizer.zero_grad()
    (training.ddp(batch(3)) * (float("inf") if rank() == 1 else 1.0)).sum().backward()
    assert not training.net.first.weight.grad.isfinite().any()
    training.net.load_state_dict(before)  # as a GradScaler would do it
    training.run(range(4, 8))
    assert flat(training.net).isfinite().all()


@check
def sixteen_bits() -> None:
    model = nn.Sequential(nn.Linear(64, 48), nn.Tanh(), nn.Linear(48, 3)).to(torch.bfloat16)
    training = Training(model=model)
    for step in range(4):
        x = torch.randn(8, 64, generator=torch.Generator().manual_seed(10 * step + rank()))
        training.optimizer.zero_grad()
        training.ddp(x.to(torch.bfloat16)).float().square().mean().backward()
        training.optimizer.step()
    same_on_all(model)
    state = training.state.state_dict()
    assert state["error"]["0.weight"].dtype == torch.float32
    assert training.state.compression_ratio > 2


@check
def wrong() -> None:
    """Each wrong argument is refused with an error that names it."""
    net = Net()
    for arguments in (
        {"rank": 0}, {"start_iter": -1}, {"min_compression_rate": 0}, {"seed": -1}
    ):  # fmt: skip
        refused(lambda arguments=arguments: distributed.powersgd(net, **arguments), "at least 1")
    state, hook = distributed.powersgd(nn.Linear(3, 3), start_iter=0)
    ddp = DDP(nn.Linear(3, 3))
    ddp.register_comm_hook(state, hook)
    refused(lambda: ddp(torch.ones(1, 3)).sum().backward(), "is not of the model")
    other, _ = distributed.powersgd(nn.Linear(96, 40))
    state, _ = distributed.powersgd(Net())
    refused(lambda: state.load_state_dict(other.state_dict()), "the state is of another model")
    narrow, _ = distributed.powersgd(Net(), 2)
    refused(lambda: state.load_state_dict(narrow.state_dict()), "of other arguments")


def main() -> None:
    global gloo
    torch.set_num_threads(1)
    dist.init_process_group("pawl", timeout=timedelta(seconds=60))
    gloo = dist.new_group(backend="gloo")
    run_checks()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
