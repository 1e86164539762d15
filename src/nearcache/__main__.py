"""``python -m nearcache``: the command line, where its script is not on the path."""

from nearcache.cli import main

main(prog_name="nearcache")
