"""What a release can do: every boundary, from both sides."""

from __future__ import annotations

import msgspec
import pytest

from geminids.toolchain import models_of, release_of
from geminids.toolchain.releases import ABILITIES, Release
from geminids.toolchain.versions import Version

# The last release without, and the first with it, both as npm has them.
BOUNDARIES = [
    ("stream_json", "0.10.0", "0.11.3"),
    ("reports_api_errors", "0.11.3", "0.12.0"),
    ("fake_responses", "0.11.3", "0.12.0"),
    ("hooks", "0.12.0", "0.13.0"),
    ("policy_engine", "0.12.0", "0.13.0"),
    ("resume", "0.18.4", "0.19.1"),
    ("json_session_id", "0.20.2", "0.21.3"),
    ("stats_cached", "0.21.3", "0.22.4"),
    ("skills", "0.22.4", "0.24.0"),
    ("private_home", "0.24.5", "0.25.0"),
    ("plan_mode", "0.25.0", "0.26.0"),
    ("raw_output", "0.26.0", "0.27.0"),
    ("strips_ansi", "0.26.0", "0.27.0"),
    ("acp_load_session", "0.27.4", "0.28.1"),
    ("agents_skills_dir", "0.27.4", "0.28.1"),
    ("policy_files", "0.29.0", "0.30.0"),
    ("policy_allows", "0.33.0", "0.34.0"),
    ("acp_set_mode", "0.30.1", "0.31.0"),
    ("signal_handlers", "0.31.0", "0.32.1"),
    ("acp_set_model", "0.32.1", "0.33.0"),
    ("mcp_prefix", "0.32.1", "0.33.0"),
    ("stats_models", "0.33.2", "0.34.0"),
    ("resume_latest_starts_fresh", "0.33.2", "0.34.0"),
    ("admin_policy", "0.34.0", "0.35.0"),
    ("acp_quota", "0.35.3", "0.36.0"),
    ("warm", "0.53.0", "0.54.4"),
    ("topic_updates", "0.36.0", "0.37.2"),
    ("light_parent", "0.38.2", "0.39.0"),
    ("invoke_agent", "0.38.2", "0.39.0"),
    ("needs_trust", "0.39.0", "0.39.1"),
    ("skip_trust_flag", "0.39.0", "0.39.1"),
    ("core_tools_restrict", "0.39.1", "0.40.0"),
    ("substitution_blocked", "0.39.1", "0.40.0"),
    ("session_id_flag", "0.40.1", "0.41.0"),
    ("include_directories_media", "0.31.0", "0.32.0"),
    ("ignores_local_env", "0.60.0", "0.61.0"),
    ("honours_no_proxy", "0.41.2", "0.47.0"),  # read in both; nobody looked between them
    ("model_configs", "0.23.0", "0.24.0"),
    ("reports_empty_answer", "0.41.2", "0.42.0"),
    ("json_warnings", "0.41.2", "0.42.0"),
    ("session_file_flag", "0.42.0", "0.43.0"),
    ("tool_results_as_messages", "0.53.0", "0.54.4"),
    ("restricted_mode", "0.58.0", "0.59.0"),
    ("build_file_protection", "0.60.0", "0.61.0"),
    ("acp", "0.1.22", "0.2.1"),
    ("single_process", "0.5.5", "0.6.1"),
]


@pytest.mark.parametrize(("ability", "without", "first"), BOUNDARIES, ids=[b[0] for b in BOUNDARIES])
def test_boundary(ability: str, without: str, first: str) -> None:
    """An ability begins with its first release, and the one before says what it lacks and what it needs."""
    assert getattr(release_of(first), ability) is True
    assert release_of(first).lacks(ability) is None
    assert getattr(release_of(without), ability) is False
    assert (release_of(without).lacks(ability) or "").startswith(f"Gemini CLI {without} has no ")


def test_every_row_has_a_boundary_here() -> None:
    """No row of the table is left untried."""
    ended = {row.name for row in ABILITIES if row.until}
    assert {row.name for row in ABILITIES} - ended == {name for name, _, _ in BOUNDARIES}


def test_every_row_is_a_field() -> None:
    """The table and the struct name the same abilities."""
    own = {"version", "tested", "session_storage", "acp_flag"}
    fields = {field.name for field in msgspec.structs.fields(Release)}
    assert fields - own == {row.name for row in ABILITIES}


def test_what_ended() -> None:
    """What a later release took away is gone from it, and it says since when."""
    assert release_of("0.59.0").system_settings
    assert not release_of("0.60.0").system_settings
    assert "gone since 0.60" in (release_of("0.61.0").lacks("system_settings") or "")
    loops = [release_of(v).relaunch_loops_on_42 for v in ("0.5.5", "0.6.1", "0.22.4", "0.24.0")]
    assert loops == [False, True, True, False]


def test_texts() -> None:
    """The sentence is one that a user can act on."""
    said = release_of("0.11.3").lacks("resume")
    assert said == "Gemini CLI 0.11.3 has no --resume for a prompt on stdin (needs 0.19 or newer)"
    assert "version unknown" in (release_of(None).lacks("system_settings") or "")


@pytest.mark.parametrize(
    ("version", "storage"),
    [
        ("0.11.3", "sha256_json"),
        ("0.28.2", "sha256_json"),
        ("0.29.0", "slug_json"),
        ("0.38.2", "slug_json"),
        ("0.39.0", "slug_journal"),
        ("0.61.0", "slug_journal"),
    ],
)
def test_session_storage(version: str, storage: str) -> None:
    """The three generations of session files."""
    assert release_of(version).session_storage == storage


def test_acp_flag() -> None:
    """The flag of the warm lane, by release."""
    flags = [release_of(v).acp_flag for v in ("0.1.22", "0.2.1", "0.32.1", "0.33.0", None)]
    assert flags == [None, "--experimental-acp", "--experimental-acp", "--acp", "--acp"]


@pytest.mark.parametrize("version", [None, "0.62.0", "1.0.0", "0.62.0-nightly.20261101.abcdef0", "garbage"])
def test_unknown_releases(version: str | None) -> None:
    """An unknown or newer release is taken to do what the newest one does, and is not called tested."""
    unknown, newest = release_of(version), release_of("0.61.0")
    assert not unknown.tested
    assert msgspec.structs.replace(unknown, version="0.61.0", tested=True) == newest


def test_tested() -> None:
    """Only finished releases within the tried range are called tested."""
    versions = ["0.10.0", "0.11.0", "0.41.0-preview.1", "0.61.0", "0.61.9", "0.62.0"]
    assert [release_of(v).tested for v in versions] == [False, True, False, True, True, False]


def test_a_preview_has_what_its_release_has() -> None:
    """`0.41.0-preview.1` sorts before 0.41.0 and yet has --session-id."""
    assert release_of("0.41.0-preview.1").session_id_flag


def test_version_order() -> None:
    """Versions sort as semver says: numbers as numbers, a preview before its release, words after numbers."""
    ordered = [
        "0.9.0",
        "0.10.0",
        "0.41.0-nightly.20260101.1a2b3c4",
        "0.41.0-preview.0",
        "0.41.0-preview.2",
        "0.41.0-preview.10",
        "0.41.0",
        "0.41.2",
        "1.0.0",
    ]
    parsed = [Version.parse(text) for text in ordered]
    assert None not in parsed
    assert sorted(v for v in reversed(parsed) if v) == parsed
    assert [str(v) for v in parsed] == ordered


@pytest.mark.parametrize("text", [None, "", "latest", "0", "a.b.c", "0.1.2.3", "0.1-", "../0.1.2"])
def test_no_version(text: str | None) -> None:
    """What is no version is None, never an error."""
    assert Version.parse(text) is None


def test_models_by_release() -> None:
    """Aliases came with 0.16, and stand for other models in each generation; ids come with their release."""

    def aliases(version: str) -> dict[str, str | None]:
        return {model.id: model.means for model in models_of(release_of(version)) if model.kind == "alias"}

    def ids(version: str) -> set[str]:
        return {model.id for model in models_of(release_of(version)) if model.kind == "id"}

    assert aliases("0.15.3") == {"auto": None}
    assert aliases("0.16.0")["flash"] == "gemini-2.5-flash"
    assert aliases("0.41.2")["flash"] == "gemini-3-flash-preview"
    assert aliases("0.61.0") == {
        "auto": None,
        "pro": "gemini-3.1-pro-preview",
        "flash": "gemini-3.8-flash",
        "flash-lite": "gemini-3.5-flash-lite",
    }
    assert "gemini-3.8-flash" in ids("0.61.0") - ids("0.60.0")
    assert "gemini-3.5-flash" in ids("0.45.2") - ids("0.41.2")
    assert models_of(release_of(None)) == models_of(release_of("0.61.0"))
