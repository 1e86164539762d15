"""TLS: who is trusted, and what is said when somebody is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nearcache import errors
from nearcache.engines.redis.target.location import parse_target
from nearcache.engines.redis.target.options import TargetOptions
from nearcache.engines.redis.target.target import Target
from nearcache.engines.redis.topology.cluster import Cluster
from nearcache.engines.redis.topology.standalone import Standalone
from nearcache.lab.servers import free_port
from tests.redis.askers import Plain
from tests.redis.servers import Certificates, Server, running, wait_for

Ask = Callable[[Any], Plain]


@pytest.fixture(scope="module")
def secure(redis_directory: Path, certificates: Certificates) -> Iterator[tuple[int, Server]]:
    number = free_port()
    with running(redis_directory, *certificates.options(number)) as server:
        yield number, server


def target_of(location: str, **kwargs: Any) -> Target:
    options = TargetOptions.parse({"connection_kwargs": kwargs} if kwargs else {})
    target = parse_target(location, options)
    return replace(target, connect_timeout_s=20.0, read_timeout_s=20.0)  # a slow host is no fault


def open_one(location: str, **kwargs: Any) -> Standalone:
    return Standalone(target_of(location, **kwargs))


def test_a_trusted_server(
    secure: tuple[int, Server], certificates: Certificates, asker: Ask
) -> None:
    for host in ("127.0.0.1", "localhost"):
        ask = asker(
            open_one(f"rediss://{host}:{secure[0]}", ssl_ca_certs=certificates.path("ca.crt"))
        )
        assert ask("SET", "key", host) == b"OK"
        assert secure[1].ask("GET", "key") == host
        assert ask.each(*[("GET", "key")] * 500) == [host.encode()] * 500


def test_large_values(secure: tuple[int, Server], certificates: Certificates, asker: Ask) -> None:
    location = f"rediss://localhost:{secure[0]}?ssl_ca_certs={certificates.path('ca.crt')}"
    ask = asker(open_one(location))
    value = bytes(range(256)) * 8192
    assert ask("SET", "key", value) == b"OK"
    assert ask("GET", "key") == value
    assert ask.each(*[("GET", "key")] * 5) == [value] * 5


def test_a_server_that_nobody_vouches_for(secure: tuple[int, Server], asker: Ask) -> None:
    ask = asker(open_one(f"rediss://localhost:{secure[0]}"))
    with pytest.raises(errors.ServerMisconfigured, match=r"not trusted.*ssl_ca_certs"):
        ask("GET", "key")
    ask = asker(open_one(f"rediss://localhost:{secure[0]}?ssl_cert_reqs=none"))
    assert ask("PING") == b"PONG"


def test_another_server_than_the_name_says(
    secure: tuple[int, Server], certificates: Certificates, asker: Ask
) -> None:
    files = {"ssl_ca_certs": certificates.path("ca.crt")}
    ask = asker(open_one(f"rediss://127.0.0.2:{secure[0]}", **files))
    with pytest.raises((errors.ServerMisconfigured, errors.ConnectionFailed)):
        ask("GET", "key")


def test_certificates_of_clients(
    redis_directory: Path, certificates: Certificates, asker: Ask
) -> None:
    number = free_port()
    more = (*certificates.options(number), "--tls-auth-clients", "yes")
    with running(redis_directory, *more):
        files = {"ssl_ca_certs": certificates.path("ca.crt")}
        ask = asker(open_one(f"rediss://localhost:{number}", **files))
        with pytest.raises((errors.ServerMisconfigured, errors.ConnectionFailed)):
            ask("GET", "key")
        files["ssl_certfile"] = certificates.path("client.crt")
        files["ssl_keyfile"] = certificates.path("client.key")
        ask = asker(open_one(f"rediss://localhost:{number}", **files))
        assert ask("PING") == b"PONG"
        ask.topology.client().ping()
        ask.topology.client().close()


@pytest.fixture(scope="module")
def secure_cluster(redis_directory: Path, certificates: Certificates) -> Iterator[int]:
    number = free_port()
    more = ("--cluster-enabled", "yes", "--cluster-port", str(free_port()), "--tls-cluster", "yes")
    file = ("--cluster-config-file", f"tls-{number}.conf")
    with running(redis_directory, *certificates.options(number), *more, *file) as node:
        node.ask("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        wait_for(lambda: "cluster_state:ok" in node.ask("CLUSTER", "INFO"), "a cluster of one")
        yield number


def test_a_cluster_over_tls(secure_cluster: int, certificates: Certificates, asker: Ask) -> None:
    files = {"ssl_ca_certs": certificates.path("ca.crt")}
    location = f"rediss+cluster://localhost:{secure_cluster}"
    ask = asker(Cluster(target_of(location, **files)))
    assert ask("SET", "key", "value") == b"OK"
    assert ask.each(("GET", "key"), ("GET", "none")) == [b"value", None]
    assert [line.name for line in ask.primaries()] == [f"localhost:{secure_cluster}"]
