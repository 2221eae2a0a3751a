"""A separate machine for each test: real files in a temporary home, and the real Node."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from geminids.config.paths import Places

# A fake npm: it answers `view`, and `install` writes a package that runs.
NPM = """\
#!/bin/sh
echo "$@" >> "$NPM_LOG"
case "$1 $2" in
"view @google/gemini-cli@latest") echo '"0.61.0"'; exit ;;
"view @google/gemini-cli@0.41") echo '["0.41.0", "0.41.2"]'; exit ;;
"view @google/gemini-cli") echo '["0.9.0", "0.41.2", "0.10.0", "0.61.0", "0.61.0-preview.1"]'; exit ;;
view*) echo "npm error code E404" >&2; echo "npm error 404 No match found for version" >&2; exit 1 ;;
esac
test -z "$NPM_PID" || { echo $$ > "$NPM_PID"; sleep 60; }
test -z "$NPM_ERROR" || { echo "$NPM_ERROR" >&2; exit 1; }
for word in "$@"; do case "$word" in @google/gemini-cli@*) version=${word##*@} ;; esac; done
folder="${2#--prefix=}/node_modules/@google/gemini-cli"
mkdir -p "$folder/bundle"
cat > "$folder/package.json" <<END
{"name": "@google/gemini-cli", "version": "${NPM_BRINGS:-$version}", "bin": {"gemini": "bundle/gemini.js"}}
END
echo "console.log('${NPM_PRINTS:-$version}')" > "$folder/bundle/gemini.js"
"""


class Machine:
    """A home, a PATH and a geminids folder inside one temporary folder."""

    def __init__(self, root: Path, node: Path) -> None:
        self.root = root
        self.home = root / "home"
        self.bin = root / "bin"
        self.places = Places(root / "geminids")
        node_bin = root / "node-bin"
        for folder in (self.home, self.bin, node_bin):
            folder.mkdir()
        (node_bin / "node").symlink_to(node)
        path = os.pathsep.join([str(self.bin), str(node_bin)])
        self.environ = {"HOME": str(self.home), "PATH": path, "GEMINIDS_HOME": str(self.places.root)}

    def package(self, folder: Path, version: str = "0.61.0") -> Path:
        """Write a package that runs and prints its version; return its script."""
        script = folder / "bundle" / "gemini.js"
        script.parent.mkdir(parents=True)
        manifest = {"name": "@google/gemini-cli", "version": version, "bin": {"gemini": "bundle/gemini.js"}}
        (folder / "package.json").write_text(json.dumps(manifest))
        script.write_text(f"#!/usr/bin/env node\nconsole.log('{version}')\n")
        script.chmod(0o755)
        return script

    def managed(self, version: str, tag: str | None = None) -> Path:
        """Put a release where `geminids install` would put it; return its script."""
        folder = self.places.releases / version
        script = self.package(folder / "node_modules" / "@google" / "gemini-cli", version)
        (folder / "geminids.json").write_text(json.dumps({"version": version, "installed_at": 1, "tag": tag}))
        return script

    def program(self, path: Path, text: str) -> Path:
        """Write an executable script."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        return path

    def npm(self, **variables: str) -> Path:
        """Put a fake npm on PATH and return the log of its calls.

        `variables` control its behaviour.
        """
        log = self.root / "npm.log"
        self.program(self.bin / "npm", NPM)
        self.environ["PATH"] += os.pathsep + "/usr/bin" + os.pathsep + "/bin"
        self.environ |= {"NPM_LOG": str(log), **variables}
        return log


@pytest.fixture
def machine(tmp_path: Path, node: Path) -> Machine:
    return Machine(tmp_path, node)
