"""What callers of SandboxFusion send to the service, and the statuses that they get."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from coderoom.integrations.service.fusion import LANGUAGES
from tests.integrations.service import client_of, serving
from tests.sandbox.test_languages import FAILING, READING
from tests.support.commands import ROOT

pytestmark = pytest.mark.slow

_NAMES = {"javascript": "nodejs", "r": "R"}
_ALL = {"python": "print('got', input())", **{_NAMES.get(name, name): code for name, code in READING.items()}}
del _ALL["sh"], _ALL["c"]
COMPILED = ("cpp", "go", "java", "rust")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with serving(tmp_path_factory.mktemp("service"), "--preload", "decimal") as url, client_of(url) as found:
        yield found


def run(client: httpx.Client, code: str, language: str = "python", **fields: Any) -> dict[str, Any]:
    answer = client.post("/run_code", json={"code": code, "language": language, **fields})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    assert set(found) == {"status", "message", "compile_result", "run_result", "executor_pod_name", "files"}
    for each in (found["compile_result"], found["run_result"]):
        assert each is None or set(each) == {"status", "execution_time", "return_code", "stdout", "stderr"}
    return found


def packed(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


# Others are compiled and run as these, and have their own names: see `test_languages.py` of the sandbox.
@pytest.mark.slow
@pytest.mark.parametrize("language", ["python", "bash", "nodejs", "cpp", "java", "R"])
def test_each_language_reads_its_input(client: httpx.Client, language: str) -> None:
    found = run(client, _ALL[language], language, stdin="this\n", run_timeout=30, compile_timeout=60)
    assert (found["status"], found["message"], found["files"]) == ("Success", "", {})
    assert (found["run_result"]["status"], found["run_result"]["return_code"]) == ("Finished", 0)
    assert found["run_result"]["stdout"].strip() == "got this"
    if language in COMPILED:
        assert (found["compile_result"]["status"], found["compile_result"]["return_code"]) == ("Finished", 0)
    else:
        assert found["compile_result"] is None


@pytest.mark.slow
@pytest.mark.parametrize("language", ["cpp", "typescript"])
def test_what_the_compiler_says(client: httpx.Client, language: str) -> None:
    found = run(client, FAILING[language][0], language)
    # A file of TypeScript is interpreted, as far as callers know.
    failed, other = ("compile_result", "run_result") if language in COMPILED else ("run_result", "compile_result")
    assert (found["status"], found["message"], found[other]) == ("Failed", "", None)
    assert (found[failed]["status"], found[failed]["return_code"] > 0) == ("Finished", True)
    assert FAILING[language][1] in found[failed]["stderr"]


@pytest.mark.parametrize(
    ("code", "language", "status", "return_code", "stderr"),
    [
        ("import sys; sys.exit(3)", "python", "Finished", 3, ""),
        ("1 / 0", "python", "Finished", 1, "ZeroDivisionError"),
        ("int a = 1", "python", "Finished", 1, "SyntaxError: invalid syntax"),
        ("x = 'x' * 10**10", "python", "Finished", 1, "MemoryError"),
        ("import os; os.kill(os.getpid(), 11)", "python", "Finished", -11, ""),
        ("print('a', flush=True)\nwhile True: pass", "python", "TimeLimitExceeded", None, ""),
        ("echo a; sleep 9", "bash", "TimeLimitExceeded", None, ""),
        ("kill -9 $$", "bash", "Finished", -9, ""),
        ("x = [bytearray(2**20) for _ in range(80)]", "python", "Finished", 1, "MemoryError"),
        ("print('a')", "nodejs", "Finished", 1, "ReferenceError"),
        ("import pytest\ndef test(): assert 1 == 2", "pytest", "Finished", 1, ""),
        ("SELECT a;", "sql", "Finished", 1, "no such column"),
    ],
)
def test_how_code_that_fails_has_ended(
    client: httpx.Client, code: str, language: str, status: str, return_code: int | None, stderr: str
) -> None:
    limits = {"run_timeout": 0.4} if return_code is None else {}
    found = run(client, code, language, memory_limit_MB=-1 if language == "nodejs" else 60, **limits)
    assert (found["status"], found["message"], found["compile_result"]) == ("Failed", "", None)
    ran = found["run_result"]
    assert (ran["status"], ran["return_code"]) == (status, return_code)
    assert stderr in ran["stderr"]
    if return_code is None:
        assert ran["stdout"] == "a\n"


@pytest.mark.parametrize(
    ("code", "language"),
    [
        ("open('out/b', 'w').write(open('in/a').read().upper())", "python"),
        ("open('out/b', 'w').write(open('in/a').read().upper()); import os; os._exit(0)", "python"),
        ("def test():\n    open('out/b', 'w').write(open('in/a').read().upper())", "pytest"),
        ("tr a-z A-Z < in/a > out/b", "bash"),
        ("const f = require('fs'); f.writeFileSync('out/b', `${f.readFileSync('in/a')}`.toUpperCase())", "nodejs"),
        ('#include <cstdlib>\n#include "in/say.h"\nint main() { return system(SAY); }', "cpp"),
    ],
)
def test_files_come_and_go(client: httpx.Client, code: str, language: str) -> None:
    header = '#define SAY "tr a-z A-Z < in/a > out/b"\n'
    files = {"in/a": packed("hello"), "in/say.h": packed(header), "out/none": None, "out/c": ""}
    found = run(client, code, language, files=files, fetch_files=["out/b", "in/a", "gone", "out/none", "out/c"])
    assert found["status"] == "Success", found
    assert found["files"] == {"out/b": packed("HELLO"), "in/a": packed("hello"), "out/c": ""}
    assert run(client, "import os; print(os.listdir())")["run_result"]["stdout"] == "[]\n"


def test_files_are_fetched_after_a_failure(client: httpx.Client) -> None:
    late = run(client, "open('b', 'w').write('b')\nwhile True: pass", fetch_files=["b"], run_timeout=0.4)
    assert (late["status"], late["run_result"]["status"]) == ("Failed", "TimeLimitExceeded")
    assert late["files"] == {"b": packed("b")}
    wrong = run(client, '#include "a.h"\nint main() { return a; }', "cpp", files={"a.h": ""}, fetch_files=["a.h"])
    assert (wrong["status"], wrong["run_result"], wrong["files"]) == ("Failed", None, {"a.h": ""})
    assert "was not declared" in wrong["compile_result"]["stderr"]
    slow = '#include "a.h"\n#include <cstdio>\nint main() { puts("a"); fflush(stdout); for (;;); }'
    found = run(client, slow, "cpp", files={"a.h": ""}, run_timeout=0.4)
    assert (found["run_result"]["status"], found["run_result"]["stdout"]) == ("TimeLimitExceeded", "a\n")


def test_what_is_not_the_codes_fault_is_an_error_of_the_sandbox(client: httpx.Client) -> None:
    for language in ("scala", "cuda"):
        found = run(client, "1", language)
        assert (found["status"], found["compile_result"], found["run_result"]) == ("SandboxError", None, None)
        assert found["message"] == f"This server does not run {language!r}."
    found = run(client, "1", files={"a": packed("a"), "a/b": ""})
    assert (found["status"], found["run_result"]) == ("SandboxError", None)
    assert found["message"].startswith("The files cannot be written: ")


def test_wrong_requests(client: httpx.Client) -> None:
    for body, place in (
        ({"code": "1"}, "language"),
        ({"language": "python"}, "code"),
        ({"code": "1", "language": "python", "run_timeout": "x"}, "run_timeout"),
        ({"code": "1", "language": "klingon"}, "there is no 'klingon' among python, "),
    ):
        answer = client.post("/run_code", json=body)
        assert answer.status_code == 422
        assert place in answer.text
    assert client.post("/run_code", content=b"{").status_code == 422
    late = client.post("/run_code", json={"code": "1", "language": "python", "run_timeout": 1000})
    assert (late.status_code, late.json()["error"]["code"]) == (400, "bad_request")
    assert client.get("/v1/ping").text == "pong"


@pytest.mark.parametrize("way", ["path", "url"])
def test_the_token_may_be_part_of_the_url(client: httpx.Client, way: str) -> None:
    where = httpx.URL(client.base_url)
    url = (
        f"{where}/t/token-of-one"
        if way == "path"
        else str(where.copy_with(username="anybody", password="token-of-one"))
    )
    with httpx.Client() as other:
        body = {"code": "print(1)", "language": "python"}
        assert other.post(f"{url}/run_code", json=body).json()["run_result"]["stdout"] == "1\n"
        assert other.post(f"{where}/run_code", json=body).status_code == 401


def test_cells_of_a_notebook(client: httpx.Client) -> None:
    picture = "import base64\nfrom IPython.display import display, HTML\ndisplay(HTML('<b>b</b>'))"
    cells = ["a = 'hello'", "a", "print(a); import sys; print('e', file=sys.stderr)", "assert False", picture, "a + a"]
    request = {"cells": cells, "files": {"f": packed("f")}, "fetch_files": ["f"]}
    found = client.post("/run_jupyter", json=request).json()
    assert (found["status"], found["message"], found["files"]) == ("Success", "", {"f": packed("f")})
    assert (found["driver"]["status"], found["driver"]["return_code"]) == ("Finished", 0)
    nothing = {"stdout": "", "stderr": "", "display": [], "error": []}
    set_, shown, printed, failed, html, last = found["cells"]
    assert set_ == nothing
    assert shown == {**nothing, "display": [{"text/plain": "'hello'"}]}
    assert printed == {**nothing, "stdout": "hello\n", "stderr": "e\n"}
    assert (failed["error"][0]["ename"], failed["error"][0]["evalue"], failed["stderr"]) == ("AssertionError", "", "")
    assert html["display"] == [{"text/html": "<b>b</b>"}]
    assert last["display"] == [{"text/plain": "'hellohello'"}]
    late = client.post("/run_jupyter", json={"cells": ["while True: pass"], "cell_timeout": 0.3}).json()
    assert (late["status"], late["driver"]["status"], late["cells"]) == ("Failed", "TimeLimitExceeded", [])


_HUMAN = {
    "task_id": "Set/0",
    "prompt": "from typing import List\n\n\ndef add(numbers: List[int]) -> int:\n    '''Add numbers.'''\n",
    "canonical_solution": "    return sum(numbers)\n",
    "test": "def check(candidate):\n    assert candidate([1, 2]) == 3\n    assert candidate([]) == 0\n",
    "entry_point": "add",
}
_OJ = {
    "id": 7,
    "content": "Print the sum.",
    "test": [{"input": {"stdin": "1 2"}, "output": {"stdout": "3\n"}}, {"input": {}, "output": {"stdout": "0"}}],
}
_BLOCK = "Here:\n```python\ndef add(numbers: List[int]):\n    return {}\n```\n"
_SUM = {
    "python": "import sys\nprint(sum(map(int, sys.stdin.read().split())))",
    "cpp": "#include <iostream>\nint main() { int a = 0, b = 0; std::cin >> a >> b; std::cout << a + b; }",
}


@pytest.fixture(scope="module")
def judging(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp("sets")
    (folder / "human.jsonl").write_text(json.dumps(_HUMAN))
    (folder / "oj.jsonl").write_text(json.dumps(_OJ))
    with (
        serving(tmp_path_factory.mktemp("service"), "--problems", str(folder)) as url,
        client_of(url) as client,
    ):
        yield client


def submitted(client: httpx.Client, dataset: str, id: str | int, completion: str, **config: Any) -> dict[str, Any]:
    body = {"dataset": dataset, "id": id, "completion": completion, "config": config}
    answer = client.post("/submit", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    assert found["id"] == id
    return found


def test_what_problem_sets_have(judging: httpx.Client) -> None:
    assert judging.get("/list_datasets").json() == ["human", "oj"]
    asked = {"dataset": "oj", "config": {}}
    assert judging.post("/list_ids", json=asked).json() == ["7"]
    oj = {"id": "7", "prompt": "Print the sum.", "labels": {}}
    assert judging.post("/get_prompts", json=asked).json() == [oj]
    assert judging.post("/get_prompts", json={**asked, "offset": 1}).json() == []
    assert judging.post("/get_prompt_by_id", json={**asked, "id": 7}).json() == oj
    human = judging.post("/get_prompt_by_id", json={"dataset": "human", "config": {}, "id": "Set/0"}).json()
    assert human["prompt"] == _HUMAN["prompt"]
    assert judging.post("/get_metrics", json={**asked, "results": []}).json() == {}
    for path, body in (("list_ids", {"dataset": "x"}), ("get_prompt_by_id", {"dataset": "oj", "id": 8})):
        answer = judging.post(f"/{path}", json=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")


@pytest.mark.parametrize(
    ("completion", "accepted", "kind"),
    [
        ("    return sum(numbers)\n", True, None),
        ("    return 3\n", False, None),
        (_BLOCK.format("sum(numbers)"), True, "fenced"),  # It relies on the import of the prompt.
        (f"<think>{_BLOCK.format(1)}</think>{_BLOCK.format('sum(numbers)')}", True, "fenced"),
        (_BLOCK.format("sum(numbers)").removesuffix("```\n"), True, "incomplete_fenced"),
        ("```python\n    return sum(numbers)\n```", True, "fenced"),
        ("```python\nclass Any(int):\n    __eq__ = lambda *_: True\ndef add(_): return Any()\n```", False, "fenced"),
        ("", False, "empty"),
    ],
)
def test_an_answer_is_judged(judging: httpx.Client, completion: str, accepted: bool, kind: str | None) -> None:
    found = submitted(judging, "human", "Set/0", completion)
    assert (found["accepted"], found["extracted_type"]) == (accepted, kind), found
    (test,) = found["tests"]
    assert test["passed"] is accepted
    assert set(test["exec_info"]) == set(run(judging, "1"))


@pytest.mark.slow
@pytest.mark.parametrize("language", _SUM)
def test_programs_are_judged_by_what_they_print(judging: httpx.Client, language: str) -> None:
    right = submitted(judging, "oj", 7, f"```{language}\n{_SUM[language]}\n```", language=language)
    assert (right["accepted"], [each["passed"] for each in right["tests"]]) == (True, [True, True])
    assert right["tests"][0]["exec_info"]["run_result"]["stdout"].strip() == "3"
    wrong = submitted(judging, "none", 7, "```python\nprint(3)\n```", provided_data=_OJ)
    assert (wrong["accepted"], [each["passed"] for each in wrong["tests"]]) == (False, [True, False])
    late = submitted(judging, "oj", 7, "while True: pass", run_timeout=0.4)
    assert late["tests"][0]["exec_info"]["run_result"]["status"] == "TimeLimitExceeded"
    body = {"dataset": "human", "id": "Set/0", "completion": "", "config": {"language": "cpp"}}
    assert judging.post("/submit", json=body).status_code == 400


def test_the_docs_name_the_languages() -> None:
    text = (ROOT / "docs" / "fusion.md").read_text()
    listed = text.partition("\n`python`, ")[2].partition(" run where ")[0]
    assert {"python", *re.findall(r"`(\w+)`", listed)} == set(LANGUAGES) == {*_ALL, "go_test", "pytest", "sql"}
