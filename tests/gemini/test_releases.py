"""Which releases geminids supports, and how they differ."""

from __future__ import annotations

import pytest

from geminids.gemini import models_of, release_of
from geminids.gemini.versions import Version


@pytest.mark.parametrize(
    ("feature", "without", "first"),
    [("restricted_mode", "0.58.0", "0.59.0"), ("ignores_local_env", "0.60.0", "0.61.0")],
)
def test_first_release_of_a_feature(feature: str, without: str, first: str) -> None:
    """A feature exists from its first release on, and not in the release before."""
    assert getattr(release_of(without), feature) is False
    assert getattr(release_of(first), feature) is True


@pytest.mark.parametrize("version", ["0.1.0", "0.24.0", "0.41.2", "0.53.9", "0.53.0-preview.1"])
def test_an_older_release_is_refused(version: str) -> None:
    """A release before 0.54 is refused, and the message names it and `geminids install`."""
    release = release_of(version)
    assert not release.is_supported
    assert release.why_refused is not None
    assert f"Gemini CLI {version} is too old" in release.why_refused
    assert "`geminids install`" in release.why_refused


@pytest.mark.parametrize(
    "version", [None, "garbage", "0.54.0", "0.54.0-preview.1", "0.61.0", "0.62.0", "1.0.0", "1.0.0-nightly.1"]
)
def test_a_supported_release_is_not_refused(version: str | None) -> None:
    """0.54, its previews, newer releases and unknown versions are supported."""
    assert release_of(version).is_supported
    assert release_of(version).why_refused is None


@pytest.mark.parametrize("version", [None, "0.62.0", "1.0.0", "0.62.0-nightly.20261101.abcdef0", "garbage"])
def test_unknown_releases(version: str | None) -> None:
    """An unknown or newer release has the features of the newest tested one, but does not count as
    tested.
    """
    release = release_of(version)
    assert not release.is_tested
    assert release.restricted_mode
    assert release.ignores_local_env


def test_tested() -> None:
    """Only final releases in the tested range count as tested."""
    versions = ["0.53.0", "0.54.0", "0.55.0-preview.1", "0.61.0", "0.61.9", "0.62.0"]
    assert [release_of(v).is_tested for v in versions] == [False, True, False, True, True, False]


def test_a_preview_has_what_its_release_has() -> None:
    """A preview has the features of its release, although it sorts before it."""
    assert release_of("0.61.0-preview.1").ignores_local_env


def test_version_order() -> None:
    """Versions sort as in semver: numerically, and a preview before its release."""
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
def test_invalid_versions(text: str | None) -> None:
    """A text that is not a version is parsed as None, without an error."""
    assert Version.parse(text) is None


def test_models_by_release() -> None:
    """An alias means another model in another release. New model ids come with their release."""

    def aliases(version: str) -> dict[str, str | None]:
        return {model.id: model.means for model in models_of(release_of(version)) if model.kind == "alias"}

    def ids(version: str) -> set[str]:
        return {model.id for model in models_of(release_of(version)) if model.kind == "id"}

    assert aliases("0.54.4")["flash"] == "gemini-3.5-flash"
    assert aliases("0.61.0") == {
        "auto": None,
        "pro": "gemini-3.1-pro-preview",
        "flash": "gemini-3.8-flash",
        "flash-lite": "gemini-3.5-flash-lite",
    }
    assert "gemini-3.8-flash" in ids("0.61.0") - ids("0.60.0")
    assert models_of(release_of(None)) == models_of(release_of("0.61.0"))
