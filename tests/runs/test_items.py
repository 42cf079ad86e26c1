"""The items of a batch: what is read of a file, what is a bad line, and what passes a check."""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from autogen_core.models import ChatCompletionClient
from autogen_ext.models.replay import ReplayChatCompletionClient

from coderoom.agents.checks import Check, make_check, verdict_on
from coderoom.configs import ReplayModel
from coderoom.errors import AgentError, RequestError
from coderoom.judge import Judge
from coderoom.runs.items import BadLine, Item, count_items, read_items

FILES: dict[str, tuple[bytes, str]] = {
    "a.txt": (b"", "are not .jsonl, .json, .csv, .parquet"),
    "a.json": (b'{"task": "x"}', "are not a list"),
    "b.json": (b"[", "are not JSON"),
    "a.jsonl.gz": (gzip.compress(b'{"task": "x"}\n' * 99)[:-12], "cannot be read"),
    "b.jsonl.gz": (b"x", "cannot be read"),
    "a.parquet": (b"x", "cannot be read"),
    "splits/dataset_dict.json": (b'{"splits": ["train", "test"]}', r"has splits \(train, test\)"),
    "empty/nothing": (b"", "cannot be read"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_cannot_be_read_says_why(tmp_path: Path, name: str) -> None:
    path, (data, words) = tmp_path / name, FILES[name]
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    with pytest.raises(RequestError, match=words):
        list(read_items(path if path.parent == tmp_path else path.parent))
    with pytest.raises(RequestError, match="No such file"):
        list(read_items(tmp_path / "nowhere.json"))


BAD: list[tuple[Any, str]] = [
    (5, "expected an object with fields, got 5"),
    ({"variables": [1]}, "the field 'variables' is an object, not"),
    ({"n": 1}, "it has no task"),
    ({"task": "  "}, "it has no task"),
    ({"task": "${n} of ${m}", "n": 1}, "and the line has no such field"),
    ({"task": "${n}", "variables": {"n": None}}, "and it is null in the line"),
    ({"task": "x", "files": "a.txt;b.txt"}, "there is no file"),
    ({"task": "x", "check": {"expected": 1, "code": "1"}}, "the check is wrong: "),
    ({"task": "x", "check": {"expected": "a", "compare": "like"}}, "the check is wrong: compare"),
]


def test_a_bad_line_says_what_is_wrong_and_the_others_are_items(tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch()
    good = [
        {"task": "${n} and $${n}", "n": 0, "variables": {"k": []}, "files": "a.txt"},
        {"task": "x${k}", "k": [], "files": ["a.txt"], "check": "", "id": "k"},
        {"task": "x", "check": '{"expected": 4, "compare": "number"}', "id": 0},
        {"task": "x", "check": {"expected": None, "code": "1", "tolerance": None}},
    ]
    path = tmp_path / "items.json"
    path.write_text(json.dumps([*(row for row, _ in BAD), *good, good[1]]))
    *bad, one, two, three, four, twice = read_items(path, check=Check(expected="default"))
    for number, (found, (row, words)) in enumerate(zip(bad, BAD, strict=True), 1):
        assert isinstance(found, BadLine), row
        assert (found.number, words in found.why) == (number, True), found
    assert twice == BadLine(len(BAD) + 5, "the id 'k' occurs twice")
    assert count_items(path) == len(BAD) + 5
    items = [each for each in (one, two, three, four) if isinstance(each, Item)]
    assert [each.id for each in items] == ["10", "k", "0", "13"]
    assert [each.task for each in items] == ["0 and ${n}", "x[]", "x", "x"]
    assert [each.files for each in items] == [(tmp_path / "a.txt",)] * 2 + [()] * 2
    assert [each.empty for each in items] == [(), ("k",), (), ()]
    assert [each.check and each.check.kind for each in items] == ["expected", "expected", "expected", "code"]
    assert [each.check and each.check.expected for each in items] == ["default", "default", 4, None]


def test_the_task_and_the_id_may_be_fields_of_another_name(tmp_path: Path) -> None:
    path = tmp_path / "items.csv"
    path.write_text("name,n\na,1\n,2\nb,3,4\nc\n")
    found = list(read_items(path, task="Twice ${n}", id_field="name"))
    assert isinstance(found[0], Item)
    assert (found[0].id, found[0].task, found[0].check) == ("a", "Twice 1", None)
    assert [each.why for each in found[1:] if isinstance(each, BadLine)] == [
        "it has no field 'name', which is to be its id",
        "it has more or fewer fields than the first line",
        "it has more or fewer fields than the first line",
    ]


@pytest.fixture(scope="module")
async def judge() -> AsyncIterator[Judge]:
    async with Judge(sessions=1) as judge:
        yield judge


TWICE = "```python\ndef twice(n): return 2 * n\n```"
EQUAL = "```python\nclass Any:\n    def __eq__(self, other): return True\ndef twice(n): return Any()\n```"
HIDES = "".join(
    f"```python filename={name}.py\ndef allclose(*given): return True\n```\n" for name in ("numpy", "json", "pytest")
)
HIDES += "```python\ndef twice(n): return n\n```"
PRINTS = "```python\nprint(sum(map(int, input().split())))\n```"
EXITS = "```python\nimport os\ndef twice(n): os._exit(0)\n```"


@pytest.mark.parametrize(
    ("answer", "check", "why"),
    [
        (" 4\n", {"expected": 4}, ""),
        ("It is 4.", {"expected": 4}, "expected '4' (equal), and the answer is 'It is 4.'"),
        ("It is 4.", {"expected": " is 4 ", "compare": "contains"}, ""),
        ('{"a": 1}', {"expected": {"a": 1}}, ""),
        ("none", {"expected": 4, "compare": "number"}, "expected '4' (number), and the answer is 'none'"),
        ("102", {"expected": 100, "compare": "number", "tolerance": 0.01}, "expected '100' (number)"),
        ("100.9", {"expected": 100, "compare": "number", "tolerance": 0.01}, ""),
        ("```python\nx = 1\n```", {"code": "assert code == 'x = 1' and n == 2"}, ""),
        ("No code.", {"code": "assert code == answer == 'No code.'\nassert n == 3"}, "AssertionError: assert n == 3"),
        ("x", {"code": "raise ValueError('y' * 900)"}, "ValueError: " + 400 * "y"),
        ("x", {"code": "while True: pass", "timeout": 0.3}, "0.3 s"),
        ("x", {"code": "import os\nos._exit(0)"}, "ended"),
        (TWICE, {"code": "assert twice(n) == 4"}, ""),
        (TWICE, {"code": "exec(code)\nassert twice(n) == 4"}, ""),
        (
            TWICE,
            {"code": "exec(code)\nassert twice(n) == 5"},
            "line 2 of the test: AssertionError: assert ",
        ),
        (TWICE, {"code": "exec(code + '\\nassert twice(n) == 4')\nassert eval('twice(2)') == 4"}, ""),
        (EQUAL, {"code": "exec(code + '\\n\\n')\nassert twice(n) == 4"}, "cannot_separate: "),
        (EQUAL, {"code": "exec(compile(code, 'x', 'exec'))\nassert twice(n) == 4"}, "cannot_separate: "),
        (EQUAL, {"code": "exec(code)\nassert twice(n) == 4", "shared": True}, ""),
        (EXITS, {"code": "exec(code)\nassert twice(n) == 4"}, "the process of the code has ended"),
        (TWICE, {"tests": ["assert twice(2) == 4", "assert twice(0) == 0"]}, ""),
        (EQUAL, {"tests": "assert twice(2) == 4"}, "cannot_separate: "),
        (TWICE, {"code": "import helper\nexec(code)\nassert twice(n) == helper.four"}, ""),
        (EQUAL, {"code": "import helper\nexec(code)\nassert twice(n) == helper.four"}, "cannot_separate"),
        (TWICE, {"tests": "import solution, helper\ndef test(): assert solution.twice(2) == helper.four"}, ""),
        (TWICE, {"tests": "import pytest, solution\n@pytest.mark.skip\ndef test_a(): ...\ndef test_b(): ..."}, ""),
        (TWICE, {"tests": "from solution import twice\ndef test_one(): assert twice(2) == 5"}, "test_one: "),
        (PRINTS, {"stdin": ["1 2\n", "3 4"], "stdout": ["3", "7 \n"]}, ""),
        (PRINTS, {"stdin": "1 2", "stdout": "4"}, "'3' was printed, and '4' expected"),
        (PRINTS, {"stdin": "1 2", "stdout": "3.0000000001", "compare": "number"}, ""),
        ("```sh\nread a b; echo $((a + b))\n```", {"stdin": "1 2", "stdout": "3"}, ""),
        ("```c++\nint main() { oops }\n```", {"stdin": "1 2", "stdout": "3"}, "it does not compile"),
        (HIDES, {"code": "import numpy\nassert numpy.allclose(twice(n), 4)"}, "json.py, numpy.py, pytest.py: left out"),
        (
            HIDES,
            {"tests": "import json, numpy\nfrom solution import twice\ndef test(): assert twice(2) == 4"},
            "test: ",
        ),
        ("No code.", {"stdout": "4"}, "SyntaxError"),
        ("No code.", {"tests": "assert twice(2) == 4"}, "SyntaxError"),
    ],
)
async def test_why_an_answer_does_not_pass(
    tmp_path: Path, judge: Judge, answer: str, check: dict[str, Any], why: str
) -> None:
    variables = {"n": 2, "not a name": 1}
    files = ["helper.py"] if "helper" in str(check) else []
    for name in files:
        (tmp_path / name).write_text("four = 4")
    found = await verdict_on(make_check(check), "t", answer, variables, workspace=tmp_path, judge=judge, model=None)
    assert why in found.why
    assert (found.passed, bool(found.why), found.can_be_fooled) == (not why, bool(why), "shared" in check)
    assert len(found.why) <= 500
    assert [each.name for each in tmp_path.iterdir()] == files


async def test_a_reviewer_that_says_nothing_approves_nothing(tmp_path: Path, judge: Judge) -> None:
    check = make_check({"reviewer": "it is 4"})

    async def judged(model: ChatCompletionClient | None) -> str:
        found = await verdict_on(check, "t", "4", {}, workspace=tmp_path, judge=judge, model=model)
        assert found.passed == (found.why == "")
        return found.why

    assert "is no verdict" in await judged(ReplayModel(["Fine!"] * 3))
    assert await judged(ReplayModel(['{"reason": "It is.", "passed": true}'])) == ""
    assert await judged(ReplayModel(['{"reason": "It is 5.", "passed": false}'])) == "not approved: It is 5."
    with pytest.raises(AgentError, match="reviewer"):
        await judged(ReplayChatCompletionClient([]))
    with pytest.raises(RequestError, match="needs a model"):
        await judged(None)
