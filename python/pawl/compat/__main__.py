"""The command `pawl compat`: lists the drop-in names and switches them."""

from __future__ import annotations

import argparse
import json
import sys

import _pawl_compat
from pawl import compat

_OK, _FAILURE, _USAGE = 0, 1, 2  # docs/exit-codes.md


def main(argv: list[str] | None = None) -> int:
    """Runs a command line without its program's name; returns the exit code."""
    parser = argparse.ArgumentParser("pawl compat", allow_abbrev=False)
    parser.add_argument("--json", action="store_true", help="one JSON document")
    parser.add_argument("arguments", nargs="*", metavar="use NAME pawl|other|off")
    given = parser.parse_args(argv)
    if given.arguments:
        code = _use(given.arguments)
        if code != _OK or not given.json:
            return code
    print(json.dumps(_document(), indent=2) if given.json else "\n".join(_lines()))
    return _OK


def _use(arguments: list[str]) -> int:
    if arguments[0] != "use" or len(arguments) != 3:
        return _usage(f"{' '.join(arguments)}: expected `use NAME pawl|other|off`")
    try:
        compat.use(arguments[1], arguments[2])
    except ValueError as reason:
        return _usage(str(reason))
    except OSError as reason:
        variable = f"{_pawl_compat.VARIABLE}={arguments[1]}={arguments[2]}"
        print(
            f"pawl compat: {_pawl_compat.FILE} cannot be written: {reason.strerror}; "
            f"{variable} in the environment does the same",
            file=sys.stderr,
        )
        return _FAILURE
    effective = _pawl_compat.choices()[arguments[1]]
    if effective[1] != _pawl_compat.FILE:
        print(
            f"pawl compat: {effective[1]} in the environment still says {effective[0]}",
            file=sys.stderr,
        )
    return _OK


def _usage(message: str) -> int:
    print(f"pawl compat: {message}; see pawl compat --help", file=sys.stderr)
    return _USAGE


def _document() -> dict[str, object]:
    return {
        "python": sys.executable,
        "found_by": compat.found_by(),
        "named_by": compat.named_by(),
        "file": _pawl_compat.FILE,
        "names": [each._asdict() for each in compat.names()],
        "strange": compat.strange(),
    }


def _lines() -> list[str]:
    lines = [f"{each.name:<16}{_provider(each)}{_choice(each)}" for each in compat.names()]
    lines += [f"not understood, in {setting}" for setting in compat.strange()]
    if compat.found_by() is None:
        lines.append(
            f"{sys.executable} read no pawl-compat.pth when it started: a script finds these only "
            f"after `import pawl`, or with PYTHONPATH={compat.STUBS}"
        )
        named_by = compat.named_by()
        if named_by is not None:
            lines.append(
                f"{named_by} names the folder of Pawl, but Python reads .pth files only in its own "
                f"folders: add this line after that one, so that scripts find these at once: "
                f"{compat.LINE}"
            )
    return lines


def _provider(each: compat.Name) -> str:
    other = f"{each.path} ({each.package})" if each.package else each.path
    if each.provider == "other":
        return f"{other}, not Pawl"
    if each.provider == "none":
        return "nobody"
    return "Pawl" if other is None else f"Pawl, not {other}"


def _choice(each: compat.Name) -> str:
    return "" if each.choice is None else f"; {each.choice}, says {each.chosen_in}"


if __name__ == "__main__":
    sys.exit(main())
