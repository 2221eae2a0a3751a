"""The permission table with the real CLI: each call's effect on disk, and what the run reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from permission_table import AS_PERMISSIONS, TABLE, TABLE_0_54
from tool_actions import ActionRun, run_named_actions

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
    """Return one test case for each release, approval mode and set of permissions in the tables.

    A case tries all rows of the table for that combination in one run."""
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
def test_the_permission_table_holds(make_world: Any, version: str, approval: str, permissions: str) -> None:
    """An allowed call runs. A denied call has no effect, and the run reports the reason."""
    cells = {row[2]: row[3:] for row in TABLES[version] if row[:2] == (approval, permissions)}
    action_run = run_named_actions(make_world(version), cells, approval, AS_PERMISSIONS[permissions])
    wrong = [
        f"{version} {approval}, {permissions}, {action}: {action_run.outcome(action)} "
        f"({action_run.why(action)}), not {expected} {why}"
        for action, (expected, why) in cells.items()
        if action_run.outcome(action) != expected
        or (expected == "denied" and why not in action_run.why(action))
    ]
    assert not wrong, "\n".join(wrong)
    _assert_offered_tools(action_run, cells)


def _assert_offered_tools(action_run: ActionRun, cells: Mapping[str, tuple[str, str]]) -> None:
    """The model is offered the tools that it may use, and none that the permissions remove."""
    offered = {tool for request in action_run.world.gateway.requests for tool in request.tools}
    removal_reasons = ("permissions", "needs permission, but a headless run", "only_tools", "deny_tools")
    usable = {action_run.finished[action].name for action, (expected, _) in cells.items() if expected == "ok"}
    removed = {
        action_run.finished[action].name
        for action, (_, why) in cells.items()
        if any(map(why.count, removal_reasons))
    }
    assert usable <= offered
    assert not removed & offered
