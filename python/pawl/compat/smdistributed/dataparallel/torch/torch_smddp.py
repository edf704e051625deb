"""SMDDP from 1.4 on: importing this lets torch know the backend "smddp", which is "pawl".

import smdistributed.dataparallel.torch.torch_smddp
torch.distributed.init_process_group(backend="smddp")
"""

from __future__ import annotations

import warnings
from typing import Any

import torch.distributed as dist

from pawl import PawlError
from pawl._group import _register, _rendezvous
from pawl.compat.smdistributed.dataparallel.torch import _device


def _create(options: Any, pg_options: Any) -> Any:
    if not dist.is_initialized():
        _device.pin()
    return _register.create(options, pg_options)


_register.register(_register.SMDDP, _create)
try:
    _rendezvous.set_variables()  # scripts read LOCAL_RANK, torch the others
except PawlError as reason:  # the script may name another place when it initializes
    warnings.warn(f"smddp: {reason}", stacklevel=2)
