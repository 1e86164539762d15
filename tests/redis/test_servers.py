"""The servers that the other tests lean on."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from tests.redis.sentinel_servers import Sentinels
from tests.redis.servers import Server


def test_the_server_is_ours_and_empty(server: Server) -> None:
    with server.client() as client:
        assert client.dbsize() == 0
        assert client.info("server")["tcp_port"] == server.port
        client.set("left", "over")


def test_each_test_finds_it_empty(server: Server) -> None:
    with server.client() as client:
        assert client.get("left") is None


def test_a_failover_that_the_sentinels_drop_is_asked_for_again(trio: Sentinels) -> None:
    replica, told = trio.replica(), trio.sentinels[0].client().pubsub()
    told.psubscribe("-failover-abort-*")
    replica.pause()  # it is not promoted in time
    with ThreadPoolExecutor() as pool:
        asked = pool.submit(trio.fail_over)
        while (event := told.get_message(timeout=60)) and event["type"] == "psubscribe":
            pass
        told.close()
        replica.resume()
        asked.result()
    assert event, "no failover was dropped"
    assert trio.primary() is replica
