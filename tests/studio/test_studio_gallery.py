"""What `coderoom studio` puts into AutoGen Studio."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from coderoom.configs import make_gallery
from tests.support.commands import ROOT
from tests.support.studio import Studio, studio_environment, studio_python

pytestmark = pytest.mark.studio

TEAM = ROOT / "examples" / "team.yaml"
SCHEMA = """
import json, sys
from autogenstudio.datamodel.types import GalleryConfig
print(GalleryConfig.model_validate(json.load(sys.stdin)).name)
"""


@pytest.fixture(scope="module")
def gallery() -> dict[str, Any]:
    return make_gallery([TEAM])


def test_it_passes_the_schema_of_studio(gallery: dict[str, Any], tmp_path: Path) -> None:
    def check(given: dict[str, Any]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [studio_python(), "-I", "-c", SCHEMA],
            input=json.dumps(given),
            cwd=tmp_path,
            env=studio_environment() | {"PYTHONWARNINGS": "default"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    assert check(gallery).stdout == "CodeRoom and team\n"
    wrong = {**gallery, "components": {**gallery["components"], "agents": None}}
    assert "components.agents" in check(wrong).stderr


def test_studio_finds_every_component_valid(studio_server: Studio, gallery: dict[str, Any]) -> None:
    components = [component for listed in gallery["components"].values() for component in listed]
    assert len(components) > 20
    for component in components:
        said = studio_server.ask("POST", "/validate/", {"component": component})
        assert (said["is_valid"], said["errors"]) == (True, []), component["label"]
    wrong = {**components[0], "config": {**components[0]["config"], "participants": "nobody"}}
    assert not studio_server.ask("POST", "/validate/", {"component": wrong})["is_valid"]


def test_a_gallery_comes_back_as_it_was_sent(studio_server: Studio, gallery: dict[str, Any]) -> None:
    sent = {**gallery, "id": "sent"}
    stored = studio_server.ask("POST", "/gallery/", {"user_id": "somebody", "config": sent})
    found = studio_server.ask("GET", f"/gallery/{stored['id']}", user_id="somebody")
    assert found["config"] == sent
