"""A replica that asks again and again where the others are; AdaptDL's own package asks once.

Appends each answer, as JSON, to the file PAWL_TEST_DIR/asked.
"""

from __future__ import annotations

import json
import os
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

env = os.environ
GROUP = int(env["ADAPTDL_NUM_RESTARTS"])
WHERE = f"{env['ADAPTDL_SUPERVISOR_URL']}/%s/{env['ADAPTDL_JOB_ID']}"


def ask(request: str | urllib.request.Request) -> tuple[int, Any]:
    """Asks a URL. Returns the HTTP status (0: nobody answers) and the answer's text."""
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.loads(answer.read() or "null")
    except urllib.error.HTTPError as refused:
        return refused.code, None
    except OSError as failed:
        return 0, str(failed)


def discover(group: int, timeout_s: float) -> tuple[int, Any]:
    return ask(f"{WHERE % 'discover'}/{group}?timeout={timeout_s}")


def say(code: int, addresses: Any, before: int = 0) -> None:
    row = {
        "rank": int(env["ADAPTDL_REPLICA_RANK"]),
        "of": int(env["ADAPTDL_NUM_REPLICAS"]),
        "group": GROUP,
        "port": env["ADAPTDL_MASTER_PORT"],
        "nodes": env["SKYPILOT_NODE_IPS"].split(),
        "code": code,
        "addresses": addresses,
        "before": before,
        "at": time.monotonic(),
    }
    with open(f"{env['PAWL_TEST_DIR']}/asked", "a") as file:
        file.write(json.dumps(row) + "\n")


# The first answer comes once all replicas run; an answer of the start before is no longer given.
first = discover(GROUP, 60)
say(*first, before=discover(GROUP - 1, 0)[0] if GROUP > 0 else 0)
if len(sys.argv) > 1:
    body = Path(sys.argv[1]).read_bytes()
    put = urllib.request.Request(WHERE % "hints", data=body, method="PUT")
    print("TOLD", *ask(put), flush=True)
while True:
    time.sleep(0.1)  # pace
    say(*discover(GROUP, 0))
