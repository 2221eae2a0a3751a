"""The line number of each key in a configuration file."""

from __future__ import annotations

from pathlib import Path

from geminids.config.files import read_config

_TEXT = '''\
# a comment = no key
trusted_projects = [
  "/a = b",  # ]
  "/c",
]

[gemini]
model = "pro" # [not a table]
template = """
approval = "yolo"
[gemini.env]
"""
other = \'\'\'
x = 1\'\'\'
permissions.shell = "deny"
inline = { a = 1, b = [1,
  2] }

  [ gemini . "mcp_servers".'a.b' ]
  command = "x#y"
"quoted \\u0041" = 1
[[many]]
a = 1
[[many]]
a = 2
'''


def _lines(folder: Path, text: str) -> dict[tuple[str, ...], int]:
    (folder / "config.toml").write_bytes(text.encode())
    config = read_config(str(folder / "config.toml"))
    assert config is not None
    return config.lines


def test_each_key_has_its_own_line(tmp_path: Path) -> None:
    """Each key has its line number. Strings and lists of several lines contain no keys."""
    assert _lines(tmp_path, _TEXT) == {
        ("trusted_projects",): 2,
        ("gemini",): 7,
        ("gemini", "model"): 8,
        ("gemini", "template"): 9,
        ("gemini", "other"): 13,
        ("gemini", "permissions", "shell"): 15,
        ("gemini", "inline"): 16,
        ("gemini", "mcp_servers", "a.b"): 19,
        ("gemini", "mcp_servers", "a.b", "command"): 20,
        ("gemini", "mcp_servers", "a.b", "quoted \\u0041"): 21,
        ("many",): 22,
        ("many", "a"): 23,
    }


def test_line_endings(tmp_path: Path) -> None:
    """Line numbers are right with CRLF, without a final newline and in an empty file."""
    assert _lines(tmp_path, '[gemini]\r\nmodel = "x"\r\ntimeout = 3') == {
        ("gemini",): 1,
        ("gemini", "model"): 2,
        ("gemini", "timeout"): 3,
    }
    assert _lines(tmp_path, "") == {}
