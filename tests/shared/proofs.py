"""The tests that docs/reference/seeds.md names as proofs of the specification."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SEEDS_PAGE = ROOT / "docs" / "reference" / "seeds.md"


@functools.cache
def named_tests() -> frozenset[str]:
    """The named tests as `tests/real/test_x.py::test_y`."""
    return frozenset(re.findall(r"`(tests/\S+?\.py::test_\w+)`", SEEDS_PAGE.read_text()))


def reject_skipped_proof(report: pytest.TestReport, name: str) -> None:
    """Turn the report of a skipped test into a failure if the page names the test. A test that
    reads ../shared may be skipped where that folder does not exist."""
    if report.skipped and name in named_tests() and (ROOT.parent / "shared").exists():
        report.outcome = "failed"
        report.longrepr = (
            f"docs/reference/seeds.md names this test as a proof, but it was skipped: {report.longrepr}"
        )
