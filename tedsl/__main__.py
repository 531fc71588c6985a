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
    options = _parsed(parser, arguments)
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


def _parsed(parser: argparse.ArgumentParser, arguments: list[str] | None) -> argparse.Namespace:
    """The options, and shapes wherever they stand: argparse gives them none behind an option."""
    options, others = parser.parse_known_args(arguments)
    end = others.index("--") if "--" in others else len(others)
    takes_shapes = hasattr(options, "shapes")
    unknown = [word for word in others[:end] if word.startswith("-")] if takes_shapes else others
    if unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    if takes_shapes:
        options.shapes += [*others[:end], *others[end + 1 :]]
    return options


if __name__ == "__main__":
    sys.exit(main())
