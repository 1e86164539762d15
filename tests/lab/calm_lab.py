"""``python -m tests.lab.calm_lab``: the command line on a machine whose host takes no time away.

On another a visit may be left out, and then counts differ. That is tested in test_stolen.py.
"""

from __future__ import annotations

import subprocess
import sys

from nearcache.cli import main
from nearcache.lab.runner import driver

from .conftest import undisturbed
from .test_cli import environment


def calm_lab(*words: str) -> subprocess.CompletedProcess[str]:
    """``lab`` of test_cli.py on such a machine."""
    command = [sys.executable, "-m", "tests.lab.calm_lab", *words]
    return subprocess.run(command, capture_output=True, text=True, env=environment(), check=False)


if __name__ == "__main__":
    driver.pressure = undisturbed
    main(["lab", *sys.argv[1:]])
