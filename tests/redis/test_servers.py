"""The servers that the other tests lean on."""

from __future__ import annotations

from tests.redis.servers import Server


def test_the_server_is_ours_and_empty(server: Server) -> None:
    with server.client() as client:
        assert client.dbsize() == 0
        assert client.info("server")["tcp_port"] == server.port
        client.set("left", "over")


def test_each_test_finds_it_empty(server: Server) -> None:
    with server.client() as client:
        assert client.get("left") is None
