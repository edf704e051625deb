"""The place where the ranks of a job meet, by the variables of each launcher."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

import pytest

import program
from conftest import real_core
from pawl import PawlError
from pawl._group import _rendezvous

pytestmark = pytest.mark.skipif(real_core is None, reason="pawl._core is not built here")

SLURM = {
    "SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_LOCALID": "1", "SLURM_NODEID": "1",
    "SLURM_JOB_NUM_NODES": "2", "SLURM_TASKS_PER_NODE": "2(x2)", "SLURM_JOB_ID": "77",
    "SLURM_STEP_ID": "0", "SLURM_LAUNCH_NODE_IPADDR": "10.0.0.9",
}  # fmt: skip
OPENMPI = {
    "OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "PMIX_NAMESPACE": "336330753",
    "OMPI_MCA_orte_hnp_uri": "336330752.0;tcp://10.1.2.3,172.17.0.1:4940;tcp6://[fd00::2]:5932",
}  # fmt: skip
OPENMPI_ONE = {**OPENMPI, "OMPI_COMM_WORLD_LOCAL_RANK": "3", "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}
SERVER = {"SMDATAPARALLEL_SERVER_ADDR": "algo-1"}
TORCH = {"RANK": "3", "WORLD_SIZE": "4"}

Environment = Callable[[dict[str, str]], dict[str, str]]


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Environment:
    """Sets the variables of a launcher. Returns torch's variables afterwards."""

    def resolve(variables: dict[str, str]) -> dict[str, str]:
        for name in {*os.environ} - {*program.clean_env()}:
            monkeypatch.delenv(name)
        for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK",
                     "GROUP_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):  # fmt: skip
            monkeypatch.setenv(name, "")  # recorded, so that it is restored
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        _rendezvous.set_variables()
        return dict(os.environ)

    return resolve


@pytest.mark.parametrize(
    ("variables", "address", "port"),
    [
        (TORCH | {"MASTER_ADDR": "a", "MASTER_PORT": "5"}, "a", "5"),
        (SLURM | {"MASTER_ADDR": "a", "MASTER_PORT": "5"}, "a", "5"),
        (SLURM | {"SLURM_STEP_NODELIST": "localhost,n2"}, "localhost", None),
        (SLURM | {"SLURM_JOB_NODELIST": "localhost,n2"}, "localhost", None),
        (SLURM | {"SLURM_JOB_NODELIST": "nobody[1-2].invalid"}, "10.0.0.9", None),
        (SLURM | {"SLURM_JOB_NUM_NODES": "1", "SLURM_NODEID": "0",
                  "SLURM_TASKS_PER_NODE": "4"}, "127.0.0.1", None),
        (OPENMPI, "10.1.2.3", None),
        (OPENMPI_ONE, "127.0.0.1", None),
        (OPENMPI | SERVER, "algo-1", "7592"),
        (OPENMPI | SERVER | {"SMDATAPARALLEL_SERVER_PORT": "99"}, "algo-1", "99"),
        (OPENMPI | SERVER | {"MASTER_ADDR": "a"}, "a", "7592"),
    ],
)  # fmt: skip
def test_meeting_places(
    environment: Environment, variables: dict[str, str], address: str, port: str | None
) -> None:
    found = environment(variables)
    assert found["MASTER_ADDR"] == address
    if port is not None:
        assert found["MASTER_PORT"] == port
    else:
        assert 20000 <= int(found["MASTER_PORT"]) < 29000


@pytest.mark.parametrize(
    ("hosts", "first"),
    [
        ("n1", "n1"),
        ("n1,n2", "n1"),
        ("n[1-4]", "n1"),
        ("rack[1-2]n[07-09,12],login", "rack1n07"),
        ("gpu-a[12,14]-x,n[1-2]", "gpu-a12-x"),
        ("", ""),
    ],
)
def test_first_host_of_slurm(hosts: str, first: str) -> None:
    assert _rendezvous._first_host(hosts) == first


def test_ranks_of_slurm(environment: Environment) -> None:
    found = environment(SLURM)
    names = "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE"
    assert [found[name] for name in names] == ["3", "4", "1", "2", "1", "2"]


def test_ports_are_of_jobs_and_steps(environment: Environment) -> None:
    def port(**more: str) -> str:
        return environment(SLURM | more)["MASTER_PORT"]

    assert port() == port(SLURM_PROCID="0", SLURM_LOCALID="0", SLURM_NODEID="0", MASTER_ADDR="a")
    assert len({port(), port(SLURM_JOB_ID="78"), port(SLURM_STEP_ID="1")}) == 3


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        (TORCH, "torchrun do not say where rank 0 is: set MASTER_ADDR"),
        (SLURM | {"SLURM_LAUNCH_NODE_IPADDR": ""}, "slurm do not say"),
        (OPENMPI | {"OMPI_MCA_orte_hnp_uri": ""}, "openmpi do not say"),
        (SLURM | {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0"},
         "rank 0 is not at 10.0.0.9, as the variables of slurm have it"),
    ],
)  # fmt: skip
def test_no_meeting_place(environment: Environment, variables: dict[str, str], text: str) -> None:
    with pytest.raises(PawlError, match=re.escape(text)):
        environment(variables)
