"""Install Gemini CLI and Node into the folder of geminids (`GEMINIDS_HOME`)."""

from __future__ import annotations

from geminids.gemini.install.cli import available_versions, install, uninstall

__all__ = ["available_versions", "install", "uninstall"]
