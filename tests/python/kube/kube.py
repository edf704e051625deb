"""API servers of Kubernetes for tests: the stand-in of the C tests, in a process, and a real one
with etcd (tests/lib/kube.sh)."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import ssl
import subprocess
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import program

_SCRIPT = Path(__file__).parents[2] / "lib/kube.sh"
_SKIPPED, _LATE = 77, 75
_CALL_S = 60
PATCH = {"Content-Type": "application/merge-patch+json"}


@dataclass(frozen=True)
class Answer:
    """What a server has answered to a request."""

    status: int
    body: Any

    @property
    def reason(self) -> str:
        """The API's word, of an answer that is no success."""
        return str(self.body["reason"])

    @property
    def version(self) -> str:
        return str(self.body["metadata"]["resourceVersion"])


class Api:
    """An API server that runs."""

    real = False

    def __init__(self, url: str, kubeconfig: Path, process: subprocess.Popen[str]) -> None:
        self.url = url
        self.kubeconfig = kubeconfig
        self._process = process
        self._headers: dict[str, str] = {}
        self._context: ssl.SSLContext | None = None

    def _open(self, method: str, path: str, body: Any, query: dict[str, Any]) -> Any:
        text = urllib.parse.urlencode(query)
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        headers = self._headers | {"Content-Type": "application/json"}
        headers |= PATCH if method == "PATCH" else {}
        request = urllib.request.Request(
            f"{self.url}{path}?{text}", data=data, headers=headers, method=method
        )
        return urllib.request.urlopen(request, timeout=_CALL_S, context=self._context)

    def ask(self, method: str, path: str, body: Any = None, **query: Any) -> Answer:
        """Sends a request. body: bytes, or what becomes JSON."""
        try:
            with self._open(method, path, body, query) as answer:
                return Answer(answer.status, json.load(answer))
        except urllib.error.HTTPError as error:
            text = error.read()
            with contextlib.suppress(ValueError):
                return Answer(error.code, json.loads(text))
            return Answer(error.code, text)

    @contextlib.contextmanager
    def watch(self, path: str, version: str, **query: Any) -> Iterator[Iterator[Any]]:
        """Yields the changes of a collection since a version, one by one."""
        query |= {"watch": "1", "resourceVersion": version}
        with self._open("GET", path, None, query) as answer:
            yield (json.loads(line) for line in answer)

    def order(self, command: str) -> None:
        """Gives the server's program a command."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "ok\n"

    def compact(self) -> None:
        """Makes the server forget all changes so far, as far as lists go."""
        self.order("compact")

    def forget(self) -> None:
        """Makes the server forget all changes so far."""
        self.compact()


class Real(Api):
    """kube-apiserver."""

    real = True

    def __init__(self, url: str, folder: Path, process: subprocess.Popen[str]) -> None:
        super().__init__(url, folder / "admin.kubeconfig", process)
        self._headers = {"Authorization": "Bearer admin-token"}
        self._context = ssl.create_default_context(cafile=str(folder / "certs/apiserver.crt"))

    def forget(self) -> None:
        super().forget()  # in etcd; the server keeps changes, too
        self.order("kill")
        self.order("start")
        program.wait_until(self.is_ready, "the server is ready")

    def is_ready(self) -> bool:
        """Returns whether it answers."""
        with contextlib.suppress(OSError):
            return self.ask("GET", "/api/v1/namespaces/default").status == 200
        return False


def _tests_program(name: str) -> Path:
    path = Path(os.environ.get("PAWL_TESTS_DIR", "build/gcc/tests")) / "lib" / name
    if not path.exists():
        pytest.skip(f"{path} is not built")
    return path


@contextlib.contextmanager
def stand_in(folder: Path) -> Iterator[Api]:
    """Runs the stand-in, with a kubeconfig in a folder; skips the test if it is not built."""
    with subprocess.Popen(
        [_tests_program("kube_api")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:  # the program ends with its standard input
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(
            "current-context: t\ncontexts: [{name: t, context: {cluster: t}}]\n"
            f"clusters: [{{name: t, cluster: {{server: '{url}'}}}}]\n"
        )
        yield Api(url, kubeconfig, process)


@contextlib.contextmanager
def real(folder: Path) -> Iterator[Real]:
    """Runs a real one with its state in a folder; skips the test where none was built."""
    with subprocess.Popen(
        ["bash", str(_SCRIPT), str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:  # the script ends when its standard input does
        assert process.stdout is not None
        said = process.stdout.readline().strip()
        if not said.startswith("ready "):
            said += process.stdout.read()
            status = process.wait()
            if status == _LATE:
                raise program.Late(said)
            (pytest.skip if status == _SKIPPED else pytest.fail)(said)
        yield Real(said.removeprefix("ready "), folder, process)


class Probe:
    """The client in C, in a process: tests/lib/kube_probe.c has its commands."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._lines: queue.Queue[Any] = queue.Queue()
        self._asked = 0
        threading.Thread(target=self._read, daemon=True).start()
        self.known: dict[str, dict[str, Any]] = {}  # path of a watch: objects by their name
        self.lists: dict[str, int] = {}  # path of a watch: how often all was listed
        self.failures: list[str] = []  # why a watch could not go on
        self.answers: list[Any] = []

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(json.loads(line))
        self._lines.put(None)

    def _command(self, **command: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()

    def watch(self, path: str) -> None:
        """Begins to watch a collection."""
        self.known[path] = {}
        self.lists[path] = 0
        self._command(watch=path)

    def send(self, verb: str, path: str, body: Any = None, patience_s: int = 0) -> None:
        """Sends a request, whose answer will be in ``answers``."""
        self._asked += 1
        self._command(ask=verb, path=path, body=body, patience_s=patience_s)

    def ask(self, verb: str, path: str, body: Any = None, patience_s: int = 0) -> Any:
        """Sends a request, and returns its answer."""
        self.send(verb, path, body, patience_s)
        self.wait_until(lambda: len(self.answers) == self._asked, f"{verb} {path} is answered")
        return self.answers[-1]

    def take(self) -> None:
        """Takes what has happened by now into account."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._take_one(self._lines.get_nowait())

    def _take_one(self, line: Any) -> None:
        assert line is not None, f"the client has ended: {self._process.wait()}"
        if "answer" in line:
            self.answers.append(line)
        elif line["event"] == "listed":
            self.lists[line["watch"]] += 1
        elif line["event"] == "failed":
            self.failures.append(line["why"])
        else:
            name = line["object"]["metadata"]["name"]
            known = self.known[line["watch"]]
            if line["event"] == "seen":
                known[name] = line["object"]
            else:
                assert known.pop(name, None) is not None, f"{name} is gone twice"

    def wait_until(self, true: Callable[[], object], what: str) -> None:
        """Polls until true() holds, taking into account what happens."""

        def look() -> object:
            self.take()
            return true()

        program.wait_until(look, what)


@contextlib.contextmanager
def probe(kubeconfig: Path) -> Iterator[Probe]:
    """Runs the client."""
    with subprocess.Popen(
        [_tests_program("kube_probe"), kubeconfig],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=program.clean_env(),
        text=True,
    ) as process:
        yield Probe(process)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(program.LIMIT_S) == 0
