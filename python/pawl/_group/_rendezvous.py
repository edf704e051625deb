"""The place where the ranks of a job meet: torch's variables, derived from the launcher's.

torchrun and `pawl run` set torch's own. mpirun and Slurm do not; docs/smddp.md has the table.
"""

from __future__ import annotations

import os
import re
import socket
import zlib
from typing import Any

from pawl import _core
from pawl.errors import error

_PORTS = range(20000, 29000)  # excludes torch's 29500, and the ports that the kernel hands out
_SERVER_PORT = "7592"  # port of SMDDP's servers


def set_variables() -> None:
    """Sets the variables that ``init_process_group`` reads, RANK to MASTER_PORT,
    unless they are set.

    Does nothing in a process that no launcher started: it may start ranks of its own. Raises
    PawlError if nothing says where rank 0 is; the variables of ranks are set by then.
    """
    env = _core.env()
    if env["source"] == "none":
        return
    _set("RANK", env["rank"])
    _set("WORLD_SIZE", env["world"])
    _set("LOCAL_RANK", env["local_rank"])
    _set("LOCAL_WORLD_SIZE", env["local_world"])
    _set("GROUP_RANK", env["node_rank"])
    _set("GROUP_WORLD_SIZE", env["nodes"])
    if not (_get("MASTER_ADDR") and _get("MASTER_PORT")):
        _set_master(env)


def _get(name: str) -> str:
    return os.environ.get(name, "")


def _set(name: str, value: object) -> None:
    if not _get(name):  # an empty variable counts as unset, as everywhere
        os.environ[name] = str(value)


def _set_master(env: dict[str, Any]) -> None:
    source = env["source"]
    if _get("SMDATAPARALLEL_SERVER_ADDR"):
        _set("MASTER_ADDR", _get("SMDATAPARALLEL_SERVER_ADDR"))
        _set("MASTER_PORT", _get("SMDATAPARALLEL_SERVER_PORT") or _SERVER_PORT)
    elif source == "slurm":
        _set("MASTER_PORT", _port(f"{_get('SLURM_JOB_ID')}.{_get('SLURM_STEP_ID')}"))
        _set_address(env, _slurm_host())
    elif source == "openmpi":
        _set("MASTER_PORT", _port(_get("PMIX_NAMESPACE")))
        _set_address(env, _mpirun_address())
    else:
        _set_address(env, "")


def _port(job: str) -> int:
    """A port that is the same for all ranks, which cannot ask each other yet; other
    jobs mostly get others.
    """
    return _PORTS[zlib.crc32(job.encode()) % len(_PORTS)]


def _set_address(env: dict[str, Any], address: str) -> None:
    """Sets the address. ``address``: rank 0's likely host, if the ranks are not all on one host."""
    if _get("MASTER_ADDR"):
        return
    if env["source"] in ("slurm", "openmpi") and env["nodes"] == 1:
        address = "127.0.0.1"
    if not address:
        raise error(
            "PAWL_ENOENT",
            f"rendezvous: the variables of {env['source']} do not say where rank 0 is: set "
            "MASTER_ADDR to its host, and MASTER_PORT",
        )
    if env["rank"] == 0 and not _is_own(address):
        raise error(
            "PAWL_ENOENT",
            f"rendezvous: rank 0 is not at {address}, as the variables of {env['source']} have "
            "it: set MASTER_ADDR to its host",
        )
    _set("MASTER_ADDR", address)


def _slurm_host() -> str:
    """The step's first host, which has rank 0; where its name is unknown, srun's own host."""
    first = _first_host(_get("SLURM_STEP_NODELIST") or _get("SLURM_JOB_NODELIST"))
    return first if first and _addresses(first) else _get("SLURM_LAUNCH_NODE_IPADDR")


def _first_host(hosts: str) -> str:
    """The first name of a list of hosts: rack1n07 of "rack[1-2]n[07-09,12],login"."""
    first = re.match(r"([^,[]|\[[^]]*\])*", hosts)
    return re.sub(r"\[(\d+)[^]]*\]", r"\1", first[0]) if first else ""


def _mpirun_address() -> str:
    """The address of mpirun itself, which by default starts rank 0 on its own host."""
    found = re.search(r"tcp://([\d.]+)", _get("OMPI_MCA_orte_hnp_uri"))
    return found[1] if found else ""


def _addresses(host: str) -> list[Any]:
    try:
        return socket.getaddrinfo(host, 0, type=socket.SOCK_DGRAM)
    except OSError:
        return []


def _is_own(host: str) -> bool:
    """Whether host is an address of this host, or the name of one."""
    for family, kind, _, _, at in _addresses(host):
        with socket.socket(family, kind) as probe:
            try:
                probe.bind(at)
                return True
            except OSError:
                continue
    return False
