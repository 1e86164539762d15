"""What a parent has under way or open at the moment of a fork stays the parent's alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nearcache.lab.servers import free_port
from tests.redis.cluster_servers import ClusterServers
from tests.redis.sentinel_servers import SERVICE, running_sentinels
from tests.redis.servers import Server, running
from tests.redis.strangers import certificate

Run = Callable[..., str]
FORKS = pytest.mark.parametrize("fork", ["raw_fork", "os.fork"])


@FORKS
def test_a_refresh_in_the_background(run: Run, cache_settings: dict[str, Any], fork: str) -> None:
    """A child serves what is stale meanwhile, as everybody does; its own refreshes go on."""
    run(
        cache_settings,
        f"""
        cache = configured()
        go_on, calls = threading.Event(), []
        def compute():
            calls.append(os.getpid())
            if threading.current_thread() is not threading.main_thread():
                go_on.wait()
            return f"of {{len(calls)}}"
        def ask(key="refreshed", compute=compute):
            return cache.get_or_set(key, compute, 1, stale=600)
        assert ask() == "of 1"
        while len(calls) < 2:
            time.sleep(0.001)
            assert ask() == "of 1"
        def child():
            assert [ask() for _ in range(20)] == ["of 1"] * 20
            assert os.getpid() not in calls
            own = map(str, range(1_000_000))
            while ask("own", lambda: next(own)) == "0":
                time.sleep(0.001)
            check_everything(cache, "child", 20)
        wait_for([in_child(child, {fork})])
        go_on.set()
        while ask() == "of 1":
            time.sleep(0.001)
        assert set(calls) == {{os.getpid()}}
        """,
    )


@pytest.fixture(params=["cluster", "sentinel"])
def several(request: pytest.FixtureRequest, redis_directory: Path) -> Any:
    """How a cache is named whose servers have to be asked for; ``{}`` is a port to ask first."""
    if request.param == "cluster":
        cluster: ClusterServers = request.getfixturevalue("one_cluster")
        cluster.flush()
        yield "redis+cluster://127.0.0.1:{}," + ",".join(map(str, cluster.addresses))
    else:
        with running_sentinels(redis_directory) as trio:
            yield (
                "redis+sentinel://127.0.0.1:{},"
                + ",".join(map(str, trio.addresses))
                + f"/{SERVICE}"
            )


@FORKS
def test_servers_that_are_being_asked_for(run: Run, several: str, fork: str) -> None:
    settings = {
        "BACKEND": "nearcache.backends.RedisCache",
        "LOCATION": several,
        "OPTIONS": {"SOCKET_TIMEOUT": 30},
    }
    run(
        settings,
        f"""
        import select, socket
        silent = socket.create_server(("127.0.0.1", 0))
        entry = json.loads(sys.argv[1])
        entry["LOCATION"] = entry["LOCATION"].format(silent.getsockname()[1])
        sys.argv[1] = json.dumps(entry)
        cache, found = configured(), []
        asking = threading.Thread(target=lambda: found.append(cache.get("k", "nothing")))
        asking.start()
        select.select([silent], [], [])  # it waits for that one's answer, and has the turn
        def child(worker):
            silent.close()
            check_everything(cache, worker, 20)
        children = [in_child(lambda: child(worker), {fork}) for worker in range(2)]
        silent.close()
        wait_for(children)
        asking.join()
        assert found == ["nothing"], found
        check_everything(cache, "parent", 20)
        """,
    )


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
def test_an_event_loop_and_its_connections(
    run: Run, redis_settings: dict[str, Any], fork: str
) -> None:
    """A child may go on with a copy of the loop, or with one of its own."""
    run(
        redis_settings,
        f"""
        cache = configured()
        async def use(worker):
            await acheck_everything(cache, worker, 20)
            async def client_id(client):
                return await client.client_id()
            shared = await cache._topology.aask(b"*2\\r\\n$6\\r\\nCLIENT\\r\\n$2\\r\\nID\\r\\n")
            return {{shared, await client_id(cache.aclient)}}
        runner = asyncio.Runner()
        before = runner.run(use("parent"))
        def with_the_copy(worker):
            assert not before & runner.run(use(worker))
            runner.close()
        def with_its_own(worker):
            assert not before & asyncio.run(use(worker))
        children = [in_child(lambda: with_the_copy("copy"), {fork})]
        children.append(in_child(lambda: with_its_own("own"), {fork}))
        wait_for(children)
        assert runner.run(asyncio.wait_for(use("parent again"), 60)) == before
        """,
    )


@FORKS
def test_who_waits_for_a_lock_is_called_by_a_listener_of_its_own(
    run: Run, redis_settings: dict[str, Any], redis_server: Server, fork: str
) -> None:
    run(
        redis_settings,
        f"""
        cache = configured()
        lock, ends = cache.lock("held", timeout=600), []
        lock.acquire()
        def wait():
            with cache.lock("held", timeout=600, wait=600):
                ends.append(os.getpid())
        def listeners():
            return cache.client.pubsub_channels("nearcache:woken:*")
        waiting = threading.Thread(target=wait)
        waiting.start()
        while len(listeners()) < 1:
            time.sleep(0.001)
        child = in_child(wait, {fork})
        while len(listeners()) < 2:
            time.sleep(0.001)
        assert {{count for _, count in cache.client.pubsub_numsub(*listeners())}} == {{1}}
        lock.release()
        waiting.join()
        wait_for([child])
        assert ends == [os.getpid()]
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
    from nearcache.coordination.claims import Claim
    from nearcache.base.clock import SystemClock
    from nearcache.base.per_process import chance
    cache = configured()
    check_everything(cache, "parent", 1)
    engine = cache.engine
    bells = engine._locks._bells if hasattr(engine, "_locks") else None
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


@FORKS
def test_a_socket_that_is_put_away_at_the_limit_of_open_files(
    run: Run, redis_settings: dict[str, Any], fork: str
) -> None:
    """It leads nowhere in the child, and its number is not given out again."""
    run(
        redis_settings,
        f"""
        import contextlib, resource, socket
        from nearcache.base.per_process import nowhere
        ours, theirs = socket.socketpair()
        def child():
            resource.setrlimit(resource.RLIMIT_NOFILE, (50, 50))
            with contextlib.suppress(OSError):
                while True: os.dup(0)
            nowhere(ours.fileno())
            os.close(49)
            assert os.readlink(f"/proc/self/fd/{{ours.fileno()}}") == "/dev/null"
        wait_for([in_child(child, {fork})])
        theirs.sendall(b"for the parent")
        assert ours.recv(100) == b"for the parent"
        """,
    )


def test_a_socket_that_is_put_away_where_gevent_has_patched(
    run: Run, redis_settings: dict[str, Any]
) -> None:
    """Its descriptor is free at once, though gevent's ``os.close`` leaves that to the loop."""
    run(
        redis_settings,
        """
        import contextlib, gevent, resource, socket
        from nearcache.base.per_process import nowhere
        gevent.sleep(0)
        ours, theirs = socket.socketpair()
        resource.setrlimit(resource.RLIMIT_NOFILE, (50, 50))
        with contextlib.suppress(OSError):
            while True: os.dup(0)
        nowhere(ours.fileno())
        assert os.readlink(f"/proc/self/fd/{ours.fileno()}") == "/dev/null"
        """,
        first="from gevent import monkey; monkey.patch_all()",
    )
