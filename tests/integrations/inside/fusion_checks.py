"""SandboxFusion's own client, with a server of sandboxes in place of SandboxFusion's."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

import pytest
import sandbox_fusion
from sandbox_fusion import RunCodeRequest, RunJupyterRequest, RunStatus, SubmitRequest, SummaryMapping, TestConfig

from tests.integrations.service import serving

PROBLEM = {"id": 7, "content": "Print the sum.", "test": [{"input": {"stdin": "1 2"}, "output": {"stdout": "3"}}]}


@pytest.fixture(scope="module", autouse=True)
def _server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("sets")
    (folder / "oj.jsonl").write_text(json.dumps(PROBLEM))
    with serving(tmp_path_factory.mktemp("service"), "--problems", str(folder)) as url:
        sandbox_fusion.set_endpoint(url.replace("://", "://anybody:token-of-one@"))
        yield


def test_runs() -> None:
    files = {"a": base64.b64encode(b"hello").decode()}
    code = "print(open('a').read() + input()); open('b', 'w').write('b')"
    request = RunCodeRequest(code=code, language="python", stdin="!", files=files, fetch_files=["b"])
    found = sandbox_fusion.run_code(request)
    assert (found.status, found.run_result.stdout) == (RunStatus.Success, "hello!\n")
    assert base64.b64decode(found.files["b"]) == b"b"
    mapping = SummaryMapping(CompileFailed="compiler", RunFailed="code", RunTimeout="late")
    for code, language, expected in (
        ("int main() { return a; }", "cpp", "compiler"),
        ("1 / 0", "python", "code"),
        ("while True: pass", "python", "late"),
    ):
        request = RunCodeRequest(code=code, language=language, run_timeout=0.5)
        assert sandbox_fusion.summary_run_code_result(sandbox_fusion.run_code(request), mapping) == expected
    with pytest.raises(Exception, match="This server does not run 'swift'"):
        sandbox_fusion.run_code(RunCodeRequest(code="", language="swift"), max_attempts=1)


async def test_many_at_a_time() -> None:
    requests = [[RunCodeRequest(code=f"print({number})", language="python")] for number in range(40)]
    found = sandbox_fusion.run_concurrent(sandbox_fusion.run_code, args=requests)
    assert [each.run_result.stdout for each in found] == [f"{number}\n" for number in range(40)]
    assert (await sandbox_fusion.run_code_async(requests[3][0])).run_result.stdout == "3\n"


async def test_cells() -> None:
    found = sandbox_fusion.run_jupyter(RunJupyterRequest(cells=["a = 1", "a + 1", "1 / 0"]))
    assert found.cells[1].display == [{"text/plain": "2"}]
    assert found.cells[2].error[0]["ename"] == "ZeroDivisionError"
    assert (await sandbox_fusion.run_jupyter_async(RunJupyterRequest(cells=["1"]))).status is RunStatus.Success


async def test_problem_sets() -> None:
    config = TestConfig(language="python")
    (prompt,) = sandbox_fusion.get_prompts(sandbox_fusion.GetPromptsRequest(dataset="oj", config=config))
    by_id = sandbox_fusion.GetPromptByIdRequest(dataset="oj", id=prompt.id, config=config)
    assert sandbox_fusion.get_prompt_by_id(by_id) == prompt
    for code, accepted in (("print(sum(map(int, input().split())))", True), ("print(4)", False)):
        completion = f"```python\n{code}\n```"
        request = SubmitRequest(dataset="oj", id=prompt.id, completion=completion, config=config)
        assert sandbox_fusion.submit(request).accepted is accepted
        assert (await sandbox_fusion.submit_async(request)).accepted is accepted
