"""The lab's S3 server is a real one, asks for signatures, and is gone afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nearcache.errors import LabError
from nearcache.lab.experiments.objects.arm import ensure_bucket
from nearcache.lab.experiments.objects.boxes import s3_client
from nearcache.lab.servers import Running, ServerMissing, s3
from nearcache.lab.servers.s3 import PRODUCTS, Place
from tests.needs import need_package

from .private_servers import need_server, some_servers

need_package("boto3")


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    need_server("s3")
    with some_servers() as servers:
        yield servers.start("s3")


@pytest.fixture
def client(running: Running) -> Any:
    ensure_bucket(running.places)
    return s3_client(running.places, port_of(running))


def port_of(running: Running) -> int:
    return int(running.places["s3_endpoint"].rpartition(":")[2])


def test_it_says_which_it_is(running: Running) -> None:
    product, _, version = running.version.partition(" ")
    assert product in PRODUCTS
    assert any(character.isdigit() for character in version)


def test_it_keeps_an_object_and_forgets_it(running: Running, client: Any) -> None:
    bucket = running.places["s3_bucket"]
    client.put_object(Bucket=bucket, Key="some", Body=b"thing")
    assert client.get_object(Bucket=bucket, Key="some")["Body"].read() == b"thing"
    client.delete_object(Bucket=bucket, Key="some")
    with pytest.raises(client.exceptions.NoSuchKey):
        client.get_object(Bucket=bucket, Key="some")


def test_a_wrong_key_is_refused(running: Running, client: Any) -> None:
    stranger = s3_client({**running.places, "s3_secret_key": "0" * 64}, port_of(running))
    with pytest.raises(client.exceptions.ClientError, match="SignatureDoesNotMatch"):
        stranger.list_objects_v2(Bucket=running.places["s3_bucket"])


def test_connections_stay_open(running: Running, client: Any) -> None:
    head = client.head_bucket(Bucket=running.places["s3_bucket"])
    assert head["ResponseMetadata"]["HTTPHeaders"].get("connection", "") != "close"


@pytest.mark.parametrize("product", PRODUCTS)
def test_every_product_is_told_to_stay_on_this_host(product: str, tmp_path: Path) -> None:
    place = Place(45678, "GK0123", "secret-of-this-run", tmp_path)
    start = PRODUCTS[product](place)
    told = " ".join([*start.arguments, *start.env.values()])
    told += "".join(file.read_text() for file in tmp_path.iterdir())
    assert "127.0.0.1" in told
    assert "45678" in told
    assert "secret-of-this-run" in told
    assert "0.0.0.0" not in told


def test_a_program_of_another_name_is_refused(tmp_path: Path) -> None:
    program = tmp_path / "ceph"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    with some_servers(s3=str(program)) as servers, pytest.raises(LabError, match="is none of"):
        servers.start("s3")


def test_an_rclone_that_cannot_serve_s3_counts_as_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    old = tmp_path / "rclone"
    old.write_text("#!/bin/sh\necho rclone v1.60.1-DEV\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(s3, "BUILT_HERE", tmp_path / "none")
    with some_servers() as servers, pytest.raises(ServerMissing, match="versitygw, minio"):
        servers.start("s3")
