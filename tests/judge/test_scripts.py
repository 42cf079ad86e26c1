"""What belongs to the tests of a repository although its name does not say so."""

from __future__ import annotations

from pathlib import Path

import pytest

from coderoom.judge.repository import Repository, belongs_to_tests, with_all_tests

FILES = {
    "Makefile": "FLAGS := -O\nall: m\n\ttrue\n\ncheck: m verify\n\t@./run me\n\nverify:\n\tcd sub && sh ./verify.sh\n"
    "m: m.c\n\tcc $(FLAGS) -o m m.c\nserve:\n\tpython app.py\n",
    "package.json": '{"scripts": {"pretest": "node lint.js", "test": "node check.js src.js", "dev": "node app.js"}}',
    "sub/verify.sh": ". ./common.sh\n",
    "sub/common.sh": "",
    "sub/common.py": "",
    **dict.fromkeys(
        ["m.c", "app.py", "app.js", "src.js", "lint.js", "check.js", "check.py", "checks/a.py", "words.py"], ""
    ),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("repository")
    for path, content in FILES.items():
        (found / path).parent.mkdir(exist_ok=True)
        (found / path).write_text(content)
    (found / "run").touch(0o755)
    (found / "tests").symlink_to("checks")
    (found / "node_modules").mkdir()
    (found / "node_modules" / "sub").symlink_to("../sub")
    return found


@pytest.mark.parametrize(
    ("command", "frozen"),
    [
        ("sh sub/verify.sh", {"sub/verify.sh"}),
        ("env A=1 timeout 9 python3.11 -u 'check.py' words.py", {"check.py"}),
        ("cc m.c && ./run", {"run"}),
        ("cd sub && . ./common.sh", {"sub/common.sh"}),
        ("python -m check", {"check.py"}),
        ("python -m unittest check words", {"check.py", "words.py"}),
        ("python -m doctest words.py", set()),
        ("make check", {"run", "sub/verify.sh"}),
        ("npm t", {"lint.js", "check.js"}),
        ("pytest -q words.py", set()),
    ],
)
def test_what_a_command_runs_belongs_to_the_tests(folder: Path, command: str, frozen: set[str]) -> None:
    repository = with_all_tests(Repository(folder=folder, command=command))
    named = {"Makefile", "package.json", "checks/a.py"}
    assert {path for path in [*FILES, "run"] if belongs_to_tests(path, repository)} == frozen | named


def test_plugins_of_pytest_belong_to_the_tests(tmp_path: Path) -> None:
    texts = {
        "sub/conftest.py": "pytest_plugins: list[str] = [\n    'helpers.one',\n    'two',\n]\n",
        "pyproject.toml": "[tool.pytest.ini_options]\naddopts = ['-q', '-p', 'three']\n",
    }
    files = ["helpers/one.py", "sub/two/__init__.py", "src/three.py", "four.py", "five.py"]
    for path, text in {**texts, **dict.fromkeys(files, "")}.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    repository = with_all_tests(Repository(folder=tmp_path, command="pytest -p four -p no:five"))
    assert [path for path in files if not belongs_to_tests(path, repository)] == ["five.py"]


def test_files_of_tests_are_known_by_the_tests_in_them(folder: Path) -> None:
    names = [
        "check::test_one[1.5]",
        "sub.none::test_two",
        "words::words.count",
        "checks.a.TestAll::test_three",
        "common::test_four",
    ]
    repository = with_all_tests(Repository(folder=folder, command="pytest"), names)
    files = ("check.py", "checks/a.py", "sub/common.py", "words.py", "app.py")
    known = [path for path in files if belongs_to_tests(path, repository)]
    assert known == ["check.py", "checks/a.py", "sub/common.py"]
