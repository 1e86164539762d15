"""Claims of single flight: one owner, who may ask again, and nothing that stays behind."""

from __future__ import annotations

import asyncio

import pytest

from nearcache.base.clock import FakeClock
from nearcache.engines.contract import Engine
from tests.contract.conftest import scanned

ME, OTHER = 2**63 - 1, 1


def test_one_owner_at_a_time(engine: Engine) -> None:
    assert engine.claim(b"key", ME, 60_000)
    assert not engine.claim(b"key", OTHER, 60_000)
    engine.unclaim(b"key", ME)
    assert engine.claim(b"key", OTHER, 60_000)


def test_who_asks_again_has_it_still(engine: Engine) -> None:
    assert engine.claim(b"key", ME, 60_000)
    assert engine.claim(b"key", ME, 60_000)
    assert not engine.claim(b"key", OTHER, 60_000)


def test_nobody_gives_up_what_is_another_s(engine: Engine) -> None:
    assert engine.claim(b"key", ME, 60_000)
    engine.unclaim(b"key", OTHER)
    engine.unclaim(b"other", ME)
    assert not engine.claim(b"key", OTHER, 60_000)


def test_a_claim_is_over_when_its_time_ran_out(engine: Engine, clock: FakeClock) -> None:
    assert engine.claim(b"key", ME, 40)
    clock.advance_ms(40)
    assert engine.claim(b"key", OTHER, 60_000)
    engine.unclaim(b"key", ME)
    assert not engine.claim(b"key", ME, 60_000)


def test_asking_again_prolongs(engine: Engine, clock: FakeClock) -> None:
    assert engine.claim(b"key", ME, 40)
    assert engine.claim(b"key", ME, 60_000)
    clock.advance_ms(40)
    assert not engine.claim(b"key", OTHER, 60_000)


def test_claims_live_apart_from_keys_and_locks(engine: Engine) -> None:
    for key in (b"a:1", b"a:{b}", b"a:}{c"):
        engine.set(key, b"value", None)
        assert engine.claim(key, ME, 60_000)
        assert engine.lock_acquire(key, 60_000)
        assert engine.get(key) == b"value"
    assert len(scanned(engine, 100)) == 3
    assert engine.clear_matching(prefix=b"a:") == 3
    engine.clear()
    for key in (b"a:1", b"a:{b}", b"a:}{c"):
        assert not engine.claim(key, OTHER, 60_000)
        assert engine.lock_acquire(key, 60_000) is None


def test_nothing_is_left_of_a_thousand_claims(engine: Engine) -> None:
    for number in range(1000):
        key = b"key %d" % number
        assert engine.claim(key, number + 1, 60_000)
        engine.set(key, b"value", None)
        engine.unclaim(key, number + 1)
    assert len(engine) == 1000


@pytest.mark.parametrize("engine_name", ["redis", "redis-cluster"], indirect=True)
def test_the_twins_do_the_same(engine: Engine) -> None:
    twins: object = engine

    async def main() -> None:
        assert await twins.aclaim(b"key", ME, 60_000)  # type: ignore[attr-defined]
        assert not await twins.aclaim(b"key", OTHER, 60_000)  # type: ignore[attr-defined]
        await twins.aunclaim(b"key", ME)  # type: ignore[attr-defined]
        assert await twins.aclaim(b"key", OTHER, 60_000)  # type: ignore[attr-defined]

    asyncio.run(main())
