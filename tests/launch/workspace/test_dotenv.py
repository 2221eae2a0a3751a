"""Tests of `.env` parsing: values are read as the CLI reads them, and no name that it would find is
missed."""

from __future__ import annotations

import json
import random
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from geminids.launch.environment import names_in, read_dotenv


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A=1\nB = 2 # two\n", {"A": "1", "B": "2"}),
        ("export A='x # y'\r\nB=\"one\\ntwo\"\r", {"A": "x # y", "B": "one\ntwo"}),
        ('A="over\nmany\nlines"\nB=`it\'s`', {"A": "over\nmany\nlines", "B": "it's"}),
        ("A: 1\nB:2\n", {"A": "1"}),
        ("A=\n# B=2\nno line\n", {"A": ""}),
        ("\ufeffA=1\nA=2\n", {"A": "2"}),
        ("A\n=1\nx\u2028B=2\n", {"A": "1", "B": "2"}),
        ("", {}),
    ],
)
def test_variables_are_read(text: str, expected: dict[str, str]) -> None:
    """Quotes, comments, `export`, values over several lines, and JavaScript's white space and line
    ends are understood."""
    assert read_dotenv(text) == expected
    assert set(names_in(text)) >= set(expected)


def test_names_in_an_unclosed_quote_are_found() -> None:
    """`names_in` also returns names inside an unclosed quote: one name too many is safer than one
    too few."""
    assert names_in("A='\nB=2\nC=3") == ("A", "B", "C")


@pytest.mark.parametrize("text", ["\n" * 10**6, " " * 10**6, "a" * 10**6, "a\n" * 300_000, "\t\n" * 500_000])
def test_names_are_found_in_linear_time(text: str) -> None:
    """A hostile file of a megabyte is searched in a few seconds: the time is linear."""
    start = time.monotonic()
    names_in(text)
    assert time.monotonic() - start < 5


_PIECES = (
    "A",
    "B_1",
    "c.d-e",
    "export",
    "=",
    ":",
    "'",
    '"',
    "`",
    "#",
    "\\",
    "\\n",
    "\\'",
    "x",
    "é",
    "A=",
    "\nB=",
)
_BLANKS = " \t\n\r\u2028\ufeff\u00a0\x85\x1c\n="
_PARSE = """\
const dotenv = require(process.argv[1]);
const read = JSON.parse(require('fs').readFileSync(0, 'utf8')).map(text => dotenv.parse(text));
process.stdout.write(JSON.stringify(read));
"""


@pytest.mark.deep
@pytest.mark.real
def test_the_parser_agrees_with_dotenv(installs: Any, node: Path) -> None:
    """For 20,000 random texts, the values equal those of the dotenv package that the CLI uses, and
    no name is missed."""
    from geminids.gemini.install.cli import install

    install("0.24.0", places=installs)  # the newest release with a separate dotenv package
    package = installs.releases / "0.24.0" / "node_modules" / "dotenv"
    generator = random.Random(5)
    texts = [
        "".join(generator.choices([*_PIECES, *_BLANKS], k=generator.randint(1, 14))) for _ in range(20_000)
    ]
    argv = [str(node), "-e", _PARSE, str(package)]
    done = subprocess.run(argv, input=json.dumps(texts).encode(), capture_output=True, check=True, timeout=60)
    parsed = json.loads(done.stdout)
    assert [text for text, expected in zip(texts, parsed, strict=True) if read_dotenv(text) != expected] == []
    assert [
        text for text, expected in zip(texts, parsed, strict=True) if set(expected) - set(names_in(text))
    ] == []
