"""What `coderoom fix` makes of a patch: a branch, a commit, a change of the folder, or nothing."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.runs.fix_scenarios import HONEST, SHOP, TEST, committed, git, plain, write
from tests.runs.test_fix_states import APPROVED
from tests.support.commands import coderoom, recording

ENV = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
FIXED = SHOP.replace("prices[1:]", "prices")
CELL = HONEST + "import os\nos.rename('notes.txt', 'new name.txt')\n"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A committed shop, of somebody, with hooks that would leave a file."""
    folder = tmp_path / "shop"
    folder.mkdir()
    committed(folder)
    git(folder, "config", "user.name", "Ada")
    git(folder, "config", "user.email", "ada@example.org")
    for hook in ("pre-commit", "post-commit", "commit-msg", "reference-transaction", "post-index-change"):
        write(folder, {f".git/hooks/{hook}": f"#!/bin/sh\ntouch {tmp_path}/hooked\n"})
        (folder / ".git/hooks" / hook).chmod(0o755)
    return folder


def fix(repository: Path, *options: str, cell: str = CELL, answer: str = "") -> subprocess.CompletedProcess[str]:
    said = "Take the first price, too.\n\nThe slice left it out."
    model = recording(repository.parent / "model.yaml", [f"```python\n{cell}```", said, APPROVED])
    common = ("fix", str(repository), "It is wrong.", "--test", TEST, "--model", model, "--no-journal", "--json")
    return coderoom(*common, *options, cwd=repository.parent, env=ENV, stdin=answer)


def untouched(repository: Path) -> dict[str, bytes]:
    """The files, the index and HEAD."""
    kept = [path for path in repository.rglob("*") if path.is_file() and ".git" not in path.parts]
    return {str(path): path.read_bytes() for path in (*kept, repository / ".git/index", repository / ".git/HEAD")}


@pytest.mark.slow
def test_a_branch_has_the_patch_and_nothing_else(repository: Path) -> None:
    write(repository, {"shop.py": f"{SHOP}# Mine.\n", "staged.py": "x = 1\n"})
    git(repository, "add", "staged.py")
    (repository.parent / "hooked").unlink()
    before = untouched(repository)
    done = fix(repository, "--branch", "fix/shop")
    facts = json.loads(done.stdout)
    assert (done.returncode, facts["problems"]) == (0, []), facts
    assert "not committed" in facts["delivered"]
    assert untouched(repository) == before
    assert not (repository.parent / "hooked").exists()
    git(repository, "config", "core.hooksPath", os.devnull)
    changes = git(repository, "diff", "--name-status", "HEAD", "fix/shop").split("\n")[:-1]
    assert changes == ["R100\tnotes.txt\tnew name.txt", "M\tshop.py"]
    assert git(repository, "show", "fix/shop:shop.py") == FIXED
    about = git(repository, "log", "-1", "--format=%an %ae%n%B", "fix/shop").rstrip().split("\n")
    report = f"2 failed, 1 passed -> 3 passed (`{TEST}`)"
    said = ["Take the first price, too.", "", "The slice left it out."]
    assert about == ["Ada ada@example.org", *said, "", report]


@pytest.mark.slow
def test_a_patch_that_needs_what_is_not_committed_makes_no_branch(repository: Path) -> None:
    write(repository, {"shop.py": SHOP.replace("return", "x = 1; return")})
    before = untouched(repository)
    done = fix(repository, "--branch", "b", "--out", "fix.patch")
    facts = json.loads(done.stdout)
    assert done.returncode == 1
    [problem] = facts["problems"]
    assert "does not apply: shop.py" in problem
    assert untouched(repository) == before
    assert git(repository, "branch", "--list", "b") == ""
    git(repository, "apply", str(repository.parent / "fix.patch"))


@pytest.mark.slow
def test_a_person_agrees_to_a_commit(repository: Path) -> None:
    write(repository, {"other.py": "x = 1\n", "test_shop.py": "# Mine.\n" + (repository / "test_shop.py").read_text()})
    (repository.parent / "hooked").unlink(missing_ok=True)
    for answer, is_committed in ("n\n", False), ("", False), ("y\n", True):
        before = untouched(repository)
        done = fix(repository, "--commit", answer=answer)
        assert done.returncode == 0
        assert "2 failed, 1 passed -> 3 passed. Write these changes into" in done.stderr
        assert (untouched(repository) != before) == is_committed, done.stdout
    assert not (repository.parent / "hooked").exists()
    git(repository, "config", "core.hooksPath", os.devnull)
    assert git(repository, "log", "--format=%s").split("\n")[0] == "Take the first price, too."
    assert git(repository, "status", "--porcelain") == " M test_shop.py\n?? other.py\n"
    assert (repository / "shop.py").read_text() == FIXED


@pytest.mark.slow
def test_a_change_is_applied_if_the_tests_pass(repository: Path) -> None:
    write(repository, {"shop.py": f"{SHOP}# Mine.\n"})
    before = untouched(repository)
    done = fix(repository, "--apply", cell="write_file('new.py', '')\n", answer="y\n")
    assert (done.returncode, untouched(repository)) == (1, before)
    done = fix(repository, "--commit", answer="y\n")
    assert "not committed" in json.loads(done.stdout)["problems"][0]
    assert untouched(repository) == before
    done = fix(repository, "--apply", answer="y\n")
    assert (done.returncode, (repository / "shop.py").read_text()) == (0, f"{FIXED}# Mine.\n")
    assert (repository / "new name.txt").exists()
    assert not (repository / "notes.txt").exists()


@pytest.mark.slow
def test_what_was_changed_before_a_limit_is_judged(repository: Path) -> None:
    done = fix(repository, "--budget", "model_calls=1")
    facts = json.loads(done.stdout)
    assert (done.returncode, facts["run"]["outcome"], facts["after"]["passed"]) == (0, "unfinished", 3)
    assert "unfinished" in facts["notes"][0]


@pytest.mark.slow
def test_what_cannot_be_done_is_refused_before_a_model_is_asked(tmp_path: Path) -> None:
    plain_one, unborn, whole = (tmp_path / name for name in ("plain", "unborn", "whole"))
    for folder, prepare in (plain_one, plain), (unborn, plain), (whole, committed):
        folder.mkdir()
        prepare(folder)
    git(unborn, "init", "-q")
    for folder, options, why in (
        (plain_one, ("--branch", "b"), "in no repository of git"),
        (unborn, ("--commit",), "no commit yet"),
        (whole, ("--branch", "b"), "git config user.name"),
        (whole, ("--apply", "--commit"), "one of --branch"),
        (whole, ("--test", "no-such-command"), "Name another command by --test"),
        (whole, ("--test", "pytest -q --disable-plugin-autoload -k nothing"), "finds no tests"),
        (whole, ("--test", "sleep 60", "--timeout", "0.5"), "more time by --timeout"),
    ):
        done = fix(folder, *options)
        assert done.returncode == 2, options
        assert why in done.stdout, done.stdout
    git(whole, "config", "user.name", "Ada")
    git(whole, "config", "user.email", "ada@example.org")
    for name, why in ("main", "already"), ("a..b", "cannot be the name"), ("-b", "cannot be the name"):
        done = fix(whole, f"--branch={name}")
        assert (done.returncode, why in done.stdout) == (2, True), done.stdout


@pytest.mark.slow
def test_a_fix_that_was_ended_goes_on_and_is_judged_again(repository: Path) -> None:
    here, first = repository.parent, "```python\nopen('shop.py', 'a').write('# Seen.\\n')\n```"
    model = recording(here / "model.yaml", [first, f"```python\n{CELL}```", "Take the first price, too.", APPROVED])
    ask = ("fix", str(repository), "It is wrong.", "--test", TEST, "--model", model, "--branch", "shop")
    kept = ("--journal", str(here / "journal"), "--json")
    ended = coderoom(*ask, *kept, "--budget", "model_calls=1", cwd=here, env=ENV)
    assert (ended.returncode, json.loads(ended.stdout)["changes"]) == (1, ["changed shop.py"])
    done = coderoom("resume", "last", *kept, "--budget", "model_calls=9", cwd=here, env=ENV)
    facts = json.loads(done.stdout)
    assert (done.returncode, facts["problems"]) == (0, []), done.stdout + done.stderr
    assert "Branch 'shop'" in facts["delivered"]
    shown = git(repository, "show", "shop:shop.py")
    assert "# Seen." in shown
    assert "prices[1:]" not in shown
    again = coderoom("resume", "last", *kept, cwd=here, env=ENV)
    assert "There is a branch 'shop' already" in again.stderr, again.stdout
