"""``python -m nearcache.lab ...`` is ``nearcache lab ...``."""

from __future__ import annotations

import sys

from nearcache.cli import main

if __name__ == "__main__":
    main(["lab", *sys.argv[1:]], prog_name="nearcache")
