"""Run the agent-cli-sdk adapter with the real CLI: permission modes, JSON values and resumed
sessions."""

from __future__ import annotations

from typing import Any

import pytest

from geminids.adapters.agent_cli_sdk import execute, execute_sync

pytestmark = pytest.mark.real

_WRITE = ("write_file", {"file_path": "new.txt", "content": "one\n"})


@pytest.mark.parametrize(("mode", "written"), [("default", False), ("acceptEdits", True)])
def test_permission_modes(world: Any, mode: str, written: bool) -> None:
    """The mode `acceptEdits` lets a tool write a file, and `default` does not. The messages report
    the tool's result in both modes."""
    world.gateway.reply(calls=[_WRITE])
    world.gateway.reply(text="Over.")
    result = execute_sync("Write.", world.options(), permission_mode=mode)
    assert (result.success, result.exit_code, result.data) == (True, 0, "Over.")
    assert (world.cwd / "new.txt").exists() == written
    user, first, last = result.messages
    assert [message.role for message in result.messages] == ["user", "assistant", "assistant"]
    assert user.content[0].text == "Write."  # type: ignore[union-attr]
    tool_use, tool_result = list(first.content)[-2:]
    assert (tool_use.name, tool_use.input) == ("Write", _WRITE[1])  # type: ignore[union-attr]
    assert tool_result.is_error is not written  # type: ignore[union-attr]
    assert str(last.model).startswith("gemini-3")


@pytest.mark.anyio
async def test_a_json_value_is_extracted(world: Any) -> None:
    """With `json=True` the adapter extracts a JSON value from the agent's text. The session can be
    resumed."""
    world.gateway.reply(text='It is:\n```json\n{"x": 1}\n```\n')
    result = await execute("What is x?", world.options(), json=True)
    assert result.data == {"x": 1}
    world.gateway.reply(text="Still 1.")
    again = await execute("And now?", world.options(), resume=result.session_id)
    assert (again.session_id, again.data) == (result.session_id, "Still 1.")
