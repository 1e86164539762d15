"""What a parent has under way or open at the moment of a fork stays the parent's alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nearcache.lab.servers import free_port
from tests.redis.servers import Server, running
from tests.redis.strangers import certificate

Run = Callable[..., str]
FORKS = pytest.mark.parametrize("fork", ["raw_fork", "os.fork"])


@FORKS
def test_tls(run: Run, tmp_path: Path, redis_directory: Path, fork: str) -> None:
    files, port = certificate(tmp_path), free_port()
    settings = {
        "BACKEND": "nearcache.backends.RedisCache",
        "LOCATION": f"rediss://127.0.0.1:{port}",
        "OPTIONS": {"SOCKET_TIMEOUT": 30, "ssl_ca_certs": str(files.cert)},
    }
    with running(redis_directory, "--tls-port", str(port), *files.server_arguments):
        run(
            settings,
            f"""
            cache = configured()
            fill(cache, 3)
            check_everything(cache, "parent", 5)
            before = cache.stats()["connects"]
            def child(worker):
                check_gets(cache, worker, 300)
                check_everything(cache, worker, 20)
            children = [in_child(lambda: child(worker), {fork}) for worker in (1, 2)]
            check_gets(cache, 0, 300)
            wait_for(children)
            check_gets(cache, 0, 300)
            assert cache.stats()["connects"] == before
            """,
        )


@FORKS
def test_a_probe_of_a_server_that_was_away(
    run: Run, redis_settings: dict[str, Any], redis_server: Server, fork: str
) -> None:
    """The parent's probe is not the child's: nobody waits for an outcome that never comes."""
    program = f"""
    from nearcache.errors import CircuitOpen, ConnectionFailed
    cache = configured()
    breaker = cache._topology.primary.breaker
    for _ in range(3):
        breaker.failed(ConnectionFailed("away"))
    breaker._probe_at = 0  # the pause is over
    breaker._probe_s = 10**9
    breaker.check()  # somebody of the parent probes
    try:
        cache.get("k")
    except CircuitOpen:
        pass
    else:
        raise AssertionError("two probe at once")
    def child(worker):
        check_everything(cache, worker, 5)
        assert breaker.state == "closed"
    wait_for([in_child(lambda: child(worker), {fork}) for worker in range(2)])
    assert breaker.state == "half-open"
    """
    run(redis_settings, program)


@FORKS
def test_random_numbers_differ(run: Run, redis_settings: dict[str, Any], fork: str) -> None:
    program = f"""
    from nearcache.claims import Claim
    from nearcache.clock import SystemClock
    from nearcache.process import chance
    cache = configured()
    check_everything(cache, "parent", 1)
    engine = cache.engine
    def numbers():
        claim = Claim(engine, b"k", 1, 1, SystemClock())
        return [chance(), claim._owner, engine.lock_ticket()]
    read, write = os.pipe()
    def child():
        os.write(write, json.dumps(numbers()).encode() + b"\\n")
    wait_for([in_child(child, {fork}) for _ in range(3)])
    os.close(write)
    drawn = [json.loads(line) for line in open(read)] + [numbers()]
    assert len({{number for each in drawn for number in each}}) == 12, drawn
    """
    run(redis_settings, program)


@FORKS
def test_a_recording(
    run: Run, redis_settings: dict[str, Any], private_path: Path, fork: str
) -> None:
    """Nothing of the parent's is written twice, and nothing is written as the parent's."""
    path = str(private_path / "recording")
    settings = {
        "BACKEND": "nearcache.backends.RecordingCache",
        "LOCATION": path,
        "OPTIONS": {"of": redis_settings, "share": 1},
    }
    run(
        settings,
        f"""
        from pathlib import Path
        from nearcache.recording.trace import read
        cache = configured()
        for number in range(5):
            cache.set(f"parent:{{number}}", number)
        def child(worker):
            for number in range(3):
                cache.set(f"child:{{worker}}:{{number}}", number)
                assert cache.get(f"child:{{worker}}:{{number}}") == number
            cache.recorder.flush()
        wait_for([in_child(lambda: child(worker), {fork}) for worker in range(2)])
        in_silence = in_child(cache.recorder.flush, {fork})
        wait_for([in_silence])
        cache.recorder.flush()
        found = read([Path({path!r})])
        prefixes = [record.prefix for record in found]
        assert (prefixes.count("parent"), prefixes.count("child")) == (5, 12), prefixes
        assert found.processes == 3
        """,
    )
