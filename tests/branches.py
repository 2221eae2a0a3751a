"""The coverage check of `make test`: the share of branches in gemini/protocol/, events/ and
dialects/ that their own tests cover."""

from __future__ import annotations

import json
import sys

LEAST = 95.0


def main() -> int:
    """Read the output of `coverage json` from stdin and print the share of covered branches.

    Below `LEAST`, print the ten worst files and return 1.
    """
    report = json.load(sys.stdin)
    covered = _share(report["totals"])
    print(
        "branches of gemini/protocol, events and dialects that their tests cover: "
        f"{covered:.1f} % (at least {LEAST:g} %)"
    )
    if covered >= LEAST:
        return 0
    files = sorted((_share(file["summary"]), name) for name, file in report["files"].items())
    print(*(f"  {share:5.1f} %  {name}" for share, name in files[:10]), sep="\n")
    return 1


def _share(summary: dict[str, int]) -> float:
    return 100 * summary["covered_branches"] / summary["num_branches"] if summary["num_branches"] else 100.0


if __name__ == "__main__":
    sys.exit(main())
