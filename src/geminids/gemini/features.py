"""The supported releases of Gemini CLI and their differences. All version comparisons are here."""

from __future__ import annotations

import msgspec

from geminids.gemini.versions import Version

__all__ = ["NEWEST_TESTED", "OLDEST_SUPPORTED", "Release", "release_of"]

OLDEST_SUPPORTED = "0.54"
NEWEST_TESTED = "0.61"


class Release(msgspec.Struct, frozen=True):
    """One release. An unknown or newer version counts as the newest tested one.

    >>> release_of("0.60.1").ignores_local_env, release_of("0.62.0").ignores_local_env
    (False, True)
    """

    version: str | None

    @property
    def name(self) -> str:
        """The release's name in messages."""
        return f"Gemini CLI {self.version}" if self.version else "this Gemini CLI (version unknown)"

    def is_since(self, boundary: str) -> bool:
        """Whether this is release `boundary` or newer. A preview counts as its release."""
        own, first = Version.parse(self.version), Version.parse(boundary)
        return own is None or first is None or own.core >= first.core

    @property
    def is_supported(self) -> bool:
        return self.is_since(OLDEST_SUPPORTED)

    @property
    def why_refused(self) -> str | None:
        """Why geminids does not run this release, in one sentence; None if it does.

        >>> release_of("0.41.2").why_refused
        'Gemini CLI 0.41.2 is too old: geminids needs 0.54 or newer; run `geminids install`'
        """
        if self.is_supported:
            return None
        return f"{self.name} is too old: geminids needs {OLDEST_SUPPORTED} or newer; run `geminids install`"

    @property
    def is_tested(self) -> bool:
        """Whether geminids is tested with it; previews and nightlies, maybe incomplete, are not."""
        own, newest = Version.parse(self.version), Version.parse(NEWEST_TESTED)
        assert newest is not None
        return own is not None and own.final and self.is_supported and own.core[:2] <= newest.core[:2]

    @property
    def restricted_mode(self) -> bool:
        """Whether it supports GEMINI_RESTRICTED_MODE."""
        return self.is_since("0.59")

    @property
    def ignores_local_env(self) -> bool:
        """Whether it supports the setting advanced.ignoreLocalEnv."""
        return self.is_since("0.61")


def release_of(version: str | None) -> Release:
    """Return the release with this version; pass None if the version is unknown.

    >>> release_of("0.54.4").is_supported, release_of(None).is_supported, release_of("0.53.0").is_supported
    (True, True, False)
    """
    return Release(version)
