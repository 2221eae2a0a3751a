"""The CLI's arguments: `--flag=value` throughout, so that a value that begins with a dash stays a value."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from geminids.ids import new_session_id
from geminids.launch.refused import Refused
from geminids.launch.terms import POLICY, USERS_POLICY, Terms
from geminids.options import Options
from geminids.toolchain import Gemini

__all__ = ["flags_of", "folder_flags", "minted_id", "policy_flags"]


def policy_flags(terms: Terms, env: Mapping[str, str]) -> Sequence[str]:
    """`--policy` for ours and, since that replaces the user's policies, for theirs."""
    ours = [
        os.path.join(env["GEMINI_CLI_HOME"], name) for name in (POLICY, USERS_POLICY) if name in terms.files
    ]
    return [f"--policy={_listed(path, 'the policy')}" for path in (*ours, *terms.policies)]


def _listed(path: str, what: str) -> str:
    """A path for a flag that takes a list with commas."""
    if "," in path:
        raise Refused(
            "config", f"{what} {path} has a comma in its path", "Gemini CLI takes it for two: move it."
        )
    return path


def minted_id(options: Options, gemini: Gemini) -> str | None:
    """An id for a new session, so that lock and records exist before the first byte.

    Where the compile cache makes up for it: `--session-id` costs 0.1 s, since the CLI then asks for a lock that
    its own start-up cleanup holds, and tries again after 100 ms (projectRegistry.ts).
    """
    fast = gemini.node is not None and gemini.node.has_compile_cache
    return new_session_id() if fast and options.resume is None else None


def flags_of(options: Options, session_id: str | None) -> Sequence[str]:
    flags = ["--output-format=stream-json", f"--approval-mode={options.approval}"]
    if options.model is not None:
        flags.append(f"--model={options.model}")
    if options.resume is not None:
        flags.append(f"--resume={options.resume}")
    if session_id is not None:
        flags.append(f"--session-id={session_id}")
    return [*flags, *folder_flags(options)]


def folder_flags(options: Options) -> Sequence[str]:
    """`--include-directories` for each further folder."""
    folders = [_listed(os.path.abspath(folder), "the folder") for folder in options.include_dirs]
    return [f"--include-directories={folder}" for folder in folders]
