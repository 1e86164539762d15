"""The files of a configuration, from the answers and the templates.

How arguments are dropped without a loop: a chain of maps, each without one run of them.

    $args         a=1&utm_x=1&utm_y=2&b=3&gclid=4
    $cl_args1     a=1&b=3&gclid=4
    $cl_args2     a=1&b=3

What is still there after the last of them stays in the key and is forwarded: it splits an
entry, and poisons none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

from nearcache.errors import NginxError
from nearcache.nginx.config.write.answers import Answers
from nearcache.nginx.keys.spelling import regex_of

RUNS = 4  # of dropped arguments with others between
CONFIGURATION = "nearcache.conf"
SCRIPT = "nearcache.js"
MIDDLEWARE = "canonical.py"


@dataclass(frozen=True)
class Generated:
    text: str  # what http includes
    files: dict[str, str] = field(default_factory=dict)  # name -> text, to be put beside
    notes: tuple[str, ...] = ()


def generate(answers: Answers) -> Generated:
    """The configuration, what belongs beside it, and what to do with it."""
    by_code = answers.spelling.needs_code and answers.use_njs
    text = _render(
        "site.conf.j2",
        a=answers,
        kind=answers.kind,
        by_code=by_code,
        by_maps=bool(answers.spelling.drop or answers.spelling.keep) and not by_code,
        dropped=regex_of(answers.spelling.drop),
        runs=range(1, RUNS + 1),
        log_format=log_format(own_key=False),
    )
    files = {}
    if by_code:
        files[SCRIPT] = _render("arguments.js.j2", s=answers.spelling, pattern=_js_pattern(answers))
    elif answers.spelling.needs_code:
        files[MIDDLEWARE] = _render("canonical.py.j2", s=answers.spelling)
    return Generated(text, files, tuple(_notes(answers, by_code)))


def log_format(*, own_key: bool = True) -> str:
    """The log format, to be put at the http level.

    Args:
        own_key: with a definition of ``$cl_key``, for a configuration that has none.
    """
    return _render("log_format.j2", own_key=own_key)


def _js_pattern(answers: Answers) -> str:
    return regex_of(answers.spelling.drop).replace("/", r"\/")


def _notes(answers: Answers, by_code: bool) -> list[str]:
    notes = []
    if by_code:
        notes.append(
            f"at the top of nginx.conf: load_module modules/ngx_http_js_module.so; and {SCRIPT} "
            "beside nginx.conf"
        )
    elif answers.spelling.needs_code:
        notes.append(
            "nginx's maps cannot lower-case, strip or sort, and there is no njs here: "
            f"{MIDDLEWARE} redirects to the one spelling instead (or install njs, and give --njs)"
        )
    if answers.version is None:
        notes.append("the version of nginx is not known: min_free is left out; --nginx-version")
    return notes


def _render(name: str, **values: Any) -> str:
    return str(_environment().get_template(name).render(**values))


@cache
def _environment() -> Any:
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError as error:
        raise NginxError('config needs jinja2: pip install "nearcache[nginx]"') from error
    return Environment(
        loader=PackageLoader("nearcache.nginx.config.write", "templates"),
        autoescape=False,  # noqa: S701 - no HTML; Answers lets nothing through that nginx reads
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
