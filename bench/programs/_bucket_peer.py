"""One object to or from a bucket by another client: awscrt, with checksums or not, or boto3.

`_bucket_peer.py CLIENT put|get URL BUCKET KEY FILE` prints one JSON object: seconds, and seconds of
CPU, without the start of the interpreter.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time

PART_BYTES = 16 << 20  # as Pawl's


def awscrt(verb: str, url: str, bucket: str, key: str, file: str, *, sums: bool = True) -> None:
    """sums: parts are uploaded with their CRC-32C, as Pawl's are."""
    import awscrt.auth
    import awscrt.http
    import awscrt.io
    import awscrt.s3

    host = url.partition("//")[2]
    group = awscrt.io.EventLoopGroup()
    bootstrap = awscrt.io.ClientBootstrap(group, awscrt.io.DefaultHostResolver(group))
    credentials = awscrt.auth.AwsCredentialsProvider.new_static(
        os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]
    )
    client = awscrt.s3.S3Client(
        bootstrap=bootstrap,
        region="us-east-1",
        signing_config=awscrt.s3.create_default_s3_signing_config(
            region="us-east-1", credential_provider=credentials
        ),
        tls_mode=awscrt.s3.S3RequestTlsMode.DISABLED,
        part_size=PART_BYTES,
    )
    headers = awscrt.http.HttpHeaders([("host", host)])
    put = verb == "put"
    if put:
        headers.add("Content-Length", str(os.path.getsize(file)))
    request = awscrt.http.HttpRequest("PUT" if put else "GET", f"/{bucket}/{key}", headers)
    kind = awscrt.s3.S3RequestType
    checksum = awscrt.s3.S3ChecksumConfig(
        algorithm=awscrt.s3.S3ChecksumAlgorithm.CRC32C,
        location=awscrt.s3.S3ChecksumLocation.TRAILER,
    )
    client.make_request(
        type=kind.PUT_OBJECT if put else kind.GET_OBJECT,
        request=request,
        checksum_config=checksum if put and sums else None,
        **({"send_filepath": file} if put else {"recv_filepath": file}),
    ).finished_future.result()


def unsummed(*args: str) -> None:
    awscrt(*args, sums=False)


def boto3(verb: str, url: str, bucket: str, key: str, file: str) -> None:
    """As it is by default: parts of 8 MiB, ten threads, CRC-32 behind each part."""
    import boto3 as sdk
    from boto3.s3.transfer import TransferConfig

    client = sdk.client("s3", endpoint_url=url)
    transfer = TransferConfig(preferred_transfer_client="classic")  # the other one is awscrt
    if verb == "put":
        client.upload_file(file, bucket, key, Config=transfer)
    else:
        client.download_file(bucket, key, file, Config=transfer)


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    client = {"awscrt": awscrt, "unsummed": unsummed, "boto3": boto3}[sys.argv[1]]
    __import__({"unsummed": "awscrt"}.get(sys.argv[1], sys.argv[1]))
    begun, begun_cpu = time.perf_counter(), cpu_s()
    client(*sys.argv[2:])
    print(json.dumps({"s": time.perf_counter() - begun, "cpu_s": cpu_s() - begun_cpu}))
