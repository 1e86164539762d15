"""A process of root that becomes another user's: neither ever sees what is the other's.

``NOBODY`` cannot enter this clone or its Python on many machines (/root is closed), so all that
is needed is imported before: a server imports what it needs by a request in its parent.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import pwd
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nearcache.engines.shm import SUFFIX
from nearcache.lab.servers import free_port
from tests.needs import missing, need_installed

Run = Callable[..., str]

NOBODY = pwd.getpwnam("nobody").pw_uid

if os.geteuid() != 0 or sys.platform != "linux":
    missing("only root can become another user")


@pytest.fixture
def home(private_path: Path) -> Iterator[Path]:
    """The directory of a project; what its caches took is given back, of each user."""
    yield private_path
    for note in Path("/dev/shm").glob("nearcache-*/*.owners"):
        if str(private_path) in note.read_text():
            base = note.name.removesuffix(".owners")
            for path in note.parent.glob(f"{base}.*"):
                path.unlink()
            if note.parent.stat().st_uid == NOBODY:
                with contextlib.suppress(OSError):
                    note.parent.rmdir()


# ---- without a server

PROGRAM = f"""
NOBODY = {NOBODY}
cache = configured(BASE_DIR=sys.argv[2])

class WhoReads:
    def __reduce__(self):
        return os.geteuid, ()

def foreign_mappings():
    mine = f"/nearcache-{{os.geteuid()}}/"
    return [line for line in open("/proc/self/maps") if "/nearcache-" in line and mine not in line]

def descriptors(inodes):
    found = []
    for number in range(256):
        try:
            found += [number] if os.fstat(number).st_ino in inodes else []
        except OSError:
            pass
    return found

def use_all():
    '''Everything, so that nothing is left to import.'''
    check_everything(cache, "any", 11)
    asyncio.run(acheck_everything(cache, "async", 10))
    list(cache.iter_keys("*")), cache.delete_pattern("nothing*"), cache.stats()
    cache.clear()

def become_nobody():
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)

use_all()
cache.set("who", WhoReads())
cache.set("kept", frozenset({{"root"}}))
assert [cache.get("kept") for _ in range(5)] and cache.get("who") == 0
inodes = [os.stat(cache.path + end).st_ino for end in ({SUFFIX!r}, ".lock")]

def check_that_nothing_is_roots():
    assert not foreign_mappings() or not cache.get("kept")
    assert cache.get("kept") is None and cache.get("who") is None
    assert cache.get_many(["kept", "who"]) == {{}} and not cache.has_key("kept")
    assert not foreign_mappings(), foreign_mappings()
    assert not descriptors(inodes), descriptors(inodes)
    assert not cache.delete("kept") and len(list(cache.iter_keys("*"))) == 0
    cache.set("who", WhoReads())
    cache.set("mine", WhoReads())
    assert cache.get("who") == NOBODY
    use_all()
    cache.set("mine", WhoReads())

def check_that_all_is_there():
    assert cache.get("who") == 0 and cache.get("kept") == frozenset({{"root"}})
    assert cache.get("mine") is None
    assert not cache.engine.check()
"""


@pytest.fixture
def run_as_root(run: Run, home: Path) -> Callable[..., str]:
    entry = {
        "BACKEND": "nearcache.backends.SharedMemoryCache",
        "LOCATION": "users",
        "OPTIONS": {"size": "4MB"},
    }

    def run_it(program: str, **more: Any) -> str:
        return run({**entry, **more}, PROGRAM, str(home), then=program)

    return run_it


@pytest.mark.parametrize("fork", ["raw_fork", "os.fork"])
def test_a_child_has_its_own_users_cache(run_as_root: Run, fork: str) -> None:
    run_as_root(
        f"""
        def child():
            assert not foreign_mappings()
            assert not descriptors(inodes)
            become_nobody()
            check_that_nothing_is_roots()
        wait_for([in_child(child, {fork})])
        check_that_all_is_there()
        # Of two, the first one's values are there for the second.
        def another():
            become_nobody()
            assert cache.get("mine") == NOBODY
        wait_for([in_child(another, {fork})])
        """
    )


def test_a_child_that_used_the_cache_before(run_as_root: Run) -> None:
    """As gunicorn's ``post_fork`` may: it is root's until the next line."""
    run_as_root(
        """
        def child():
            assert cache.get("who") == 0
            assert cache.get("kept") == frozenset({"root"})
            become_nobody()
            check_that_nothing_is_roots()
        wait_for([in_child(child)])
        check_that_all_is_there()
        """
    )


def test_a_process_that_changes_without_a_fork(run_as_root: Run) -> None:
    """As a daemon does: its threads, and the locks that it held, stay behind."""
    run_as_root(
        """
        from nearcache.errors import LockLost
        lock = cache.lock("held", timeout=600)
        lock.acquire()
        lock.check()
        def child():
            own = cache.lock("own", timeout=600)
            own.acquire()
            over = threading.Event()
            def work():
                while not over.is_set():
                    assert cache.get("who") in {None, 0, NOBODY}
            threads = [threading.Thread(target=work) for _ in range(3)]
            for thread in threads: thread.start()
            become_nobody()
            check_that_nothing_is_roots()
            over.set()
            for thread in threads: thread.join()
            try:
                own.check()
            except LockLost:
                pass
            else:
                raise AssertionError("root's lock is held by nobody")
            with cache.lock("held", timeout=600, blocking=False):
                pass
        wait_for([in_child(child)])
        check_that_all_is_there()
        lock.check()
        lock.release()
        """
    )


def test_a_user_for_a_while(run_as_root: Run) -> None:
    run_as_root(
        """
        for _ in range(3):
            os.seteuid(NOBODY)
            assert cache.get("who") in {None, NOBODY}
            cache.set("who", WhoReads())
            cache.set("mine", WhoReads())
            assert not foreign_mappings()
            os.seteuid(0)
            assert not cache.get("nothing") and not foreign_mappings()
            check_that_all_is_there()
        """
    )


def test_a_fork_in_the_middle_of_a_call(run_as_root: Run) -> None:
    """What unpickles may fork; the call goes on in the child, where the memory is not."""
    run_as_root(
        """
        forked = []
        def fork_here():
            forked.append(os.fork())
            return "forked"
        class Forks:
            def __reduce__(self):
                return fork_here, ()
        cache.set_many({"forks": Forks(), "k": "v"})
        found = cache.get_many(["forks", "k"])
        if not forked[0]:
            try:
                assert found["forks"] == "forked"
                become_nobody()
                check_that_nothing_is_roots()
                os._exit(0)
            finally:
                os._exit(1)
        wait_for(forked)
        assert found == {"forks": "forked", "k": "v"}
        check_that_all_is_there()
        """
    )


def test_a_path_that_is_roots_is_refused_and_the_error_names_both(
    run_as_root: Run, home: Path
) -> None:
    run_as_root(
        """
        from nearcache.errors import RegionError
        def child():
            become_nobody()
            calls = [
                lambda: cache.get("who"), lambda: cache.set("who", 1), lambda: cache.incr("who"),
                lambda: cache.get_many(["who"]), lambda: cache.delete("who"), cache.clear,
                lambda: cache.lock("a").acquire(), lambda: cache.get_or_set("a", 1),
                lambda: cache.has_key("who"), lambda: cache.touch("who"), cache.stats,
            ]
            for _ in range(2):
                for call in calls:
                    try:
                        call()
                    except RegionError as error:
                        text = str(error)
                        assert f"user {NOBODY}" in text or "Permission denied" in text, text
                    else:
                        raise AssertionError("root's cache was used")
        wait_for([in_child(child), in_child(child, os.fork)])
        check_that_all_is_there()
        # Without a fork, and back.
        os.seteuid(NOBODY)
        try:
            cache.get("who")
        except RegionError:
            assert not any(cache.path in line for line in open("/proc/self/maps"))
        else:
            raise AssertionError("root's cache was used")
        os.seteuid(0)
        check_that_all_is_there()
        """,
        LOCATION=str(home / "cache"),
    )


def test_redis_does_not_mind(run: Run, redis_settings: dict[str, Any]) -> None:
    """Its connection is the process's, whoever's process it is."""
    run(
        redis_settings,
        f"""
        cache = configured()
        fill(cache, 2)
        check_everything(cache, "root", 11)
        def child(name):
            check_everything(cache, f"{{name}} before", 11)
            os.setuid({NOBODY})
            check_gets(cache, 1, 1000)
            check_everything(cache, f"{{name}} after", 11)
        wait_for([in_child(lambda: child(1)), in_child(lambda: child(2), os.fork)])
        check_gets(cache, 0, 100)
        """,
    )


# ---- servers

ROOT = Path(__file__).parents[2]
APP = """
import json, os
from django.conf import settings
settings.configure(
    ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__, SECRET_KEY="for tests only", BASE_DIR={home!r},
    CACHES={{"default": {{
        "BACKEND": "nearcache.backends.SharedMemoryCache",
        "LOCATION": "users", "OPTIONS": {{"size": "4MB"}},
    }}}},
)
from django.core.cache import cache
from django.core.wsgi import get_wsgi_application
from django.http import JsonResponse
from django.urls import path

class WhoReads:
    def __reduce__(self):
        return os.geteuid, ()

def facts():
    me = os.geteuid()
    cache.set(f"of {{me}}", WhoReads())
    cache.add("requests", 0)
    with cache.lock("view", timeout=60, wait=60):
        count = cache.incr("requests")
    maps = [line for line in open("/proc/self/maps") if "/nearcache-" in line]
    return {{
        "user": me, "process": os.getpid(), "count": count,
        "seen": {{uid: cache.get(f"of {{uid}}") for uid in (0, {nobody})}},
        "foreign": [line for line in maps if f"/nearcache-{{me}}/" not in line],
    }}

urlpatterns = [path("", lambda request: JsonResponse(facts()))]
application = get_wsgi_application()

from wsgiref.util import setup_testing_defaults
environ = {{}}
setup_testing_defaults(environ)
list(application(environ, lambda *_: None))

import sys
sys.path.insert(0, {root!r})
from tests.raw_fork import rest
rest()  # uWSGI forks now
"""

POST_FORK = """
def post_fork(server, worker):
    from users_app import facts
    assert facts()["user"] == 0
"""


def gunicorn(*options: str) -> tuple[str, ...]:
    program = (sys.executable, "-m", "gunicorn", "--preload", "--workers", "2", "--user", "nobody")
    return (*program, "--bind", "127.0.0.1:{port}", "--log-level", "error", *options, "users_app")


def uwsgi(*options: str) -> tuple[str, ...]:
    program = (str(Path(sys.executable).with_name("uwsgi")), "--http-socket", "127.0.0.1:{port}")
    drop = ("--uid", "nobody", "--drop-after-apps", "--die-on-term", "--module", "users_app")
    return (*program, *drop, *options)


SERVERS = {
    "gunicorn": gunicorn(),
    "gunicorn-gthread": gunicorn("--worker-class", "gthread", "--threads", "3"),
    "gunicorn-post-fork": gunicorn("--config", "post_fork.py"),
    "uwsgi": uwsgi("--master", "--processes", "2"),
    "uwsgi-without-fork": uwsgi(),
}


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_that_root_starts(name: str, home: Path, eventually: Callable[..., None]) -> None:
    need_installed("pyuwsgi" if name.startswith("uwsgi") else "gunicorn")
    (home / "users_app.py").write_text(APP.format(home=str(home), nobody=NOBODY, root=str(ROOT)))
    (home / "post_fork.py").write_text(POST_FORK)
    port = free_port()
    command = [each.format(port=port) for each in SERVERS[name]]
    with (home / "log").open("w") as log:
        server = subprocess.Popen(command, cwd=home, stdout=log, stderr=log, start_new_session=True)
    try:
        eventually(lambda: listens(port))
        answers = [asked(port) for _ in range(20)]
        for answer in answers:
            assert answer["user"] == NOBODY, answer
            assert not answer["foreign"], answer
            assert answer["seen"] == {"0": None, str(NOBODY): NOBODY}, answer
        counts = [answer["count"] for answer in answers]
        assert counts == list(range(counts[0], counts[0] + 20))
        # What root reads, by the same settings, is root's.
        ask_root = "import users_app, json; print(json.dumps(users_app.facts()))"
        found = subprocess.run(
            [sys.executable, "-c", ask_root], cwd=home, capture_output=True, text=True, check=True
        )
        assert json.loads(found.stdout)["seen"] == {"0": 0, str(NOBODY): None}
    except BaseException:
        print((home / "log").read_text()[-3000:])
        raise
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def listens(port: int) -> bool:
    try:
        asked(port)
    except OSError:
        return False
    return True


def asked(port: int) -> dict[str, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", "/")
        found: dict[str, Any] = json.loads(connection.getresponse().read())
        return found
    finally:
        connection.close()
