"""Which releases of Gemini CLI geminids runs, and where they differ. All version comparisons are made here."""

from __future__ import annotations

import msgspec

from geminids.gemini.versions import Version

__all__ = ["NEWEST_TESTED", "OLDEST_SUPPORTED", "Release", "release_of"]

OLDEST_SUPPORTED = "0.54"
NEWEST_TESTED = "0.61"


class Release(msgspec.Struct, frozen=True):
    """One release. An unknown version, and one newer than the newest tested, counts as the newest tested one.

    >>> release_of("0.60.1").ignores_local_env, release_of("0.62.0").ignores_local_env
    (False, True)
    """

    version: str | None

    @property
    def name(self) -> str:
        """The name for messages."""
        return f"Gemini CLI {self.version}" if self.version else "this Gemini CLI (version unknown)"

    def is_since(self, boundary: str) -> bool:
        """Whether this is release `boundary` or a newer one. A preview counts as its release."""
        own, first = Version.parse(self.version), Version.parse(boundary)
        return own is None or first is None or own.core >= first.core

    @property
    def is_supported(self) -> bool:
        return self.is_since(OLDEST_SUPPORTED)

    @property
    def why_refused(self) -> str | None:
        """One sentence that says why geminids does not run this release; None if it does.

        >>> release_of("0.41.2").why_refused
        'Gemini CLI 0.41.2 is too old: geminids runs 0.54 and newer, which `geminids install` installs'
        """
        if self.is_supported:
            return None
        return (
            f"{self.name} is too old: geminids runs {OLDEST_SUPPORTED} and newer, "
            "which `geminids install` installs"
        )

    @property
    def is_tested(self) -> bool:
        """Whether geminids is tested with it. A preview or nightly is not: it may have half of its release."""
        own, newest = Version.parse(self.version), Version.parse(NEWEST_TESTED)
        assert newest is not None
        return own is not None and own.final and self.is_supported and own.core[:2] <= newest.core[:2]

    @property
    def restricted_mode(self) -> bool:
        """It obeys GEMINI_RESTRICTED_MODE."""
        return self.is_since("0.59")

    @property
    def ignores_local_env(self) -> bool:
        """It obeys the setting advanced.ignoreLocalEnv."""
        return self.is_since("0.61")


def release_of(version: str | None) -> Release:
    """The release with this version; None if the version is unknown.

    >>> release_of("0.54.4").is_supported, release_of(None).is_supported, release_of("0.53.0").is_supported
    (True, True, False)
    """
    return Release(version)
