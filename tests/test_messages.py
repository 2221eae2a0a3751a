"""No decision depends on the wording of our own messages, and every error says what to do next."""

from __future__ import annotations

import ast
from pathlib import Path

from geminids import errors

SOURCE = Path(__file__).parents[1] / "src" / "geminids"
# Attributes and variables that hold text for people.
_ATTRIBUTES = ("hint", "message", "reason", "why", "words")
_VARIABLES = ("reason", "why")
_METHODS = ("startswith", "endswith", "find", "index")
_PATTERNS = ("match", "search", "fullmatch", "findall")
# The errors with a message of their own. The others make their message and hint themselves.
_ERRORS = {
    name for name in errors.__all__ if name not in ("OptionsError", "RunFailed", "SessionBusy", "ScriptError")
}
# Files that test texts of the CLI, of the API or of a protocol, or codes, and why they must.
_ALLOWED = {
    "adapters/leadmetrics/execution.py": "the API's text: a conversation that is too long",
    "cli/shared/flag_parser.py": "click's text: click has no class for extra arguments",
    "events/translate/acp.py": "a code, not a text",
    "events/translate/stream_json.py": "the CLI's text, and a code",
    "launch/prepare.py": "avoids showing a place twice",
    "warm/acp/prompt_answer.py": "the stop reason of the protocol",
    "gemini/protocol/outcome/judge.py": "the CLI's text",
    "gemini/protocol/stream_json.py": "a code, not a text",
}


def test_no_decision_depends_on_a_message() -> None:
    """The source does not compare, search or match the text of our own reasons, messages and
    hints."""
    found = {
        f"{name}:{node.lineno}: {ast.unparse(node)[:100]}"
        for file in sorted(SOURCE.rglob("*.py"))
        if (name := str(file.relative_to(SOURCE))) not in _ALLOWED
        for node in ast.walk(ast.parse(file.read_bytes()))
        if isinstance(node, ast.Compare | ast.Call) and _tests_text(node)
    }
    assert found == set()


def test_every_error_has_a_next_step() -> None:
    """Each error that the source raises with a message has a hint that says what to do. `hint=None`
    states that the caller adds it."""
    raised = [
        (f"{file.relative_to(SOURCE)}:{node.lineno}", node.exc)
        for file in sorted(SOURCE.rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_bytes()))
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)
        if isinstance(node.exc.func, ast.Name) and node.exc.func.id in _ERRORS
    ]
    assert len(raised) > 50
    assert [place for place, call in raised if "hint" not in {each.arg for each in call.keywords}] == []


def _tests_text(node: ast.Compare | ast.Call) -> bool:
    """Whether the expression compares, searches or matches a text for people."""
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        is_none = any(isinstance(side, ast.Constant) and side.value is None for side in sides)
        compares = any(isinstance(op, ast.Eq | ast.NotEq | ast.In | ast.NotIn) for op in node.ops)
        return compares and not is_none and any(map(_is_text, sides))
    if not isinstance(node.func, ast.Attribute):
        return False
    if node.func.attr in _METHODS:
        return _is_text(node.func.value)
    return node.func.attr in _PATTERNS and any(map(_is_text, node.args))


def _is_text(node: ast.expr) -> bool:
    """Whether the expression is a text for people, perhaps with `or ""` around it."""
    if isinstance(node, ast.BoolOp):
        return any(map(_is_text, node.values))
    if isinstance(node, ast.Attribute):
        return node.attr in _ATTRIBUTES
    return isinstance(node, ast.Name) and node.id in _VARIABLES
