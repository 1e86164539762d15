"""Imports point one way: read from the sources, so that no import hides in a function."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "nearcache"

# From the ground up. A room imports the rooms below it, and itself; two of one floor do not know
# each other. A file that is named stands for itself, a folder for all in it that is not named.
FLOORS = [
    {"_core", "errors"},
    {"base"},
    {"coordination", "report"},
    {"codec"},
    {"engines.contract", "engines.redis.target"},
    {"engines.redis.protocol"},
    {"engines.redis.contract"},
    {"engines.redis.connection"},
    {"engines.redis.topology"},
    {"engines.redis.locks"},
    {"engines.redis"},
    {"engines"},
    {"django_cache.placement", "sessions"},
    {"django_cache"},
    {"django_cache.redis", "locked", "memoize"},
    {"recording"},
    {"backends"},
    {"integrations"},
    {"apps"},
    {"lab"},
    {"lab.base", "lab.statistics"},
    {"lab.results", "lab.workloads"},
    {"lab.own", "lab.endpoint"},
    {"lab.servers"},
    {"lab.load", "lab.proofs"},
    {"lab.timers"},
    {"lab.arms", "lab.checks"},
    {"lab.judging", "lab.runner"},
    {"lab.views"},
    {"lab.experiments"},
    {"lab.advice"},
    {"lab.reports"},
    {"nginx.keys", "nginx.pages"},
    {"nginx.cachedir", "nginx.config.read"},
    {"nginx.config.lint", "nginx.config.write", "nginx.inspect", "nginx.logs", "nginx.purge"},
    {"nginx.agent", "nginx.config.prove", "nginx.report", "nginx.whatif"},
    {"nginx.django", "nginx.misses"},
    {"nginx.watch"},
    {"nginx"},
    {"web"},
    {"cli"},
    {"__main__"},
]
FLOOR_OF = {room: height for height, floor in enumerate(FLOORS) for room in floor}
NO_DJANGO = {"errors", "base", "report", "coordination", "codec", "engines"}
NO_DJANGO |= {room for room in FLOOR_OF if room.startswith("nginx.")} - {"nginx.django"}
FILES = sorted(SOURCE.rglob("*.py"))


def name_of(path: Path) -> str:
    """As it is imported, without ``nearcache``: ``engines.shm`` for engines/shm.py."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(name: str) -> str:
    """The room that a module is in: the longest beginning of its name that is on a floor."""
    if name.endswith("__main__"):  # ``python -m`` is a command line wherever it stands
        return "__main__"
    parts = name.split(".")
    rooms = [".".join(parts[:count]) for count in range(len(parts), 0, -1)]
    return next(room for room in rooms if room in FLOOR_OF)


def knows_no_django(name: str) -> bool:
    room = room_of(name)
    return room in NO_DJANGO or room.split(".")[0] in NO_DJANGO


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


MODULES = {name_of(path): path for path in FILES} | {"_core": SOURCE / "_core.pyi"}


def modules_imported(path: Path) -> set[str]:
    """Ours among them, as :func:`name_of` has it."""
    found = set()
    for name in imports_of(path):
        ours, _, inside = name.partition(".")
        while ours == "nearcache" and inside and inside not in MODULES:
            inside = inside.rpartition(".")[0]  # a name in a module
        if ours == "nearcache" and inside:
            found.add(inside)
    return found - {name_of(path)}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_one_way(path: Path) -> None:
    if path == SOURCE / "__init__.py":
        assert modules_imported(path) == set()
        return
    room = room_of(name_of(path))
    others = {room_of(name) for name in modules_imported(path)} - {room}
    upwards = {other for other in others if FLOOR_OF[other] >= FLOOR_OF[room]}
    assert not upwards, f"{room} must not know {upwards}"


def assert_no_circle(needs: dict[str, set[str]]) -> None:
    waiting = dict(needs)
    while free := [name for name, others in waiting.items() if not others & waiting.keys()]:
        for name in free:
            del waiting[name]
    assert not waiting, "each of these is in a circle, or needs one that is"


def test_no_files_import_each_other_in_a_circle() -> None:
    files = {name: path for name, path in MODULES.items() if name != "_core"}
    assert_no_circle({name: modules_imported(path) for name, path in files.items()})


@pytest.mark.parametrize(
    "path",
    [path for path in FILES if path != SOURCE / "__init__.py" and knows_no_django(name_of(path))],
    ids=lambda path: str(path.relative_to(SOURCE)),
)
def test_engines_codecs_and_the_doctor_of_nginx_know_no_django(path: Path) -> None:
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
    knows = {
        name_of(path).split(".")[0]
        for path in FILES
        if any(name.split(".")[0] == "lab" for name in modules_imported(path))
    }
    assert knows <= {"lab", "web", "cli"}


def test_an_experiment_knows_no_other() -> None:
    inside = [name.split(".") for name in MODULES if name.startswith("lab.experiments.")]
    folders = {parts[2] for parts in inside if len(parts) > 3}
    for name, path in MODULES.items():
        if name.startswith("lab.experiments.") and name != "lab.experiments.registry":
            known = {
                other.split(".")[2]
                for other in modules_imported(path)
                if other.startswith("lab.experiments.")
            }
            assert not known & folders - {name.split(".")[2]}, name


@pytest.mark.parametrize(
    ("module", "must_not_load"),
    [
        ("nearcache", ["django", "click", "redis", "nearcache._core"]),
        ("nearcache.engines.shm", ["django", "click", "redis"]),
        ("nearcache.backends", ["click", "redis", "nearcache.lab", "nearcache.cli"]),
        ("nearcache.cli", ["nearcache.lab", "redis", "nearcache._core"]),
        ("nearcache.lab.experiments.drill.arm", ["nearcache.lab.experiments.registry"]),
        ("nearcache.lab.arms.child_link", ["socket", "threading", "queue", "django"]),
    ],
)
def test_importing_one_part_does_not_load_another(module: str, must_not_load: list[str]) -> None:
    script = f"import sys, {module}; print([m for m in {must_not_load!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_every_file_says_what_it_is(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text()))


CRATES = SOURCE.parents[1] / "crates"
RUST_ROOMS = {
    "nearcache-core": "base memory format sync file shard eviction locks store",
    "nearcache-nginx": "base log urls misses ledger whatif",
    "nearcache-python": "interop values django shared_memory redis nginx",
}


@pytest.mark.parametrize("crate", RUST_ROOMS)
def test_rooms_in_rust_use_those_before_them(crate: str) -> None:
    rooms, source = RUST_ROOMS[crate].split(), CRATES / crate / "src"
    assert {each.stem for each in source.iterdir()} == {*rooms, "lib"}
    for height, room in enumerate(rooms):
        files = [*(source / room).rglob("*.rs"), *source.glob(f"{room}.rs")]
        used = {
            name for file in files for name in re.findall(r"crate::([a-z_]+)", file.read_text())
        }
        assert used <= set(rooms[: height + 1]), room


def rust_files(crate: str) -> dict[str, Path]:
    """By the module's name: ``store.cache`` for store/cache.rs, ``lib`` for the crate's root."""
    source = CRATES / crate / "src"
    paths = {path: path.relative_to(source).with_suffix("").parts for path in source.rglob("*.rs")}
    return {".".join(p[:-1] if p[-1] == "mod" else p): path for path, p in paths.items()}


def rust_modules_used(name: str, path: Path, files: dict[str, Path]) -> set[str]:
    """By ``crate::`` from anywhere; without it what stands below this module."""
    code = re.sub(r"//.*", "", path.read_text())
    assert not re.search(r"(?m)^(pub.*)?use super::|crate::\{", code), f"{path}: write crate::..."
    found = set()
    for used, listed in re.findall(r"\bcrate::(\w+(?:::\w+)*)(?:::\{([^{}]*))?", code):
        found |= {used, *(f"{used}::{each.strip()}" for each in listed.split(","))}
    below = "" if name == "lib" else f"{name}::"
    found |= {below + used for used in re.findall(r"(?<![\w:])[a-z_]+(?:::\w+)+", code)}
    modules = set()
    for used in found:
        parts = used.split("::")
        starts = [".".join(parts[:count]) for count in range(len(parts), 0, -1)]
        modules.add(next((start for start in starts if start in files), "lib"))
    return modules - {name}


@pytest.mark.parametrize("crate", RUST_ROOMS)
def test_no_files_in_rust_use_each_other_in_a_circle(crate: str) -> None:
    files = rust_files(crate)
    assert_no_circle({name: rust_modules_used(name, path, files) for name, path in files.items()})
