"""The scripts named in shims that npm, pnpm and yarn write."""

from __future__ import annotations

from pathlib import Path, PurePosixPath, PureWindowsPath

import pytest

from geminids.gemini.locate.shims import runs_on_node, shim_target, target_in_cmd, target_in_ps1, target_in_sh

# cmd-shim 6 and 7 (npm 8 and newer)
CMD = r"""@ECHO off
GOTO start
:find_dp0
SET dp0=%~dp0
EXIT /b
:start
SETLOCAL
CALL :find_dp0

IF EXIST "%dp0%\node.exe" (
  SET "_prog=%dp0%\node.exe"
) ELSE (
  SET "_prog=node"
  SET PATHEXT=%PATHEXT:;.JS;=;%
)

endLocal & goto #_undefined_# 2>NUL || title %COMSPEC% & "%_prog%"  "%dp0%\node_modules\@google\gemini-cli\bundle\gemini.js" %*
"""  # noqa: E501
CMD_OLD = r"""@IF EXIST "%~dp0\node.exe" (
  "%~dp0\node.exe"  "%~dp0\node_modules\@google\gemini-cli\dist\index.js" %*
) ELSE (
  node  "%~dp0\node_modules\@google\gemini-cli\dist\index.js" %*
)
"""
CMD_PNPM = r"""@SETLOCAL
@IF NOT DEFINED NODE_PATH (
  @SET "NODE_PATH=C:\pnpm\global\5\node_modules"
)
@IF EXIST "%~dp0\node.exe" (
  "%~dp0\node.exe"  "%~dp0\global\5\node_modules\@google\gemini-cli\bundle\gemini.js" %*
) ELSE (
  node  "%~dp0\global\5\node_modules\@google\gemini-cli\bundle\gemini.js" %*
)
"""
PS1 = """#!/usr/bin/env pwsh
$basedir=Split-Path $MyInvocation.MyCommand.Definition -Parent

$exe=""
if ($PSVersionTable.PSVersion -lt "6.0" -or $IsWindows) {
  $exe=".exe"
}
$ret=0
if (Test-Path "$basedir/node$exe") {
  if ($MyInvocation.ExpectingInput) {
    $input | & "$basedir/node$exe"  "$basedir/node_modules/@google/gemini-cli/bundle/gemini.js" $args
  }
}
exit $ret
"""
SH = """#!/bin/sh
basedir=$(dirname "$(echo "$0" | sed -e 's,\\\\,/,g')")

case `uname` in
    *CYGWIN*|*MINGW*|*MSYS*) basedir=`cygpath -w "$basedir"`;;
esac

if [ -x "$basedir/node" ]; then
  exec "$basedir/node"  "$basedir/../@google/gemini-cli/bundle/gemini.js" "$@"
else
  exec node  "$basedir/../@google/gemini-cli/bundle/gemini.js" "$@"
fi
"""


def test_cmd() -> None:
    """The target of npm's .cmd shim is the script next to it."""
    folder = PureWindowsPath(r"C:\Users\A B\AppData\Roaming\npm")
    expected = folder / r"node_modules\@google\gemini-cli\bundle\gemini.js"
    assert target_in_cmd(CMD, folder) == expected


@pytest.mark.parametrize(
    ("text", "tail"),
    [
        (CMD_OLD, r"node_modules\@google\gemini-cli\dist\index.js"),
        (CMD_PNPM, r"global\5\node_modules\@google\gemini-cli\bundle\gemini.js"),
        (r'@node "%~dp0\..\lib\gemini.js" %*', r"..\lib\gemini.js"),
        (r'@"C:\n\node.exe" "D:\x y\gemini.mjs" %*', r"D:\x y\gemini.mjs"),
    ],
    ids=["old npm", "pnpm", "climbing", "absolute"],
)
def test_other_cmd(text: str, tail: str) -> None:
    """The .cmd shims of older npm and of pnpm are read too, also with `..` or an absolute path."""
    folder = PureWindowsPath(r"C:\tools\bin")
    expected = PureWindowsPath(r"C:\tools\lib\gemini.js") if tail.startswith("..") else folder / tail
    assert target_in_cmd(text, folder) == expected


def test_ps1() -> None:
    """The target of npm's PowerShell shim is the same script."""
    folder = PureWindowsPath(r"C:\npm")
    assert target_in_ps1(PS1, folder) == folder / "node_modules/@google/gemini-cli/bundle/gemini.js"


def test_sh() -> None:
    """The target of a shell shim is resolved, also with `..` or an absolute path."""
    folder = PurePosixPath("/w/node_modules/.bin")
    assert target_in_sh(SH, folder) == PurePosixPath("/w/node_modules/@google/gemini-cli/bundle/gemini.js")
    absolute = '#!/bin/sh\nexec node "/opt/g/gemini.js" "$@"\n'
    assert target_in_sh(absolute, folder) == PurePosixPath("/opt/g/gemini.js")


@pytest.mark.parametrize("text", ["", "@echo off\r\nrem nothing", "MZ\x00\x01", '"%dp0%\\tool.exe" %*'])
def test_no_target(text: str) -> None:
    """A text that names no script has no target."""
    assert target_in_cmd(text, PureWindowsPath("C:/")) is None
    assert target_in_ps1(text, PureWindowsPath("C:/")) is None
    assert target_in_sh(text, PurePosixPath("/")) is None


def test_by_suffix() -> None:
    """The suffix of the file decides how a shim is read. A binary has no target."""
    here = Path("/w/node_modules/.bin")
    assert shim_target(here / "gemini", SH) == Path("/w/node_modules/@google/gemini-cli/bundle/gemini.js")
    script = Path("/w/node_modules/.bin/node_modules/@google/gemini-cli/bundle/gemini.js")
    assert shim_target(here / "gemini.ps1", PS1) == script
    assert shim_target(here / "gemini", "\x7fELF") is None


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("#!/usr/bin/env node\n", True),
        ("#!/usr/bin/env -S node --no-warnings=DEP0040\n", True),
        ("#!/opt/homebrew/bin/node\n", True),
        ("#!/usr/bin/env nodejs-thing\n", False),
        ("#!/bin/bash\nnode x.js", False),
        ("", False),
    ],
)
def test_node_scripts(line: str, expected: bool) -> None:
    """Every spelling of a first line that runs node is recognised."""
    assert runs_on_node(line) is expected
