"""Imports point one way: read from the sources, so that no import hides in a function."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "nearcache"

SMALL_PARTS = {
    "alocks",
    "bids",
    "callkeys",
    "charts",
    "claims",
    "clock",
    "engine",
    "entry",
    "errors",
    "flight",
    "flows",
    "keeper",
    "keys",
    "leases",
    "living",
    "locks",
    "metrics",
    "options",
    "outage",
    "process",
    "refresh",
    "stampede_options",
    "threads",
    "_core",
}
# Each layer may import those below it, and itself.
LAYERS = [
    SMALL_PARTS,
    {"codec", "engines"},
    {"drop_in", "redis_options"},
    {"extras", "twins", "stampede", "memoize", "locked", "project", "rooted", "testrun"},
    {"adapter", "forgiving", "sessions"},
    {"redis_apart", "redis_cache", "recording", "shm_forgiving"},
    {"backends"},
    {"checks"},
    {"apps"},
    {"lab", "nginx"},
    {"web"},
    {"cli"},
    {"__main__"},
]
NO_DJANGO = SMALL_PARTS | {"codec", "engines", "drop_in", "redis_options"}
FILES = sorted(SOURCE.rglob("*.py"))


def part_of(path: Path) -> str:
    """The top-level part a file belongs to: ``engines`` for engines/shm.py."""
    if path.name == "__main__.py":  # ``python -m`` is a command line wherever it stands
        return "__main__"
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports_of(path: Path) -> set[str]:
    """Every module that a file imports, wherever in it; ``TYPE_CHECKING`` blocks aside."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def parts_imported(path: Path) -> set[str]:
    ours = (name.split(".") for name in imports_of(path))
    return {name[1] for name in ours if name[0] == "nearcache" and len(name) > 1} - {"__version__"}


def layer_of(part: str) -> int:
    return next(height for height, layer in enumerate(LAYERS) if part in layer)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_one_way(path: Path) -> None:
    if path == SOURCE / "__init__.py":
        assert parts_imported(path) == set()
        return
    height = layer_of(part_of(path))
    upwards = {part for part in parts_imported(path) if layer_of(part) > height}
    assert not upwards, f"{part_of(path)} must not know {upwards}"


@pytest.mark.parametrize(
    "path",
    [path for path in FILES if part_of(path) in NO_DJANGO],
    ids=lambda path: str(path.relative_to(SOURCE)),
)
def test_engines_codecs_and_small_parts_know_no_django(path: Path) -> None:
    assert not {name for name in imports_of(path) if name.split(".")[0] == "django"}


MAPS = [path for path in FILES if path.name == "__init__.py" and ".py   " in path.read_text()]


@pytest.mark.parametrize("path", MAPS, ids=lambda path: str(path.parent.relative_to(SOURCE)))
def test_a_map_at_the_head_of_a_package_names_all_that_is_there(path: Path) -> None:
    drawn = ast.get_docstring(ast.parse(path.read_text())) or ""
    named = set(re.findall(r"(?<![\w./-])(\w+(?:\.py\b|/))(?=[\s:;,.)]|$)", drawn))
    there = {each.name for each in path.parent.glob("*.py")} - {"__init__.py", "__main__.py"}
    there |= {f"{each.parent.name}/" for each in path.parent.glob("*/__init__.py")}
    assert not there - named, "not on the map"
    assert not {name for name in named if not (path.parent / name).exists()}, "gone"


def test_nothing_but_the_command_line_and_the_pages_knows_the_lab() -> None:
    knows = {part_of(path) for path in FILES if "lab" in parts_imported(path)}
    assert knows <= {"lab", "web", "cli"}


@pytest.mark.parametrize(
    ("module", "must_not_load"),
    [
        ("nearcache", ["django", "click", "redis", "nearcache._core"]),
        ("nearcache.engines.shm", ["django", "click", "redis"]),
        ("nearcache.backends", ["click", "redis", "nearcache.lab", "nearcache.cli"]),
        ("nearcache.cli", ["nearcache.lab", "redis", "nearcache._core"]),
    ],
)
def test_importing_one_part_does_not_load_another(module: str, must_not_load: list[str]) -> None:
    script = f"import sys, {module}; print([m for m in {must_not_load!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_file_is_long_and_every_file_says_what_it_is(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= 500
    assert ast.get_docstring(ast.parse(text))
