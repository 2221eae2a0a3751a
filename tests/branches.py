"""The gate of `make test`: how many branches of wire/, events/ and dialects/ their own tests took (`coverage json`)."""

from __future__ import annotations

import json
import sys

LEAST = 95.0


def main() -> int:
    """Read the report from stdin, say the figure, and fail below `LEAST`; the worst files are named then."""
    report = json.load(sys.stdin)
    taken = _share(report["totals"])
    print(
        f"branches of wire, events and dialects that their tests took: {taken:.1f} % (at least {LEAST:g} %)"
    )
    if taken >= LEAST:
        return 0
    files = sorted((_share(file["summary"]), name) for name, file in report["files"].items())
    print(*(f"  {share:5.1f} %  {name}" for share, name in files[:10]), sep="\n")
    return 1


def _share(summary: dict[str, int]) -> float:
    return 100 * summary["covered_branches"] / summary["num_branches"] if summary["num_branches"] else 100.0


if __name__ == "__main__":
    sys.exit(main())
