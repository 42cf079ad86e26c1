from __future__ import annotations

from pathlib import Path

import pytest
from autogen_agentchat.agents import CodeExecutorAgent as AutoGensAgent
from autogen_ext.code_executors.local import LocalCommandLineCodeExecutor

from coderoom.agents import CodeExecutorAgent
from coderoom.errors import RequestError
from coderoom.executors import LocalCodeExecutor
from coderoom.runs._workspace import FileChanges, copy_in, executors_of, folder_of, isolation_of
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
    assert copy_in([source], workspace) == ["data.csv"]
    assert (workspace / "data.csv").read_text() == "a,b"
    assert copy_in([workspace / "data.csv"], workspace) == ["data.csv"]
    assert (workspace / "data.csv").read_text() == "a,b"


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


@pytest.mark.filterwarnings("ignore:Using LocalCommandLineCodeExecutor:UserWarning")
def test_asking_for_the_folder_makes_none() -> None:
    executor = LocalCommandLineCodeExecutor()
    assert folder_of(executor) is None
    assert executor._temp_dir is None
    assert folder_of(LocalCodeExecutor()) is None
