"""Runs a step once with modules cut off from each other, and records what each call costs.

A call of a cut module is a *scope*, and so is what lies outside of all of them. Arguments of a
scope are cut off from the graph of its caller, its results from its own graph. So each scope has a
graph of its own. Its backward pass is run, with ones, as soon as its forward pass has ended, and
frees the graph. What a scope costs does not count for its caller. The backward pass of what is
outside runs when the step asks for it.

Gradients are computed by torch.autograd.grad: those of parameters are left alone, and no hook of
theirs is called. Each is added to a tensor of its size, as a step does which adds up microbatches.

Tensors that pass the border of a scope have a number, a *token*, which says who made them.
"""

from __future__ import annotations

import contextlib
import gc
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import CheckpointError
from torch.utils.weak import WeakTensorKeyDictionary

from pawl.errors import error
from pawl.pipeline import _split
from pawl.pipeline._device import CPU, Loan
from pawl.pipeline._divide import _leaves, _preserve
from pawl.pipeline._divide._scopes import OUTSIDE, Scope, Token, Trace
from pawl.pipeline._divide._tree import Node, Tree, tensor_bytes

Backward = Callable[..., None]
Sample = Callable[[Backward], Any]

CALLS_MAX: Final = 1 << 20  # calls of modules in one trace

# Attributes and methods of tensors that read no element.
_DATA_ATTRIBUTES: Final = frozenset({"data", "T", "mT", "H", "mH", "real", "imag", "grad"})
_METADATA: Final = frozenset(
    {
        *("size", "dim", "ndimension", "numel", "nelement", "stride", "element_size", "type"),
        *("is_floating_point", "is_complex", "is_contiguous", "is_signed", "is_inference"),
        *("is_same_size", "storage_offset", "data_ptr", "untyped_storage", "storage"),
        *("get_device", "requires_grad_", "retain_grad", "register_hook"),
        *("register_post_accumulate_grad_hook", "__len__", "__hash__", "__repr__"),
        *("__format__", "__set__", "__delete__"),
    }
)


def spell(name: str) -> str:
    """The name of an argument: "args[0]" of "[0][0]", "kwargs['x']" of "[1]['x']"."""
    return ("kwargs" if name.startswith("[1]") else "args") + name[3:]


class _Alias(torch.autograd.Function):
    """The same memory as a tensor that is no view, so that it may be changed in place."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        ctx.set_materialize_grads(False)
        return _alias(tensor)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0]


def _alias(tensor: Tensor) -> Tensor:
    with torch.no_grad():
        other = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        storage = tensor.untyped_storage()
        return other.set_(storage, tensor.storage_offset(), tensor.size(), tensor.stride())


def _is_simple(tensor: Tensor) -> bool:
    return type(tensor) in (Tensor, nn.Parameter, nn.Buffer) and tensor.layout is torch.strided


def _cut(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """A leaf with a tensor's content, and a tensor that depends on the leaf alone."""
    leaf = tensor.detach().requires_grad_()
    return leaf, _Alias.apply(leaf) if _is_simple(tensor) else leaf


def _warm_up() -> None:
    """Has torch import what its first backward pass needs."""
    leaf = torch.ones(1, requires_grad=True)
    torch.autograd.grad([leaf * 2], [leaf], [torch.ones(1)])


def _versions(module: nn.Module) -> list[tuple[int, int]]:
    """Identity and version of a module's buffers."""
    return [(id(b), -1 if b.is_inference() else b._version) for b in module.buffers()]


def _has_graph(tensor: Tensor) -> bool:
    return tensor.requires_grad and (tensor.is_floating_point() or tensor.is_complex())


def cpu_clock() -> float:
    """CPU seconds of this thread."""
    return time.thread_time()


def wall_clock(device: torch.device) -> Callable[[], float]:
    """Tells seconds, once a device has finished."""
    if device.type == "cpu":
        return time.perf_counter
    wait = torch.get_device_module(device).synchronize

    def now() -> float:
        wait()
        return time.perf_counter()

    return now


class ClosedError(Exception):
    """A module computes activations again in a way that does not let modules in it be cut off."""

    def __init__(self, node: Node) -> None:
        super().__init__(node.path)
        self.node = node


class Recorder:
    """Cuts modules off while a step runs. For one thread, and one run."""

    def __init__(
        self,
        tree: Tree,
        cut: Sequence[Node],
        clock: Callable[[], float],
        survey: bool,
        halves: bool = False,
        reads: Mapping[int, Sequence[str]] | None = None,
        device: torch.device = CPU,
    ) -> None:
        self._tree = tree
        self._cut = cut
        self._clock = clock
        self._survey = survey  # follow operators and tensors; else look closely at each call
        self._halves = halves  # measure backward passes in two parts as well
        # Parameters of others that a module reads, by its identity; 0: what is outside of all.
        self._reads = reads or {}
        self._device = device  # modules compute there, and what is outside of them
        self._scopes: list[Scope] = [Scope(None, OUTSIDE)]
        self._stack: list[int] = [OUTSIDE]
        self._tokens: list[Token] = []
        self._seen = WeakTensorKeyDictionary()  # tensor -> (token, its version, is bare)
        self._kept: list[Tensor] = []  # saved tensors of a survey: their memory is not used again
        self._own = {id(p) for p in tree.model.parameters()} | {id(b) for b in tree.model.buffers()}
        self._own_storages = {
            t.untyped_storage()._cdata
            for t in (*tree.model.parameters(), *tree.model.buffers())
            if _is_simple(t)
        }
        self._quiet = True  # the recorder's own work runs, not the step
        self._thread = threading.get_ident()
        self._mark = 0.0
        self._random: tuple[bytes, ...] = ()  # states of the generators at the mark
        self._inside: str | None = None  # path of the module that runs, if it has no scope
        self._mode = _Watch(self) if survey else None
        self._backwards = 0
        self._loss_needs: set[int] = set()
        self._inner = WeakTensorKeyDictionary()  # argument of a unit, cut off -> its scope
        self._given_grads: list[Tensor] = []  # leaves of the step's own that were given gradients

    # ---- a run ----

    def run(self, sample: Sample) -> Trace:
        """Runs a step. Raises what it raises; nothing stays patched."""
        collecting = gc.isenabled()
        with contextlib.ExitStack() as stack:
            stack.callback(self._release)
            for node in self._cut:
                stack.callback(_patch(node.module, self._wrapper(node)))
            _warm_up()
            gc.disable()
            if collecting:
                stack.callback(gc.enable)
            if self._mode is not None:
                stack.enter_context(self._mode)
            self._tree.delayed.fill(self._reads.get(0, ()))
            stack.enter_context(self._lend(self._outer_tensors()))
            self._resume()
            sample(self._backward)
            self._pause()
            self._run_backward(self._scopes[OUTSIDE], [])
        return Trace(
            self._scopes,
            self._tokens,
            self._find_reached(),
            sum(scope.forward_s + scope.backward_s for scope in self._scopes),
            self._backwards,
        )

    def _release(self) -> None:
        self._quiet = True
        self._tree.delayed.empty_all()
        self._kept.clear()
        for leaf in self._given_grads:
            leaf.grad = None
        self._given_grads.clear()
        for scope in self._scopes:
            scope.roots.clear()
            scope.leaves.clear()

    def _pause(self) -> None:
        """Charges the time since the last mark to the scope that runs."""
        now = self._clock()
        scope = self._scopes[self._stack[-1]]
        scope.forward_s += now - self._mark
        self._quiet = True
        self._note_draws(scope)

    def _note_draws(self, scope: Scope) -> None:
        if not self._survey or scope.node is None:
            return
        now = _preserve.random_state()
        if now != self._random:
            scope.draws.add(self._inside or scope.node.path)
        self._random = now

    def _resume(self) -> None:
        if self._survey:
            self._random = _preserve.random_state()
        self._quiet = False
        self._mark = self._clock()

    # ---- calls ----

    def _wrapper(self, node: Node) -> Callable[..., Any]:
        earlier = node.module.__dict__.get("_compiled_call_impl")
        original = earlier if earlier is not None else node.module._call_impl

        def call(*args: Any, **kwargs: Any) -> Any:
            if self._quiet or threading.get_ident() != self._thread:
                return original(*args, **kwargs)
            scope = self._scopes[self._stack[-1]]
            if not scope.repeated:
                return self._call(node, original, args, kwargs)
            self._note_draws(scope)
            caller, self._inside = self._inside, node.path
            try:
                return original(*args, **kwargs)
            finally:
                self._note_draws(scope)
                self._inside = caller

        return call

    def _call(
        self, node: Node, original: Callable[..., Any], args: Any, kwargs: dict[str, Any]
    ) -> Any:
        repeated = self._is_repeated()
        self._pause()
        filled = self._fill(node)
        with self._lend(self._tensors_of(node)):
            out = self._follow(node, original, args, kwargs, repeated)
        if filled:
            self._tree.delayed.empty(filled)
        self._resume()
        return out

    def _follow(
        self,
        node: Node,
        original: Callable[..., Any],
        args: Any,
        kwargs: dict[str, Any],
        repeated: bool,
    ) -> Any:
        """Runs a call in a scope of its own, forward and backward."""
        if len(self._scopes) > CALLS_MAX:
            raise RuntimeError(f"more than {CALLS_MAX} calls of modules in one step")
        caller = self._scopes[self._stack[-1]]
        caller.called.add(id(node.module))
        scope = Scope(node, self._stack[-1], repeated=repeated)
        index = len(self._scopes)
        self._scopes.append(scope)
        watched: list[tuple[str, Tensor, int]] = []

        def enter(name: str, tensor: Tensor) -> Tensor:
            given = self._take(caller, scope, tensor)
            watched.append((name, given, given._version))
            return given

        args, kwargs = _leaves.swap((args, kwargs), enter)
        buffers = [] if self._survey else _versions(node.module)
        self._stack.append(index)
        try:
            with self._hooks(), self._watching(node):
                self._resume()
                out = original(*args, **kwargs)
                self._pause()
        finally:
            self._quiet = True
            self._stack.pop()
        if not self._survey:
            scope.changes = tuple(spell(n) for n, t, version in watched if t._version != version)
            scope.updates = buffers != _versions(node.module)
        return self._leave(caller, index, out)

    def _lend(self, tensors: Iterable[Tensor]) -> Loan:
        """Parameters and buffers on the device, as long as they are needed."""
        if self._device.type == "cpu":
            return Loan((), self._device)
        lent = Loan(dict.fromkeys(tensors), self._device)
        there = [twin for _, twin in lent.pairs if _is_simple(twin)]
        self._own_storages |= {twin.untyped_storage()._cdata for twin in there}
        return lent

    def _outer_tensors(self) -> list[Tensor]:
        """Parameters and buffers that are used outside of the modules that are cut off."""
        inside = {id(b) for node in self._cut for b in node.module.buffers()}
        buffers = [b for b in self._tree.model.buffers() if id(b) not in inside]
        return [*(self._tree.params[name] for name in self._reads.get(0, ())), *buffers]

    def _tensors_of(self, node: Node) -> Iterator[Tensor]:
        """Parameters and buffers that a module has, and parameters that it uses."""
        yield from node.module.parameters()
        yield from node.module.buffers()
        yield from (self._tree.params[name] for name in self._reads.get(id(node.module), ()))

    def _fill(self, node: Node) -> frozenset[str]:
        """Gives the parameters that a call needs their values, if they have none yet."""
        tree = self._tree
        if not tree.delayed.waiting:
            return frozenset()
        if self._survey:  # modules that it calls come on their own
            own = {id(p) for p in node.module.parameters(recurse=False)}
            names = [name for one, name in tree.param_names.items() if one in own]
        else:
            names = [*tree.params_of(node), *self._reads.get(id(node.module), ())]
        return tree.delayed.fill(names, node.module)

    def _take(self, caller: Scope, scope: Scope, tensor: Tensor) -> Tensor:
        """Notes an argument of a call, and cuts it off from the caller's graph."""
        token = self._token(tensor, self._stack[-1])
        at = len(scope.takes)
        scope.takes.append(token)
        name = self._tree.param_names.get(id(tensor))
        if name is not None:
            caller.param_reads.add(name)
        tensor = tensor.to(self._device)
        if not torch.is_grad_enabled() or not _has_graph(tensor):
            return tensor
        caller.roots.append((tensor, token))
        leaf, given = _cut(tensor)
        scope.leaves.append((leaf, token))
        self._inner[leaf] = scope
        scope.needs[at] = set()
        self._see(given, token, bare=True)
        return given

    def _leave(self, caller: Scope, index: int, out: Any) -> Any:
        """Runs a call's backward pass, and cuts its results off."""
        scope = self._scopes[index]
        results: list[Tensor] = []
        _leaves.swap(out, lambda _, tensor: results.append(tensor) or tensor)
        self._run_backward(scope, [t for t in results if _has_graph(t)])
        torch.clear_autocast_cache()

        def leave(_: str, tensor: Tensor) -> Tensor:
            known = self._seen.get(tensor)
            token = self._new_token(tensor, index, True, known[0] if known else None)
            scope.gives.append(token)
            if _has_graph(tensor):
                leaf, tensor = _cut(tensor)
                caller.leaves.append((leaf, token))
                self._see(tensor, token, bare=True)
            else:
                tensor = tensor.detach() if known or id(tensor) in self._own else tensor
                self._see(tensor, token, bare=False)
            return tensor

        return _leaves.swap(out, leave)

    def _is_repeated(self) -> bool:
        """Whether somebody else's hooks lie above the running scope's: a checkpoint's."""
        top = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)
        hooks = top(True) if top is not None else None
        if hooks is None or not self._stack:
            return False
        return getattr(hooks[0], "__self__", None) is not self

    @contextlib.contextmanager
    def _hooks(self) -> Iterator[None]:
        if not torch.is_grad_enabled():
            yield
            return
        with saved_tensors_hooks(self._pack, self._unpack):
            yield

    def _pack(self, tensor: Tensor) -> Tensor:
        if not self._quiet and _is_simple(tensor):
            storage = tensor.untyped_storage()
            if storage._cdata not in self._own_storages:
                saved = self._scopes[self._stack[-1]].saved
                saved[storage._cdata] = storage.nbytes()
                if self._survey:
                    self._kept.append(tensor.detach())
        return tensor.detach()

    def _unpack(self, tensor: Tensor) -> Tensor:
        return tensor

    @contextlib.contextmanager
    def _watching(self, node: Node) -> Iterator[None]:
        """Leaves the watch off inside of a closed module, whose compiler would see it."""
        mode = self._mode
        if mode is None or not node.closed:
            yield
            return
        mode.__exit__(None, None, None)
        try:
            yield
        finally:
            mode.__enter__()

    # ---- backward passes ----

    def _backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        """What the step calls instead of ``loss.backward()``."""
        self._pause()
        scope = self._scopes[self._stack[-1]]
        self._backwards += 1
        self._loss_needs |= self._find_leaves(loss, scope)
        if scope.node is None:
            self._look_at_leaves([loss, *[tensor for tensor, _ in scope.roots]])
        self._run_backward(scope, [loss] if _has_graph(loss) else [], again=True)
        self._resume()

    def _run_backward(self, scope: Scope, results: list[Tensor], again: bool = False) -> None:
        """Runs the backward pass of a scope's graph, and frees the graph."""
        outs = list(results)
        for tensor, token in scope.roots:
            known = self._seen.get(tensor)
            bare = known is not None and known[2] and known[1] == tensor._version
            if bare:
                scope.needs.setdefault(-1 - token, set()).add(token)
            elif tensor.grad_fn is not None:
                outs.append(tensor)
                if not self._survey and scope.node is None:
                    found = self._find_leaves(tensor, scope)
                    scope.needs.setdefault(-1 - token, set()).update(found)
        names = self._params_of(scope)
        params = [self._tree.params[name] for name in names]
        inputs = [leaf for leaf, _ in scope.leaves] + params
        scope.roots.clear()
        if outs and inputs:
            grads = self._time_backward(scope, outs, inputs, len(params), again)
            have = {
                token
                for (_, token), grad in zip(scope.leaves, grads, strict=False)
                if grad is not None
            }
            if scope.node is not None:
                for at, token in enumerate(scope.takes):
                    if at in scope.needs and token in have:
                        scope.needs[at] = {token}
            tail = grads[len(scope.leaves) :]
            scope.wanted |= {n for n, grad in zip(names, tail, strict=True) if grad is not None}
        if not again:
            scope.leaves.clear()

    def _time_backward(
        self, scope: Scope, outs: list[Tensor], inputs: list[Tensor], params_n: int, again: bool
    ) -> Sequence[Tensor | None]:
        ones = [torch.ones_like(out) for out in outs]
        first = len(inputs) - params_n
        halves = self._halves and scope.node is not None and params_n > 0
        if halves and first > 0:
            self._time_halves(scope, outs, ones, inputs[:first], inputs[first:])
        begin = self._clock()
        try:
            grads = torch.autograd.grad(
                outs, inputs, ones, allow_unused=True, retain_graph=again or None
            )
        except RuntimeError as why:
            node = scope.node
            if isinstance(why, CheckpointError) and node is not None and not node.closed:
                raise ClosedError(node) from why
            if "use_reentrant" not in str(why):
                raise
            name = scope.node.path if scope.node is not None else "the step"
            raise error(
                "PAWL_ENOTSUP",
                f"{name or 'the model'} uses torch.utils.checkpoint with use_reentrant=True, whose "
                "backward pass cannot be run by itself; use use_reentrant=False",
            ) from None
        _add_up(inputs[first:], grads[first:])
        took_s = self._clock() - begin
        scope.backward_s += took_s
        if halves and first == 0:  # nobody waits for any of it
            scope.params_s += took_s
        return grads

    def _time_halves(
        self,
        scope: Scope,
        outs: list[Tensor],
        ones: list[Tensor],
        leaves: list[Tensor],
        params: list[Tensor],
    ) -> None:
        """Runs a backward pass in two parts, if it can be divided. The graph stays."""
        begin = self._clock()
        with contextlib.suppress(RuntimeError):  # the undivided pass says more
            divided = _split.divide(outs, leaves, params)
            if divided is None:
                return
            divided.inputs(outs, ones)
            middle = self._clock()
            _add_up(params, divided.parameters(keep=True))
            scope.inputs_s += middle - begin
            scope.params_s += self._clock() - middle

    def _params_of(self, scope: Scope) -> list[str]:
        """Parameters that a scope may use: those in its module and in none that it called."""
        tree = self._tree
        called = [tree.nodes[one] for one in scope.called]
        others = {name for node in called for name in tree.params_of(node)}
        mine = tuple(tree.params) if scope.node is None else tree.params_of(scope.node)
        return [name for name in mine if name not in others and tree.params[name].requires_grad]

    def _look_at_leaves(self, roots: list[Tensor]) -> None:
        """Gives leaves of the step's own gradients of zero, since the step may look at them.

        Raises PawlError (PAWL_ENOTSUP) for a tensor that a unit keeps instead of returning it.
        """
        cut = {id(leaf) for leaf, _ in self._scopes[OUTSIDE].leaves}
        for leaf in _split.leaves_below(roots):
            scope = self._inner.get(leaf)
            if scope is not None and scope.node is not None and not self._survey:
                raise error(
                    "PAWL_ENOTSUP",
                    f"pipeline: the loss depends on a tensor that {scope.node.path} computes and "
                    "keeps, as an attribute perhaps; return it from its forward function",
                )
            mine = scope is None and id(leaf) not in self._own and id(leaf) not in cut
            if mine and leaf.grad is None:
                leaf.grad = torch.zeros_like(leaf)
                self._given_grads.append(leaf)

    def _find_leaves(self, root: Tensor, scope: Scope) -> set[int]:
        """Tokens of the scope's leaves that a tensor depends on."""
        tokens = {id(leaf): token for leaf, token in scope.leaves}
        return {tokens[id(leaf)] for leaf in _split.leaves_below([root]) if id(leaf) in tokens}

    def _find_reached(self) -> set[int]:
        """Scopes whose results the loss depends on."""
        outside = self._scopes[OUTSIDE]
        todo = set(self._loss_needs)
        done: set[int] = set()
        reached: set[int] = set()
        while todo:
            number = todo.pop()
            done.add(number)
            token = self._tokens[number]
            if token.given and token.scope not in reached:
                reached.add(token.scope)
                for needs in self._scopes[token.scope].needs.values():
                    for need in needs:
                        todo |= outside.needs.get(-1 - need, {need}) - done
        return reached

    # ---- tokens ----

    def _see(self, tensor: Tensor, token: int, bare: bool) -> None:
        self._seen[tensor] = (token, tensor._version, bare)

    def _new_token(self, tensor: Tensor, scope: int, given: bool, source: int | None) -> int:
        self._tokens.append(Token(tensor_bytes(tensor), scope, given, source))
        return len(self._tokens) - 1

    def _token(self, tensor: Tensor, scope: int) -> int:
        """The token of a tensor, a new one if it is not known, or was changed since."""
        known = self._seen.get(tensor)
        if known is not None and known[1] == tensor._version:
            return known[0]
        token = self._new_token(tensor, scope, False, None)
        self._see(tensor, token, bare=False)
        return token

    def note(self, func: Any, args: Any, kwargs: dict[str, Any]) -> None:
        """Notes what an operator of the running scope reads. For the watch."""
        if self._quiet or threading.get_ident() != self._thread or not _reads_data(func):
            return
        scope = self._scopes[self._stack[-1]]
        graph = False
        for item in (*args, *kwargs.values()):
            for tensor in item if isinstance(item, (list, tuple)) else (item,):
                if isinstance(tensor, Tensor):
                    self._note_tensor(scope, tensor)
                    graph |= tensor.requires_grad
        scope.operators += graph

    def _note_tensor(self, scope: Scope, tensor: Tensor) -> None:
        one = id(tensor)
        if one in self._own:
            if one in self._tree.param_names:
                name = self._tree.param_names[one]
                scope.param_reads.add(name)
                self._tree.delayed.fill([name])
            else:
                scope.buffer_reads.add(self._tree.buffer_names[one])
            return
        known = self._seen.get(tensor)
        if known is not None:
            scope.reads.add(known[0])


def _add_up(params: Sequence[Tensor], grads: Sequence[Tensor | None]) -> None:
    """Adds each gradient to a tensor of its size, as a step does."""
    for param, grad in zip(params, grads, strict=True):
        if grad is not None and grad.layout is torch.strided and 0 not in grad.stride():
            torch.add(grad, param.detach(), out=grad)


def _reads_data(func: Any) -> bool:
    name = getattr(func, "__name__", "")
    if name == "__get__":
        owner = getattr(func, "__self__", None)
        return getattr(owner, "__name__", "") in _DATA_ATTRIBUTES
    return name not in _METADATA


class _Watch(TorchFunctionMode):
    """Shows the recorder each operator of the step."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        self._recorder.note(func, args, kwargs)
        return func(*args, **kwargs)


def _patch(module: nn.Module, call: Callable[..., Any]) -> Callable[[], None]:
    """Has a module called by ``call``, its hooks included. Returns what undoes that."""
    had = "_compiled_call_impl" in module.__dict__
    earlier = module.__dict__.get("_compiled_call_impl")
    module.__dict__["_compiled_call_impl"] = call

    def undo() -> None:
        if had:
            module.__dict__["_compiled_call_impl"] = earlier
        else:
            module.__dict__.pop("_compiled_call_impl", None)

    return undo
