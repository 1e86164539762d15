"""What writes is sent once, unless it certainly was not carried out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from nearcache.engines.redis.engine import RedisEngine
from nearcache.engines.redis.target.target import Address, Target
from nearcache.engines.redis.topology.standalone import Standalone
from nearcache.errors import ConnectionFailed
from tests.redis.askers import Plain
from tests.redis.proxies import proxy
from tests.redis.servers import Server, wait_for

Ask = Callable[[Any], Plain]
MAYBE = "may or may not have been carried out"


def made(asker: Ask, address: Address) -> Any:
    limits = {"connect_timeout_s": 20.0, "read_timeout_s": 20.0}
    topology = Standalone(Target(addresses=(address,), breaker_failures=0, **limits))  # type: ignore[arg-type]
    engine = RedisEngine(topology)
    engine.close = topology.close  # type: ignore[attr-defined]
    return asker(engine).run


def of_word(word: bytes, how: str) -> Callable[[bytes], str | None]:
    return lambda commands: how if b"\r\n%b\r\n" % word in commands else None


WRITES = [
    ("SET", "set", (b"k", b"old", None)),
    ("SET", "set_many", ([(b"k", b"old")], None)),
    ("UNLINK", "delete", (b"k",)),
    ("UNLINK", "delete_many", ([b"k"],)),
    ("PERSIST", "touch", (b"k", None)),
]


@pytest.mark.parametrize(("word", "method", "args"), WRITES)
def test_a_write_whose_reply_was_lost_does_not_undo_what_came_after_it(
    server: Server, asker: Ask, word: str, method: str, args: tuple[Any, ...]
) -> None:
    with proxy(server) as between, server.client() as other:
        run = made(asker, between.address)
        assert run("get", b"k") is None
        other.set("k", "first")
        between.cut = of_word(word.encode(), "after")
        # Somebody else's newer write, which a second SET, UNLINK or PERSIST would undo.
        between.carried_out = lambda: other.set("k", "newer", ex=1000)
        with pytest.raises(ConnectionFailed, match=MAYBE) as caught:
            run(method, *args)
        assert caught.value.uncertain
        between.cut = lambda commands: None
        assert run("get", b"k") == b"newer"
        assert other.ttl("k") > 0


@pytest.mark.parametrize(("word", "method", "args"), WRITES)
def test_nor_does_one_that_a_proxy_took_and_lost(
    server: Server, asker: Ask, word: str, method: str, args: tuple[Any, ...]
) -> None:
    """It was never carried out, which nobody here can know."""
    with proxy(server) as between, server.client() as other:
        run = made(asker, between.address)
        assert run("get", b"k") is None
        other.set("k", "there", ex=1000)
        between.cut = of_word(word.encode(), "before")
        with pytest.raises(ConnectionFailed, match=MAYBE):
            run(method, *args)
        between.cut = lambda commands: None
        assert run("get", b"k") == b"there"


def test_a_read_whose_reply_was_lost_is_asked_again(server: Server, asker: Ask) -> None:
    with proxy(server) as between, server.client() as other:
        run = made(asker, between.address)
        other.set("k", "v")
        cuts = iter(["after"])
        between.cut = lambda commands: next(cuts, None) if b"\r\nGET\r\n" in commands else None
        assert run("get", b"k") == b"v"


def test_an_idle_connection_that_the_server_ended_costs_nobody_a_write(
    server: Server, asker: Ask
) -> None:
    with server.client() as other:
        other.config_set("timeout", 1)
        run = made(asker, Address(path=server.path))
        try:
            for number in range(2):
                run("set", b"k", b"%d" % number, None)
                other.ping()
                wait_for(lambda: other.ping() and len(other.client_list()) == 1, "the idle end")
                if run.__self__.__class__ is not Plain:
                    run.__self__.runner.run(asyncio.sleep(0))
                assert run("get_and_set", b"k", b"next", None) == b"%d" % number
        finally:
            other.config_set("timeout", 0)


def test_a_restart_between_two_writes_costs_nobody_an_error(
    redis_directory: Any, asker: Ask
) -> None:
    number = Server(redis_directory)
    number.start()
    try:
        number.wait_ready()
        for address in (Address(path=number.path), Address(host="127.0.0.1", port=number.port)):
            run = made(asker, address)
            run("set", b"k", b"v", None)
            number.kill()
            number.start()
            number.wait_ready()
            run("set", b"k", b"v", None)
            assert run("get", b"k") == b"v"
    finally:
        number.kill()
