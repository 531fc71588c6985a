"""The command `tedsl`, also `python -m tedsl`."""

from __future__ import annotations

import argparse
import sys

from tedsl.commands import cache, info, operators


def main(arguments: list[str] | None = None) -> int:
    """Run the command; the status that the shell sees."""
    parser = argparse.ArgumentParser(
        prog="tedsl",
        description="Tensor programs from the shell: what is installed, operators tried, shown and timed.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for subject in (info, operators, cache):
        subject.add(commands)
    options = parser.parse_args(arguments)
    return int(options.run(options))


if __name__ == "__main__":
    sys.exit(main())
