"""The permission table, proven with the real CLI: the world is looked at, and what the run says of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from acts import Played, play
from permission_table import AS_PERMISSIONS, TABLE, TABLE_0_54

pytestmark = pytest.mark.real

TABLES = {"0.61.0": TABLE, "0.54.4": TABLE_0_54}
# The runs of the fast set, all on 0.61.0.
FAST = (
    ("default", "nothing"),
    ("auto_edit", "nothing"),
    ("yolo", "nothing"),
    ("plan", "nothing"),
    ("default", "allow"),
    ("yolo", "deny"),
    ("yolo", "only others"),
)


def _runs() -> list[Any]:
    """One run for each release, mode and set of permissions: all its cells are tried in it."""
    runs = dict.fromkeys((version, *row[:2]) for version, table in TABLES.items() for row in table)
    return [
        pytest.param(
            *run, id="-".join(run).replace(" ", "_"), marks=() if _is_fast(*run) else pytest.mark.deep
        )
        for run in runs
    ]


def _is_fast(version: str, approval: str, permissions: str) -> bool:
    return version == "0.61.0" and (approval, permissions) in FAST


@pytest.mark.parametrize(("version", "approval", "permissions"), _runs())
def test_the_table(make_world: Any, version: str, approval: str, permissions: str) -> None:
    """What is allowed happens, what is denied leaves no trace, and the run tells which of the two and why."""
    cells = {row[2]: row[3:] for row in TABLES[version] if row[:2] == (approval, permissions)}
    played = play(make_world(version), cells, approval, AS_PERMISSIONS[permissions])
    wrong = [
        f"{version} {approval}, {permissions}, {act}: {played.outcome(act)} ({played.why(act)}), not {expected} {why}"
        for act, (expected, why) in cells.items()
        if played.outcome(act) != expected or (expected == "denied" and why not in played.why(act))
    ]
    assert not wrong, "\n".join(wrong)
    _assert_offered(played, cells)


def _assert_offered(played: Played, cells: Mapping[str, tuple[str, str]]) -> None:
    """The model is not even told of a tool that the permissions take away, and it is of one that works."""
    offered = {tool for request in played.world.gateway.requests for tool in request.tools}
    gone = ("permissions", "needs permission, and a headless run", "only_tools", "deny_tools")
    works = {played.finished[act].name for act, (expected, _) in cells.items() if expected == "ok"}
    out = {played.finished[act].name for act, (_, why) in cells.items() if any(map(why.count, gone))}
    assert works <= offered
    assert not out & offered
