"""gixy-ng as a second opinion: it looks for security flaws of all kinds, if it is installed.

It is run as a program, its findings are shown as it says them, and nothing depends on it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from typing import Any

from nearcache.errors import NginxError
from nearcache.nginx.config.lint.model import Finding, Severity
from nearcache.nginx.config.read.configuration import Version

_SEVERITIES: dict[str, Severity] = {"HIGH": "error", "MEDIUM": "warning"}
TIMEOUT_S = 120


def is_installed() -> bool:
    return shutil.which("gixy") is not None


def second_opinion(path: str, version: Version | None) -> Sequence[Finding]:
    """What gixy finds in a file and what it includes."""
    command = ["gixy", "--format", "json", path]
    if version:
        command[1:1] = ["--nginx-version", ".".join(map(str, version))]
    try:
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=TIMEOUT_S
        )
        found = json.loads(done.stdout)
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        raise NginxError(f"gixy gave no answer ({error}); leave --gixy out") from error
    return [_finding(each, path) for each in found]


def _finding(said: dict[str, Any], path: str) -> Finding:
    return Finding(
        rule=f"gixy/{said.get('plugin', '?')}",
        severity=_SEVERITIES.get(str(said.get("severity", "")).upper(), "note"),
        directive=" ".join(str(said.get("config", "")).split())[:120],
        file=str(said.get("file") or said.get("path") or path),
        line=int(said.get("line") or 0),
        places=(),
        why=str(said.get("reason") or said.get("summary") or ""),
        fix=f"# {said.get('reference') or said.get('help_url') or ''}".rstrip(),
    )
