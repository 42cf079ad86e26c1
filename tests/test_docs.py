"""Every example in the docs is run, or, if it is a team file, checked."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from coderoom.blocks import Block, extract_code_blocks
from coderoom.configs import check_team, make_model
from coderoom.integrations.service import read_tenants
from tests.support.commands import ROOT, coderoom, run_script
from tests.support.openai_server import OpenAIServer, Request

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


# Their examples take longest; `make test-full` runs them too.
LONG = (
    "docs/commands.md",
    "docs/fix.md",
    "docs/generation.md",
    "docs/integrations.md",
    "docs/judge.md",
    "docs/service.md",
    "docs/tutorial.md",
)


def with_marks(place: str, *arguments: Any) -> Any:
    return pytest.param(*arguments, id=place, marks=pytest.mark.slow if place.startswith(LONG) else ())


def blocks(language: str) -> list[tuple[str, Block]]:
    found = [(page, block) for page in PAGES for block in extract_code_blocks(page.read_text())]
    return [
        (f"{page.relative_to(ROOT)}:{block.line}", block)
        for page, block in found
        if block.language == language and not block.no_run
    ]


def test_there_are_examples() -> None:
    assert len(blocks("python")) >= 4
    assert all(block.closed for page in PAGES for block in extract_code_blocks(page.read_text()))


@pytest.mark.parametrize(("place", "block"), [with_marks(place, place, block) for place, block in blocks("python")])
def test_python_example_runs(tmp_path: Path, place: str, block: Block) -> None:
    # Examples name files of the checkout, but leave nothing in it.
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    script = tmp_path / "example.py"
    script.write_text(block.code)
    done = run_script(script, cwd=tmp_path)
    assert done.returncode == 0, f"{place}\n{done.stderr}"


@pytest.mark.parametrize(("place", "block"), blocks("yaml"), ids=lambda value: value if isinstance(value, str) else "")
def test_team_file_example_is_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, block: Block) -> None:
    if block.code.startswith("replies:"):
        (tmp_path / "recording.yaml").write_text(block.code)
        assert make_model(f"replay:{tmp_path / 'recording.yaml'}")
        return
    if "component_type: model" in block.code:
        (tmp_path / "model.yaml").write_text(block.code)
        assert make_model(str(tmp_path / "model.yaml"))
        return
    if "{token: " in block.code:
        for name in re.findall(r"\$\{(\w+)\}", block.code):
            monkeypatch.setenv(name, f"secret-of-{name}")
        (tmp_path / "tenants.yaml").write_text(block.code)
        assert read_tenants(tmp_path / "tenants.yaml")
        return
    (tmp_path / "team.yaml").write_text(block.code)
    assert check_team(tmp_path / "team.yaml") == [], place
    # The page says that the example is a file.
    assert any(block.code in file.read_text() for file in (ROOT / "examples").glob("*team.yaml")), place


def test_the_recording_in_the_docs_plays(tmp_path: Path) -> None:
    [(_, block)] = [found for found in blocks("yaml") if found[1].code.startswith("replies:")]
    (tmp_path / "r.yaml").write_text(block.code)
    done = coderoom("run", "coder-reviewer", "2 to the 100?", "--model", "replay:r.yaml", "--json", cwd=tmp_path)
    run = json.loads(done.stdout)
    assert (done.returncode, run["attempts"], run["approved"]) == (0, 2, True)


# A server of Studio, and functions in a module of the reader's; each has tests of its own.
NOT_RUN = ("coderoom studio", "coderoom solve --tests-for", 'coderoom solve "Prices', "coderoom run test-driven")


def answer(request: Request) -> str:
    if "response_format" in request.body:
        return json.dumps({"approved": True, "issues": [], "summary": "Fine."})
    code = "```python\nprint(42)\n```"
    return "It is 42." if "print(42)" in str(request.messages) else code


@pytest.mark.parametrize("page", [with_marks(str(page.relative_to(ROOT)), page) for page in PAGES])
def test_commands_run_as_printed(tmp_path: Path, page: Path) -> None:
    found = [block for block in extract_code_blocks(page.read_text()) if block.language == "sh" and not block.no_run]
    lines = [line for block in found for line in block.code.splitlines() if line.startswith("coderoom ")]
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for line in lines:
        if line.startswith(NOT_RUN):
            continue
        with OpenAIServer(respond=answer) as server:
            env = {"OPENAI_API_KEY": "test", "OPENAI_BASE_URL": server.base_url, "XDG_STATE_HOME": str(tmp_path)}
            env["CODEROOM_JOURNAL"] = "required"
            env["CODEROOM_MODEL"] = "replay:examples/solve.replay.yaml" if "solve" in line else "gpt-4o-2024-08-06"
            done = coderoom(*shlex.split(line, comments=True)[1:], cwd=tmp_path, env=env)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"


def test_the_notebook_runs(tmp_path: Path) -> None:
    done = coderoom("exec", str(ROOT / "examples" / "notebook.md"), cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert list(tmp_path.iterdir()) == []
