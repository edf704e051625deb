"""The modules of a model by name: which there are, what they hold, which are closed to us."""

from __future__ import annotations

import dataclasses
import sys

import torch
from torch import Tensor, nn

from pawl.pipeline._delayed import Delayed


@dataclasses.dataclass
class Node:
    """A module of a model."""

    module: nn.Module
    path: str  # first name; "": the model
    names: tuple[str, ...]  # all names, of the same object
    closed: bool  # calls inside are not seen: the module is compiled, for example
    inside: frozenset[int]  # identities of all modules below it, without itself


class Tree:
    """All modules and parameters of a model, by identity. Names are those of named_modules()."""

    def __init__(self, model: nn.Module, delayed: Delayed | None = None) -> None:
        names: dict[int, list[str]] = {}
        modules: dict[int, nn.Module] = {}
        for name, module in model.named_modules(remove_duplicate=False):
            names.setdefault(id(module), []).append(name)
            modules[id(module)] = module
        self.model = model
        self.delayed = delayed or Delayed(model, None, 0)  # parameters that have no values yet
        self.nodes = {
            one: Node(module, names[one][0], tuple(names[one]), is_closed(module), _inside(module))
            for one, module in modules.items()
        }
        self.by_path = {name: self.nodes[one] for one in names for name in names[one]}
        self.param_names = {id(p): name for name, p in model.named_parameters()}
        self.params = dict(model.named_parameters())
        self.buffer_names = {id(b): name for name, b in model.named_buffers()}

    def open_nodes(self) -> list[Node]:
        """Modules whose calls can be seen: all but those inside of closed ones."""
        hidden = {one for node in self.nodes.values() if node.closed for one in node.inside}
        return [node for one, node in self.nodes.items() if one not in hidden]

    def close(self, like: Node) -> None:
        """Closes a module, and those of its class."""
        for node in self.nodes.values():
            node.closed = node.closed or type(node.module) is type(like.module)

    def params_of(self, node: Node) -> tuple[str, ...]:
        """Names of the parameters in a module, each once, in the model's order."""
        held = {id(p) for p in node.module.parameters()}
        return tuple(name for one, name in self.param_names.items() if one in held)

    def bytes_of(self, names: tuple[str, ...]) -> int:
        """Bytes of the parameters of these names."""
        return sum(tensor_bytes(self.params[name]) for name in names)


def _inside(module: nn.Module) -> frozenset[int]:
    return frozenset(id(one) for one in module.modules() if one is not module)


def is_closed(module: nn.Module) -> bool:
    """Whether a module is compiled or scripted, so that it is called as a whole."""
    dynamo = sys.modules.get("torch._dynamo.eval_frame")
    optimized = dynamo is not None and isinstance(module, dynamo.OptimizedModule)
    compiled = module.__dict__.get("_compiled_call_impl") is not None
    return optimized or compiled or isinstance(module, torch.jit.ScriptModule)


def tensor_bytes(tensor: Tensor) -> int:
    """Bytes of a tensor's elements."""
    return tensor.numel() * tensor.element_size()
