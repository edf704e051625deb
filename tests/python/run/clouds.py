"""Metadata services of AWS, GCP and Azure, as far as they say that a machine will be taken away.

Stand-ins: they answer as the clouds' documents say. No real cloud was asked.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar
from urllib.parse import parse_qs, urlsplit

NAME = "spot_3"  # the machine of the tests, on Azure
TOKEN = "AQAEAFake=="


class Cloud:
    """A service, of which each method may be called at any time."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.action: dict[str, str] | None = None  # AWS
        self.rebalance: dict[str, str] | None = None
        self.preempted = False  # GCP
        self.version = 1
        self.events: list[dict[str, object]] = []  # Azure
        self.requests: list[str] = []
        self.url = ""

    def aws_terminates(self, left_s: float) -> None:
        self.action = {"action": "terminate", "time": _iso(left_s)}

    def aws_advises(self) -> None:
        self.rebalance = {"noticeTime": _iso(0)}

    def gcp_preempts(self) -> None:
        with self.changed:
            self.preempted = True
            self.version += 1
            self.changed.notify_all()

    def azure_plans(self, what: str, left_s: float, *names: str) -> None:
        event = {
            "EventId": f"f020ba2e-3bc0-4c40-a10b-{len(self.events):012d}",
            "EventType": what,
            "ResourceType": "VirtualMachine",
            "Resources": list(names),
            "EventStatus": "Scheduled",
            "NotBefore": formatdate(time.time() + left_s, usegmt=True),
        }
        self.events.append(event)


def _iso(left_s: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + left_s))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    cloud: ClassVar[Cloud]

    def answer(self, status: int, text: str = "", **headers: str) -> None:
        body = text.encode()
        with contextlib.suppress(ConnectionError):
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def do_PUT(self) -> None:
        self.cloud.requests.append(f"PUT {self.path}")
        lives = self.headers.get("X-aws-ec2-metadata-token-ttl-seconds")
        if self.path == "/latest/api/token" and lives == "21600":
            self.answer(200, TOKEN)
        else:
            self.answer(400)

    def do_POST(self) -> None:
        self.cloud.requests.append(f"POST {self.path}")
        self.answer(400)

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        self.cloud.requests.append(f"GET {self.path}")
        if url.path.startswith("/latest/meta-data/"):
            self.get_aws(url.path)
        elif url.path == "/computeMetadata/v1/instance/preempted":
            self.get_gcp(query)
        elif url.path.startswith("/metadata/"):
            self.get_azure(url.path, query)
        else:
            self.answer(404)

    def get_aws(self, path: str) -> None:
        cloud = self.cloud
        if self.headers.get("X-aws-ec2-metadata-token") != TOKEN:
            self.answer(401)
            return
        found = cloud.action if path.endswith("/spot/instance-action") else None
        found = cloud.rebalance if path.endswith("/recommendations/rebalance") else found
        self.answer(404) if found is None else self.answer(200, json.dumps(found))

    def get_gcp(self, query: dict[str, str]) -> None:
        cloud = self.cloud
        if self.headers.get("Metadata-Flavor") != "Google":
            self.answer(403)
            return
        with cloud.changed:
            if query.get("wait_for_change") == "true":
                cloud.changed.wait_for(
                    lambda: str(cloud.version) != query.get("last_etag"),
                    float(query["timeout_sec"]),
                )
            text, version = str(cloud.preempted).upper(), str(cloud.version)
        self.answer(200, text, Metadata_Flavor="Google", ETag=version)

    def get_azure(self, path: str, query: dict[str, str]) -> None:
        if self.headers.get("Metadata") != "true" or "api-version" not in query:
            self.answer(400)
        elif path == "/metadata/instance/compute/name" and query.get("format") == "text":
            self.answer(200, NAME)
        elif path == "/metadata/scheduledevents":
            events = self.cloud.events
            text = json.dumps({"DocumentIncarnation": len(events), "Events": events})
            self.answer(200, text)
        else:
            self.answer(404)

    def log_message(self, format: str, *args: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False


@contextlib.contextmanager
def cloud() -> Iterator[Cloud]:
    """Runs a service, at .url."""
    one = Cloud()
    handler = type("Handler", (_Handler,), {"cloud": one})
    with _Server(("127.0.0.1", 0), handler) as server:
        one.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield one
        finally:
            one.gcp_preempts()  # nobody waits any more
            server.shutdown()
            thread.join()
