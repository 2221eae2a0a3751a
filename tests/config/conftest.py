"""A user's configuration file and a project, in a temporary folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from geminids.config import Loaded, load_options


@dataclass
class ConfigFiles:
    """A user's file, a project in a repository, and an environment with nothing but HOME."""

    root: Path

    @property
    def user(self) -> Path:
        return self.root / "home" / ".config" / "geminids" / "config.toml"

    @property
    def project(self) -> Path:
        return self.root / "repo" / "geminids.toml"

    @property
    def folder(self) -> Path:
        return self.project.parent

    def write(self, user: str = "", project: str = "") -> None:
        if user:
            self.user.write_text(user)
        if project:
            self.project.write_text(project)

    def load(self, environ: dict[str, str] | None = None, /, **flags: Any) -> Loaded:
        environ = {"HOME": str(self.root / "home"), **(environ or {})}
        return load_options(self.folder, environ=environ, flags=flags)


@pytest.fixture
def config_files(tmp_path: Path) -> ConfigFiles:
    """Folders for the files of a user and of a project; both files are missing at first."""
    files = ConfigFiles(tmp_path.resolve())
    files.user.parent.mkdir(parents=True)
    (files.folder / ".git").mkdir(parents=True)
    return files
