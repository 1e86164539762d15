"""What the other tests rely on: a raw fork is one that CPython survives."""

from __future__ import annotations

from collections.abc import Callable

Run = Callable[..., str]


def test_a_thread_that_computes_without_the_gil_does_not_rest(run: Run) -> None:
    """It sleeps in no call, and will want the GIL at any time."""
    run(
        {},
        """
        import hashlib
        from tests.raw_fork import rest
        begun, over = threading.Event(), threading.Event()
        def compute():
            begun.set()
            hashlib.pbkdf2_hmac("sha256", b"a", b"b", 2_000_000)
            over.set()
        threading.Thread(target=compute, daemon=True).start()
        begun.wait()
        rest()
        assert over.is_set()
        """,
    )


def test_a_child_that_was_forked_while_a_thread_woke_is_not_used(run: Run) -> None:
    """The thread may wait for the GIL, and the child would wait for the thread."""
    run(
        {},
        """
        import ctypes
        from tests import raw_fork as its_module
        keeping_the_gil, forks = ctypes.PyDLL(None), []
        ours, theirs = os.pipe()
        def wait_twice():
            os.read(ours, 1)
            os.read(ours, 1)
        thread = threading.Thread(target=wait_twice, daemon=True)
        thread.start()
        def fork_as_it_wakes():
            forks.append(len(forks))
            if len(forks) == 1:
                keeping_the_gil.write(theirs, b"1", 1)
            return keeping_the_gil.fork()
        its_module.c_fork = fork_as_it_wakes
        def child():
            assert len(forks) == 2, forks
        wait_for([in_child(child)])
        assert len(forks) == 2, forks
        os.write(theirs, b"2")
        thread.join()
        """,
    )
