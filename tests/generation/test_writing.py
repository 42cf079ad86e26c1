from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from coderoom.errors import RequestError
from coderoom.generation import Solution, TestResult, write_solution
from tests.support.commands import PYTEST

from .examples import test_of
from .solutions import solution_of


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def test_a_solution_is_a_folder_of_files(tmp_path: Path) -> None:
    solution = solution_of()
    files = write_solution(solution, tmp_path / "new" / "folder")
    assert names(files.folder) == [
        "add_numbers.py",
        "add_numbers_checks.py",
        "report.json",
        "report.md",
        "test_add_numbers.py",
    ]
    assert files.module is not None
    assert files.tests is not None
    assert len(files.tests.read_text().splitlines()) < 30  # For a person to read.
    told = json.loads(files.data.read_text())
    assert told.pop("coderoom")["verdict"] == "The only test passed."
    assert Solution.model_validate(told) == solution
    command = [sys.executable, "-I", "-B", *PYTEST]
    environment = {"PATH": os.environ["PATH"], "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=files.folder, env=environment, capture_output=True, text=True, check=False)
    assert "1 passed" in done.stdout


def test_earlier_files_of_ours_are_replaced(tmp_path: Path) -> None:
    write_solution(solution_of(), tmp_path)
    files = write_solution(solution_of({"add": "def add(x, y):\n    return y + x\n"}), tmp_path)
    assert files.module is not None
    assert "y + x" in files.module.read_text()
    assert len(names(tmp_path)) == 5


@pytest.mark.parametrize("name", ["add_numbers.py", "test_add_numbers.py", "report.md", "report.json"])
@pytest.mark.parametrize("kind", ["file", "link", "dangling", "folder", "pipe"])
def test_nothing_of_others_is_overwritten(tmp_path: Path, name: str, kind: str) -> None:
    folder, elsewhere = tmp_path / "folder", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.write_text("# Written by CodeRoom.\n")
    path = folder / name
    if kind == "file":
        path.write_text("mine\n" * 100 + "# Written by CodeRoom.")
    elif kind in ("link", "dangling"):
        path.symlink_to(elsewhere if kind == "link" else tmp_path / "nowhere")
    elif kind == "folder":
        path.mkdir()
    else:
        os.mkfifo(path)
    with pytest.raises(RequestError, match=name) as caught:
        write_solution(solution_of(), folder)
    assert "another folder or name" in str(caught.value)
    assert names(folder) == [name]
    assert elsewhere.read_text() == "# Written by CodeRoom.\n"
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(
    "function", ["json", "string", "types", "test", "pytest", "conftest", "test_x", "x_test", "numpy", "JSON", "other"]
)
def test_an_instruction_whose_words_are_taken(tmp_path: Path, function: str) -> None:
    source = f"def {function}(x):\n    import other\n    return x\n"
    solution = solution_of({function: source}, {function: [test_of(expected_output=1)]}, instruction=function)
    files = write_solution(solution, tmp_path)
    assert files.module == tmp_path / "solution.py"


@pytest.mark.parametrize("name", ["json", "test", "../x", "a b", "", "x.py", "class", "test_x", "a/b", "x" * 101, "é"])
def test_a_name_that_cannot_be(tmp_path: Path, name: str) -> None:
    with pytest.raises(RequestError, match="another name"):
        write_solution(solution_of(), tmp_path / "folder", name=name)
    assert names(tmp_path) == []


def test_a_name_of_ones_own(tmp_path: Path) -> None:
    assert write_solution(solution_of(), str(tmp_path), name="sums").module == tmp_path / "sums.py"


def test_without_code_there_are_only_reports(tmp_path: Path) -> None:
    files = write_solution(solution_of({}, {}, error="the model could not be called"), tmp_path)
    assert (files.module, files.tests) == (None, None)
    assert names(tmp_path) == ["report.json", "report.md"]
    assert "the model could not be called" in files.report.read_text()


def test_a_hostile_instruction_stays_text(tmp_path: Path) -> None:
    text = '"""\nimport os\nos._exit(3)\n"""\\ # coding: latin-1 \udc80 <script> é'
    files = write_solution(solution_of(instruction=text), tmp_path)
    assert files.module is not None
    scope: dict[str, object] = {}
    exec(compile(files.module.read_text("utf-8"), "add_numbers.py", "exec"), scope)
    assert "add" in scope


def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RequestError, match="cannot be written"):
        write_solution(solution_of(), tmp_path / "file")


def test_a_property_of_an_object_that_the_code_returns_is_left_to_the_judge(tmp_path: Path) -> None:
    cases = [
        test_of("sums", inputs={"x": 1, "y": 2}, expected_output=3),
        test_of("is", inputs={"x": 1, "y": 2}, property="result is not None"),
    ]
    made = [3, {"$object": {"type": "Sum", "fields": {"x": 3}}}]
    results = [
        TestResult(function="add", test=case.name, passed=True, actual_output=result)
        for case, result in zip(cases, made, strict=True)
    ]
    files = write_solution(solution_of(tests={"add": cases}, test_results=tuple(results)), tmp_path)
    assert files.tests is not None
    text = files.tests.read_text()
    assert "is not None" not in text
    assert "# 1 more test of objects or arrays" in text
