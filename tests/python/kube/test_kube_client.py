"""The client of the engine k8s in a process of its own, on the stand-in and on a real API server,
which is killed while it works."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kube
import program
import waits

MAPS = "/api/v1/namespaces/default/configmaps"
ALL = "/api/v1/configmaps"
KILLS = 20


def make_map(name: str, value: str = "") -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": {"value": value}}


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kube.Real]:
    with kube.real(tmp_path_factory.mktemp("kube")) as running:
        yield running


def check_works(api: kube.Api) -> None:
    """Requests are answered, and what a watch has reported is what there is."""
    with kube.probe(api.kubeconfig) as probe:
        probe.watch(ALL)
        probe.wait_until(lambda: probe.lists[ALL] == 1, "all is listed")
        made = probe.ask("POST", MAPS, make_map("a", "1"))
        assert (made["code"], made["status"]) == ("PAWL_OK", 201)
        again = probe.ask("POST", MAPS, make_map("a"))
        assert (again["code"], again["reason"]) == ("PAWL_EEXIST", "AlreadyExists")
        assert f"POST {MAPS}: 409: " in again["why"]
        probe.ask("PATCH", f"{MAPS}/a", {"data": {"value": "2"}})
        probe.wait_until(
            lambda: probe.known[ALL].get("a", {}).get("data") == {"value": "2"}, "it is seen"
        )
        stale = made["body"] | {"data": {"value": "3"}}
        assert probe.ask("PUT", f"{MAPS}/a", stale)["code"] == "PAWL_EBUSY"
        assert probe.ask("DELETE", f"{MAPS}/a")["code"] == "PAWL_OK"
        assert probe.ask("GET", f"{MAPS}/a")["code"] == "PAWL_ENOENT"
        probe.wait_until(lambda: "a" not in probe.known[ALL], "it is gone")
        assert probe.failures == []


def test_the_client_works(tmp_path: Path) -> None:
    with kube.stand_in(tmp_path) as api:
        check_works(api)


@pytest.mark.slow
def test_the_client_works_with_a_real_server(real: kube.Real) -> None:
    check_works(real)


@pytest.mark.slow
def test_who_has_no_rights_is_told_by_the_servers_own_words(real: kube.Real) -> None:
    config = real.kubeconfig.with_name("user.kubeconfig")
    with kube.probe(config) as probe:
        answer = probe.ask("GET", f"{MAPS}/a")
        assert (answer["code"], answer["status"]) == ("PAWL_EINVAL", 403)
        assert 'User "somebody" cannot get resource "configmaps"' in answer["why"]
        probe.watch(ALL)
        probe.wait_until(lambda: probe.failures, "the watch is refused")
        assert 'User "somebody" cannot list resource "configmaps"' in probe.failures[0]


@pytest.mark.slow
def test_a_server_that_is_killed_again_and_again_loses_nothing(real: kube.Real) -> None:
    """What the client wrote with patience is there, once; what its watch has reported is what the
    server has."""
    rng = random.Random(int(os.environ["PAWL_TEST_SEED"]))
    with kube.probe(real.kubeconfig) as probe:
        probe.watch(ALL)
        probe.wait_until(lambda: probe.lists[ALL] >= 1, "all is listed")
        for kill in range(KILLS):
            for i in range(5):
                probe.send("POST", MAPS, make_map(f"k{kill}-{i}", str(kill)), patience_s=300)
            waits.any_moment(rng, 0, 0.2)
            real.order("kill")
            probe.send("DELETE", f"{MAPS}/k{kill - 1}-0", patience_s=300)
            waits.any_moment(rng, 0, 0.5)
            real.order("start")
            sent = 6 * (kill + 1)
            probe.wait_until(lambda sent=sent: len(probe.answers) == sent, "all is answered")
        program.wait_until(real.is_ready, "the server answers")
        listed = real.ask("GET", ALL).body["items"]
        wanted = {item["metadata"]["name"]: item["metadata"]["uid"] for item in listed}
        expected = {f"k{kill}-{i}" for kill in range(KILLS) for i in range(5)}
        expected -= {f"k{kill}-0" for kill in range(KILLS - 1)}
        assert {name for name in wanted if name.startswith("k") and "-" in name} >= expected

        def known() -> dict[str, str]:
            found = probe.known[ALL].items()
            return {name: item["metadata"]["uid"] for name, item in found}

        probe.wait_until(lambda: known() == wanted, "the watch knows what there is")
        codes = {answer["code"] for answer in probe.answers}
        # A POST whose answer was lost finds its object; a DELETE finds none.
        assert codes <= {"PAWL_OK", "PAWL_EEXIST", "PAWL_ENOENT"}
