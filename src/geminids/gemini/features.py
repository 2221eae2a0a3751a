"""The supported releases of Gemini CLI, and the differences between them.

All checks of the CLI's version are in this module.
"""

from __future__ import annotations

import msgspec

from geminids.gemini.versions import Version

__all__ = ["NEWEST_TESTED", "OLDEST_SUPPORTED", "Release", "release_of"]

OLDEST_SUPPORTED = "0.54"
NEWEST_TESTED = "0.61"


class Release(msgspec.Struct, frozen=True):
    """One release of Gemini CLI. `version` is its version number; None if the number is unknown.

    Two kinds of releases are assumed to have all features of the newest tested release: releases
    with an unknown version, and releases newer than `NEWEST_TESTED`, such as 0.62.0 in the example.

    >>> release_of("0.60.1").ignores_local_env, release_of("0.62.0").ignores_local_env
    (False, True)
    """

    version: str | None

    @property
    def name(self) -> str:
        """The name of the release for messages, such as "Gemini CLI 0.61.0"."""
        return f"Gemini CLI {self.version}" if self.version else "this Gemini CLI (version unknown)"

    def is_since(self, boundary: str) -> bool:
        """Return whether this release is at least as new as the version `boundary`, such as "0.59".

        A preview counts as its final release: 0.59.0-preview.1 counts as 0.59.0. An unknown version
        counts as newer than all others.
        """
        own, first = Version.parse(self.version), Version.parse(boundary)
        return own is None or first is None or own.core >= first.core

    @property
    def is_supported(self) -> bool:
        return self.is_since(OLDEST_SUPPORTED)

    @property
    def why_refused(self) -> str | None:
        """A message that says why geminids does not run this release; None if geminids runs it.

        >>> release_of("0.41.2").why_refused
        'Gemini CLI 0.41.2 is too old: geminids needs 0.54 or newer; run `geminids install`'
        """
        if self.is_supported:
            return None
        return f"{self.name} is too old: geminids needs {OLDEST_SUPPORTED} or newer; run `geminids install`"

    @property
    def is_tested(self) -> bool:
        """Whether geminids is tested with this release.

        True for a final release from `OLDEST_SUPPORTED` to `NEWEST_TESTED`, with any patch number
        (0.61.1 counts as 0.61). False for all other releases, for previews and nightlies, and for
        an unknown version.
        """
        own, newest = Version.parse(self.version), Version.parse(NEWEST_TESTED)
        assert newest is not None
        return own is not None and own.final and self.is_supported and own.core[:2] <= newest.core[:2]

    @property
    def restricted_mode(self) -> bool:
        """Whether this release supports the environment variable GEMINI_RESTRICTED_MODE."""
        return self.is_since("0.59")

    @property
    def ignores_local_env(self) -> bool:
        """Whether this release supports the setting `advanced.ignoreLocalEnv`."""
        return self.is_since("0.61")


def release_of(version: str | None) -> Release:
    """Return the release with this version number. `version` is None if the version is unknown.

    >>> release_of("0.54.4").is_supported, release_of(None).is_supported, release_of("0.53.0").is_supported
    (True, True, False)
    """
    return Release(version)
