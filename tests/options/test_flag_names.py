"""Options in messages: Python names in Python, flags in the terminal."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from geminids.errors import OptionsError
from geminids.options import CAPABILITIES
from geminids.options.flag_names import error_text, flag_of, with_flags
from geminids.options.flags import fields

SOURCE = Path(__file__).parents[2] / "src" / "geminids"
NAMES = {field.name.removeprefix("permissions.") for field in fields() if field.flag}
# Words that can only be the name of an option, and `name='value'`.
_BARE = re.compile(
    rf"(?<![-\w.`\"'\[{{])(?:{'|'.join(name for name in NAMES if '_' in name)})(?![\w`])"
    rf"|(?<![-\w.`\"'])(?:{'|'.join(NAMES)})=(?:'|True|False|\{{)"
)
# Texts that are not messages of a run: code, patterns, fields of other formats, and the names of
# parameters of Python functions.
_NOT_MESSAGES = ("adapters/", "dialects/", "options/flags.py", "config/", "cli/", "gateway/request.py")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Use `home='isolated'`.", "Use `--home isolated`."),
        ('Use `home="isolated"`.', "Use `--home isolated`."),
        ("more with `schema_tries`", "more with --schema-tries"),
        ("`literal=True` is plain text", "--literal is plain text"),
        ("`literal=False`", "--no-literal"),
        ("`timeout=None` and `timeout=5`", "`--timeout none` and `--timeout 5`"),
        ("`permissions.file_write='allow'`", "`--allow file_write`"),
        ("`permissions.allow_tools=['glob']`", "`--allow-tool glob`"),
        ("`allow_commands=['git status', 'ls']`", "`--allow-command 'git status' --allow-command ls`"),
        ("`variables={'a': '…'}`", "`--var a=…`"),
        ("is in `deny_tools`", "is in --deny-tool"),
    ],
)
def test_options_in_backticks_become_flags(text: str, expected: str) -> None:
    """An option in backticks is replaced by its flag, with its value as a shell would need it."""
    assert with_flags(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "home='isolated' and resume without backticks",
        "run `geminids doctor`, or set `tools.sandbox`",
        "`line_limit` has no flag",
        "`shell` is a capability",
        "an open ` backtick and `unknown_name='x'`",
        "",
    ],
)
def test_other_text_stays_as_it_is(text: str) -> None:
    """Text that names no option in backticks is not changed."""
    assert with_flags(text) == text


@pytest.mark.parametrize("field", fields(), ids=lambda field: field.name)
def test_every_option_with_a_flag_is_replaced(field: object) -> None:
    """Each option that has a flag is replaced by exactly that flag, and its label too."""
    name, flag = field.name, field.flag  # type: ignore[attr-defined]
    capability = name.removeprefix("permissions.") in CAPABILITIES and name.startswith("permissions.")
    if capability:
        assert with_flags(f"`{name}='deny'`") == f"`--deny {name.removeprefix('permissions.')}`"
    else:
        assert with_flags(f"`{name}`") == (flag or f"`{name}`")
        assert flag_of(name) == (flag or name)


def test_errors_keep_python_names_in_python() -> None:
    """The text of an error has Python names; only the text for the terminal has flags."""
    error = OptionsError(
        [("schema_tries", "is 5"), ("session_id", "cannot be used with `resume`"), ("x", "y")]
    )
    assert "schema_tries: is 5" in str(error) and "session_id: cannot be used with `resume`" in str(error)
    assert error_text(error).splitlines()[1:] == [
        "  --schema-tries: is 5",
        "  --session-id: cannot be used with --resume",
        "  x: y",
    ]


def test_every_message_names_options_in_backticks() -> None:
    """No message of the source names an option without backticks: the terminal would print the
    Python name."""
    found = [
        f"{name}:{node.lineno}: {text}"
        for file in sorted(SOURCE.rglob("*.py"))
        if not (name := str(file.relative_to(SOURCE))).startswith(_NOT_MESSAGES)
        for node, text in _texts(file)
        if " " in text and _BARE.search(text)
    ]
    assert found == []


def _texts(file: Path) -> list[tuple[ast.expr, str]]:
    """The strings of a module that are no docstrings, with `{}` for each value."""
    tree = ast.parse(file.read_bytes())
    expressions = [node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)]
    skipped = {id(value) for value in expressions if isinstance(value, ast.Constant)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            skipped.update(id(part) for part in ast.walk(node) if part is not node)
    texts: list[tuple[ast.expr, str]] = []
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            texts.append((node, node.value))
        elif isinstance(node, ast.JoinedStr):
            parts = [str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values]
            texts.append((node, "".join(parts)))
    return texts
