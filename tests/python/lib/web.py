"""Talks HTTP to a scheduler of the tests, sending each request exactly as given."""

from __future__ import annotations

import http.client
import json
import re
import socket
import ssl
import subprocess
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest

import program
from cluster import Cluster

TOKEN = "a token of the tests, long enough"


def write_certificate(folder: Path, *names: str) -> None:
    """Writes cert.pem, key.pem and token to a folder. names: "IP:127.0.0.1", for example."""
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
               "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=localhost",
               "-addext", f"subjectAltName={','.join(names)}", "-keyout", folder / "key.pem",
               "-out", folder / "cert.pem"]  # fmt: skip
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=program.LIMIT_S)
    except FileNotFoundError:
        pytest.skip("openssl, which makes a certificate, is not there")
    (folder / "token").touch(0o600)
    (folder / "token").write_text(TOKEN + "\n")


def secure(tls: Path, *addresses: str) -> tuple[str, ...]:
    """Returns the options of a scheduler at these addresses, with the files of such a folder."""
    options = [word for address in addresses for word in ("--http", address)]
    options += ["--http-token", f"{tls}/token", "--http-cert", f"{tls}/cert.pem"]
    return (*options, "--http-key", f"{tls}/key.pem")


class Answer(NamedTuple):
    code: int
    text: str
    headers: dict[str, str]

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def error(self) -> str:
        return str(self.json["error"])


class Web:
    """Sends requests to one of the URLs of the scheduler."""

    def __init__(self, ours: Cluster, index: int = 0, context: ssl.SSLContext | None = None):
        self.url = (ours.root / "http").read_text().splitlines()[index]
        self.context = context
        where = urlsplit(self.url)
        assert where.port is not None
        self.address = ("127.0.0.1" if where.hostname == "0.0.0.0" else where.hostname, where.port)

    def connect(self) -> http.client.HTTPConnection:
        if self.context is not None:
            return http.client.HTTPSConnection(
                *self.address, timeout=program.LIMIT_S, context=self.context
            )
        return http.client.HTTPConnection(*self.address, timeout=program.LIMIT_S)

    def ask(
        self, method: str, path: str, body: Any = None, token: str | None = None, **headers: str
    ) -> Answer:
        """Sends a request. ``body``: bytes, an iterable of them (chunks), or an object to send as
        JSON."""
        if body is not None and not isinstance(body, bytes) and not hasattr(body, "__next__"):
            body = json.dumps(body).encode()
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        connection = self.connect()
        try:
            connection.request(
                method, path, body, headers, encode_chunked=hasattr(body, "__next__")
            )
            found = connection.getresponse()
            text = found.read().decode()
            return Answer(found.status, text, {k.lower(): v for k, v in found.getheaders()})
        finally:
            connection.close()

    def get(self, path: str, token: str | None = None) -> Answer:
        return self.ask("GET", path, token=token)

    def raw(self, text: bytes, whole: bool = False) -> bytes:
        """Returns all bytes until the connection is closed. ``whole``: this side sends nothing
        more."""
        with socket.create_connection(self.address, timeout=program.LIMIT_S) as connection:
            connection.sendall(text)
            if whole:
                connection.shutdown(socket.SHUT_WR)
            parts = []
            while part := connection.recv(65536):
                parts.append(part)
            return b"".join(parts)

    def metrics(self, token: str | None = None) -> dict[str, float]:
        """Returns the metrics by name and labels, as the text has them; checks that the text is
        well-formed."""
        answer = self.get("/metrics", token)
        assert answer.code == 200, answer
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        return parse_metrics(answer.text)


SAMPLE = re.compile(r'([a-z_]+)(\{([a-z_]+="(\\.|[^"\\\n])*",?)*\})? (\S+)')
ENDINGS = {"histogram": ("_bucket", "_sum", "_count"), "summary": ("_sum", "_count")}


def parse_metrics(text: str) -> dict[str, float]:
    """Parses the text format 0.0.4: each family once, after its HELP and TYPE, no line twice."""
    found: dict[str, float] = {}
    seen: set[str] = set()
    name = kind = ""
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# HELP "):
            name = line.split()[2]
            assert name not in seen and len(line.split()) > 3, line
            seen.add(name)
        elif line.startswith("# TYPE "):
            assert line.split()[2] == name, line
            kind = line.split()[3]
            assert kind in ("counter", "gauge", "summary", "histogram"), line
        else:
            sample = SAMPLE.fullmatch(line)
            assert sample is not None, line
            assert sample[1] in [name + ending for ending in ENDINGS.get(kind, ("",))], line
            assert line.rpartition(" ")[0] not in found, line
            found[line.rpartition(" ")[0]] = float(sample[5])
    return found
