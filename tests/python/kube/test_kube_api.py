"""What the engine k8s needs of an API server, held against the stand-in of the tests, and against a
real server where there is one: so that what tests see of the one is true of the other."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

import kube

MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
SERVERS = ["stand-in", pytest.param("real", marks=pytest.mark.slow)]


@pytest.fixture(scope="module", params=SERVERS)
def api(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("kube")
    run = kube.real if request.param == "real" else kube.stand_in
    with contextlib.ExitStack() as stack:
        yield stack.enter_context(run(folder))


def make_map(name: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {"of": name[0]}}, "data": data}


def make_pod(name: str) -> dict[str, Any]:
    container = {"name": "main", "image": "none"}
    return {"metadata": {"name": name}, "spec": {"containers": [container]}}


def test_a_made_object_is_there_once(api: kube.Api) -> None:
    made = api.ask("POST", MAPS, make_map("once", a="1"))
    assert made.status == 201
    assert made.body["metadata"]["uid"] and int(made.version) > 0
    assert made.body["metadata"]["namespace"] == "default"
    again = api.ask("POST", MAPS, make_map("once"))
    assert (again.status, again.reason) == (409, "AlreadyExists")
    assert again.body["kind"] == "Status" and '"once" already exists' in again.body["message"]
    read = api.ask("GET", f"{MAPS}/once")
    assert (read.status, read.body["data"]) == (200, {"a": "1"})


def test_an_object_without_a_name_is_refused(api: kube.Api) -> None:
    answer = api.ask("POST", MAPS, {"data": {}})
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert "metadata.name" in answer.body["message"] or "name" in answer.body["message"]


def test_what_is_not_there_is_not_found(api: kube.Api) -> None:
    for method, body in (
        ("GET", None),
        ("DELETE", None),
        ("PATCH", {"data": {"a": "1"}}),
        ("PUT", make_map("missing")),
    ):
        answer = api.ask(method, f"{MAPS}/missing", body)
        assert (answer.status, answer.reason) == (404, "NotFound"), method
        assert '"missing" not found' in answer.body["message"]


def test_a_body_that_is_no_json_is_refused(api: kube.Api) -> None:
    answer = api.ask("POST", MAPS, b"{")
    assert (answer.status, answer.reason) == (400, "BadRequest")


def test_a_path_that_leads_nowhere_is_not_found(api: kube.Api) -> None:
    assert api.ask("GET", "/nowhere/at/all").status == 404


def test_who_writes_what_has_changed_meanwhile_is_told(api: kube.Api) -> None:
    lease = api.ask("POST", LEASES, {"metadata": {"name": "l"}, "spec": {"holderIdentity": "a"}})
    taken = api.ask("PUT", f"{LEASES}/l", lease.body | {"spec": {"holderIdentity": "b"}})
    assert taken.status == 200 and int(taken.version) > int(lease.version)
    late = api.ask("PUT", f"{LEASES}/l", lease.body | {"spec": {"holderIdentity": "c"}})
    assert (late.status, late.reason) == (409, "Conflict")
    metadata = {"resourceVersion": lease.version}
    late = api.ask("PATCH", f"{LEASES}/l", {"metadata": metadata, "spec": {"holderIdentity": "c"}})
    assert (late.status, late.reason) == (409, "Conflict")
    read = api.ask("GET", f"{LEASES}/l")
    assert (read.body["spec"], read.version) == ({"holderIdentity": "b"}, taken.version)
    assert read.body["metadata"]["uid"] == lease.body["metadata"]["uid"]


def test_a_merge_patch_adds_changes_and_removes(api: kube.Api) -> None:
    made = api.ask("POST", MAPS, make_map("merged", a="1", b="2"))
    data = {"data": {"a": None, "b": "3", "c": "4"}}
    patched = api.ask("PATCH", f"{MAPS}/merged", data)
    assert (patched.status, patched.body["data"]) == (200, {"b": "3", "c": "4"})
    assert int(patched.version) > int(made.version)
    assert patched.body["metadata"]["labels"] == {"of": "m"}
    again = api.ask("PATCH", f"{MAPS}/merged", data)
    assert again.version == patched.version  # nothing was changed


def test_status_is_written_by_itself(api: kube.Api) -> None:
    assert api.ask("POST", PODS, make_pod("p")).status == 201
    both = {"status": {"phase": "Running"}, "metadata": {"labels": {"x": "y"}}}
    answer = api.ask("PATCH", f"{PODS}/p", both)
    assert answer.body.get("status", {}).get("phase") != "Running"
    assert answer.body["metadata"]["labels"] == {"x": "y"}
    spec = {"containers": [{"name": "main", "image": "other"}]}
    answer = api.ask("PATCH", f"{PODS}/p/status", {"status": {"phase": "Running"}, "spec": spec})
    assert (answer.status, answer.body["status"]["phase"]) == (200, "Running")
    assert answer.body["spec"]["containers"][0]["image"] == "none"


def test_what_is_removed_is_gone(api: kube.Api) -> None:
    api.ask("POST", MAPS, make_map("removed"))
    assert api.ask("DELETE", f"{MAPS}/removed").status == 200
    assert api.ask("GET", f"{MAPS}/removed").status == 404
    assert api.ask("POST", MAPS, make_map("removed")).status == 201  # the name is free again


def names(answer: kube.Answer) -> list[str]:
    return sorted(item["metadata"]["name"] for item in answer.body["items"])


def test_a_list_comes_in_pages(api: kube.Api) -> None:
    wanted = [f"q{i}" for i in range(7)]
    for name in wanted:
        assert api.ask("POST", MAPS, make_map(name)).status == 201
    whole = api.ask("GET", MAPS, labelSelector="of=q")
    assert names(whole) == wanted
    assert "continue" not in whole.body["metadata"] or not whole.body["metadata"]["continue"]
    page = api.ask("GET", MAPS, labelSelector="of=q", limit=3)
    seen, version = names(page), page.version
    while page.body["metadata"].get("continue"):
        token = page.body["metadata"]["continue"]
        page = api.ask("GET", MAPS, **{"labelSelector": "of=q", "limit": 3, "continue": token})
        assert page.version == version
        seen += names(page)
    assert sorted(seen) == wanted
    bad = api.ask("GET", MAPS, **{"limit": 3, "continue": "nonsense"})
    assert (bad.status, bad.reason) == (400, "BadRequest")


def test_pages_of_a_list_that_is_too_old_have_expired(api: kube.Api) -> None:
    for name in ("r1", "r2", "r3"):
        api.ask("POST", MAPS, make_map(name))
    token = api.ask("GET", MAPS, labelSelector="of=r", limit=1).body["metadata"]["continue"]
    api.ask("POST", MAPS, make_map("r4"))
    api.compact()
    late = api.ask("GET", MAPS, **{"labelSelector": "of=r", "limit": 1, "continue": token})
    assert (late.status, late.reason) == (410, "Expired")


def test_a_watch_tells_of_each_change(api: kube.Api) -> None:
    begin = api.ask("GET", MAPS).version
    api.ask("POST", MAPS, make_map("w1", a="1"))
    api.ask("POST", MAPS, make_map("x1"))  # another label: not seen
    with api.watch(MAPS, begin, labelSelector="of=w") as changes:
        added = next(changes)
        assert (added["type"], added["object"]["data"]) == ("ADDED", {"a": "1"})
        changed = api.ask("PATCH", f"{MAPS}/w1", {"data": {"a": "2"}})
        modified = next(changes)
        assert (modified["type"], modified["object"]["data"]) == ("MODIFIED", {"a": "2"})
        assert modified["object"]["metadata"]["resourceVersion"] == changed.version
        api.ask("DELETE", f"{MAPS}/w1")
        deleted = next(changes)
        assert (deleted["type"], deleted["object"]["data"]) == ("DELETED", {"a": "2"})
        assert int(deleted["object"]["metadata"]["resourceVersion"]) > int(changed.version)


def test_a_watch_from_too_long_ago_ends_with_an_error(api: kube.Api) -> None:
    api.ask("POST", MAPS, make_map("y1"))
    api.forget()
    with api.watch(MAPS, "1") as changes:
        (error,) = changes  # the status is 200 all the same
    assert (error["type"], error["object"]["code"]) == ("ERROR", 410)
    assert error["object"]["reason"] == "Expired"
