"""The command `tedsl`, also `python -m tedsl`."""

from __future__ import annotations

import argparse
import os
import sys

from tedsl.commands import cache, info, operators


def main(arguments: list[str] | None = None) -> int:
    """Run the command; the status that the shell sees."""
    parser = argparse.ArgumentParser(
        prog="tedsl",
        description="Tensor programs from the shell: what is installed, operators tried, shown and timed.",
    )
    parser.add_argument("--version", action="version", version=f"tedsl {info.version()}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for subject in (info, operators, cache):
        subject.add(commands)
    options = parser.parse_args(arguments)
    if options.command is None:
        parser.print_help()
        return 2
    try:
        status = int(options.run(options))
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read it has seen enough: `tedsl show ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except ValueError as error:
        if not str(error).startswith("TEDSL_"):
            raise
        print(f"tedsl: {error}", file=sys.stderr)  # an environment variable, which no option of the command explains
        return 2
    return status


if __name__ == "__main__":
    sys.exit(main())
