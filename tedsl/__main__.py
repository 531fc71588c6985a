"""The command `tedsl`, also `python -m tedsl`."""

from __future__ import annotations

import argparse
import os
import re
import sys
from difflib import get_close_matches
from typing import NoReturn

from tedsl.commands import cache, info, operators

_CHOICE = re.compile(r"invalid choice: '([^']*)' \(choose from (.*)\)")


class _Parser(argparse.ArgumentParser):
    """One that knows what was meant."""

    def error(self, message: str) -> NoReturn:
        found = _CHOICE.search(message)
        near = get_close_matches(found[1], re.findall(r"[\w-]+", found[2]), n=1) if found else []
        super().error(message + "".join(f"; did you mean {name}?" for name in near))


def main(arguments: list[str] | None = None) -> int:
    """Run the command; the status that the shell sees."""
    parser = _Parser(
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
        parser.error(f"unrecognized arguments: {' '.join(unknown)}{_meant(unknown[0], others, options)}")
    if takes_shapes:
        options.shapes += [*others[:end], *others[end + 1 :]]
    return options


def _meant(word: str, others: list[str], options: argparse.Namespace) -> str:
    """What an unknown option may have been: one of another spelling, or what operators take by name."""
    if not hasattr(options, "shapes") or not word.startswith("--"):
        return ""
    name, _, value = word.lstrip("-").partition("=")
    if near := get_close_matches(name, vars(options), n=1):
        return f"; did you mean --{near[0]}?"
    value = value or next(iter(others[others.index(word) + 1 :]), "2.0")
    return f"; what an operator takes by name is written {name.replace('-', '_')}={value}"


if __name__ == "__main__":
    sys.exit(main())
