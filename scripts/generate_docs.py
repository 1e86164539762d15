"""Writes the pages that come from code: docs/options.md and docs/cli.md."""

from pathlib import Path

from nearcache.docs import pages

DOCS = Path(__file__).parents[1] / "docs"

for name, text in pages().items():
    (DOCS / name).write_text(text)
    print(f"docs/{name}")
