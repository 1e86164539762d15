"""A second version of the code, which a site has beside the first while it is upgraded.

It is made of the sources here, as a clone may have no history, and differs in what versions are
told by: the layout of the file in memory, and the number that stored values begin with. It reads
what the first one writes; the first one cannot read all that it writes.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from tests.site.servers import ROOT

KEPT = ROOT / ".cache" / "another-version"
COPIED = ("Cargo.toml", "Cargo.lock", "crates/**/*.toml", "crates/**/*.rs", "src/**/*.py")
CHANGES: dict[str, tuple[tuple[str, str], ...]] = {
    "crates/nearcache-core/src/format/layout.rs": (
        (r"(LAYOUT_VERSION: u64) = \d+;", r"\1 = 1000;"),
    ),
    "crates/nearcache-python/src/values/value.rs": (
        (
            r"const EXACT: u8 = HEADER \| 2;",
            "const EXACT: u8 = HEADER | 10;\nconst FORMER: u8 = HEADER | 2;",
        ),
        (r"\bEXACT => return", "EXACT | FORMER => return"),
    ),
    "src/nearcache/codec/serializers.py": (
        (r'EXACT = Serializer\(2, "exact"', 'EXACT = Serializer(10, "exact"'),
        (r'TREE = Serializer\(2, "exact"', 'TREE = Serializer(10, "exact"'),
        (r"\nSERIALIZERS = .*", r"\g<0>\nSERIALIZERS[2] = EXACT"),
    ),
}
"""By file: what is replaced, which must be there once, and by what."""


def another_version() -> Path:
    """Its ``src``, for PYTHONPATH. The first time it is compiled, for minutes; then it is kept."""
    KEPT.mkdir(parents=True, exist_ok=True)
    with KEPT.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _copy()
        _compile()
    return KEPT / "src"


def sources() -> Iterator[tuple[str, str]]:
    """Name and text of each of its files."""
    found = {str(path.relative_to(ROOT)) for glob in COPIED for path in ROOT.glob(glob)}
    assert CHANGES.keys() <= found, CHANGES.keys() - found
    for name in sorted(found):
        text = (ROOT / name).read_text()
        for was, becomes in CHANGES.get(name, ()):
            text, count = re.subn(was, becomes, text)
            assert count == 1, f"{name} has {was} {count} times"
        yield name, text


def _copy() -> None:
    """Touches only what has changed: cargo goes by the time of files."""
    wanted = dict(sources())
    for glob in COPIED:
        for path in KEPT.glob(glob):
            if str(path.relative_to(KEPT)) not in wanted:
                path.unlink()
    for name, text in wanted.items():
        path = KEPT / name
        if not path.exists() or path.read_text() != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)


def _compile() -> None:
    words = ("cargo", "build", "--profile", "tested", "--package", "nearcache-python")
    done = subprocess.run(
        [ROOT / "scripts" / "with-rust", *words, "--manifest-path", KEPT / "Cargo.toml"],
        # Its own: what is built here is not to be taken for what is built of the sources.
        env={**os.environ, "PYO3_PYTHON": sys.executable, "CARGO_TARGET_DIR": str(KEPT / "target")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    shutil.copy(KEPT / "target" / "tested" / "lib_core.so", KEPT / f"src/nearcache/_core{suffix}")
