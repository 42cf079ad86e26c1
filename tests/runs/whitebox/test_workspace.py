from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from autogen_agentchat.agents import CodeExecutorAgent as AutoGensAgent
from autogen_ext.code_executors.local import LocalCommandLineCodeExecutor

from coderoom.agents import CodeExecutorAgent
from coderoom.errors import RequestError
from coderoom.executors import LocalCodeExecutor, SandboxCodeExecutor
from coderoom.runs.team_run import executors_of, folder_of, isolation_of
from coderoom.runs.workspace import FileChanges, copy_in
from coderoom.teams import CodingTeam


def test_written_files_are_the_new_and_the_changed_ones(tmp_path: Path) -> None:
    (tmp_path / "old.txt").write_text("old")
    (tmp_path / "same.txt").write_text("same")
    changes = FileChanges([tmp_path, tmp_path / "not there yet"])
    (tmp_path / "old.txt").write_text("changed")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "new.txt").write_text("new")
    (tmp_path / ".coderoom").mkdir()
    (tmp_path / ".coderoom" / "output.txt").write_text("ours")
    assert changes.written() == [tmp_path / "old.txt", tmp_path / "sub" / "new.txt"]


def test_files_are_copied_under_their_names(tmp_path: Path) -> None:
    source, workspace = tmp_path / "data.csv", tmp_path / "work"
    source.write_text("a,b")
    assert copy_in([source], workspace) == []
    assert (workspace / "data.csv").read_text() == "a,b"
    assert copy_in([workspace / "data.csv"], workspace) == []
    assert (workspace / "data.csv").read_text() == "a,b"


def test_a_file_of_the_workspace_is_kept_where_another_one_takes_its_name(tmp_path: Path) -> None:
    source, workspace = tmp_path / "data.csv", tmp_path / "work"
    source.write_text("new")
    workspace.mkdir()
    (workspace / "data.csv").write_text("old")
    assert ".coderoom/replaced/data.csv" in copy_in([source], workspace)[0]
    assert (workspace / ".coderoom" / "replaced" / "data.csv").read_text() == "old"
    source.write_text("newest")
    assert ".coderoom/replaced/data.csv.1" in copy_in([source], workspace)[0]
    assert (workspace / ".coderoom" / "replaced" / "data.csv").read_text() == "old"
    assert (workspace / "data.csv").read_text() == "newest"


def test_a_link_that_code_has_made_is_not_written_through(tmp_path: Path) -> None:
    source, workspace, outside = tmp_path / "data.csv", tmp_path / "work", tmp_path / "precious"
    source.write_text("a,b")
    outside.write_text("precious")
    workspace.mkdir()
    (workspace / "data.csv").symlink_to(outside)
    changes = FileChanges([workspace])
    assert copy_in([source], workspace) == []
    assert (outside.read_text(), (workspace / "data.csv").read_text()) == ("precious", "a,b")
    (workspace / "link").symlink_to(outside)
    assert changes.written() == [workspace / "data.csv"]


def test_folders_deeper_than_python_can_follow_are_no_failure(tmp_path: Path) -> None:
    changes = FileChanges([tmp_path])
    folder = os.open(tmp_path, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d" * 10, dir_fd=folder)
        inner = os.open("d" * 10, os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(folder)
    (tmp_path / "a.txt").touch()
    assert changes.written() == [tmp_path / "a.txt"]
    # So that others who clean up need not follow either.
    subprocess.run(["rm", "-rf", str(tmp_path / ("d" * 10))], check=True)


def test_files_of_one_name_are_refused(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.csv").write_text(folder)
    with pytest.raises(RequestError, match=r"'x\.csv'"):
        copy_in([tmp_path / "a" / "x.csv", tmp_path / "b" / "x.csv"], tmp_path / "work")
    assert not (tmp_path / "work").exists()


@pytest.mark.filterwarnings("ignore:Using LocalCommandLineCodeExecutor:UserWarning")
@pytest.mark.filterwarnings("ignore:No approval function set:UserWarning")
def test_executors_are_found_in_all_kinds_of_agents_and_nested_teams(tmp_path: Path) -> None:
    ours = CodeExecutorAgent("ours", LocalCodeExecutor(work_dir=tmp_path / "a"))
    autogens = AutoGensAgent("autogens", LocalCommandLineCodeExecutor(work_dir=tmp_path))
    executors = executors_of(CodingTeam([CodingTeam([ours], name="inner"), autogens]))
    assert [folder_of(executor) for executor in executors] == [tmp_path / "a", tmp_path]
    assert isolation_of(executors) == "none"
    assert isolation_of([]) == "no code is run"


async def test_isolation_is_the_wall_that_stands(tmp_path: Path) -> None:
    class Own(SandboxCodeExecutor):
        """A user's own."""

    executor, other = Own(tmp_path), SandboxCodeExecutor(tmp_path, wall="docker")
    assert isolation_of([executor]) == "auto"
    async with executor:
        wall = executor.wall
        assert isolation_of([executor]) == wall != "auto"
        assert isolation_of([executor, other]) == ", ".join(sorted({wall, "docker"}))
        assert isolation_of([executor, SandboxCodeExecutor(wall="none")]) == "none"
        assert isolation_of([executor, LocalCodeExecutor()]) == "none"


@pytest.mark.filterwarnings("ignore:Using LocalCommandLineCodeExecutor:UserWarning")
def test_asking_for_the_folder_makes_none() -> None:
    executor = LocalCommandLineCodeExecutor()
    assert folder_of(executor) is None
    assert executor._temp_dir is None
    assert folder_of(LocalCodeExecutor()) is None


def test_the_journal_is_no_file_of_the_code(tmp_path: Path) -> None:
    changes = FileChanges([tmp_path], tmp_path / "j.sqlite3")
    for name in ("j.sqlite3", "j.sqlite3-wal", "j.sqlite3.py"):
        (tmp_path / name).touch()
    assert changes.written() == [tmp_path / "j.sqlite3.py"]
