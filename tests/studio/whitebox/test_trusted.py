"""How packages of the user's are linked into Studio's environment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coderoom.studio.trusted import link_packages
from tests.studio.test_studio_trusted import install


def test_an_editable_package_brings_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = install(tmp_path, ["my-own"])
    project = tmp_path / "project"
    project.mkdir()
    (project / "my_own.py").touch()
    info = library / "my_own-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-own\nVersion: 1.0\nRequires-Dist: gauge\n")
    (info / "RECORD").write_text("my_own-1.0.dist-info/METADATA,,\nmy_own.pth,,\n")
    (info / "direct_url.json").write_text(json.dumps({"url": project.as_uri(), "dir_info": {"editable": True}}))
    for folder in (library, project):
        monkeypatch.syspath_prepend(str(folder))
    for name, also in (("my_own", set()), ("parts", {"parts", "parts-1.0.dist-info"})):
        links = tmp_path / name
        links.mkdir()
        assert link_packages(links, [name], {}) == {}
        own = {"my_own.py", "my_own-1.0.dist-info", "gauge", "gauge-1.0.dist-info"}
        assert {path.name for path in links.iterdir()} == own | also
