"""Runs as notebooks, as Markdown and as scripts that repeat them."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from markdown_it import MarkdownIt

from coderoom.errors import RequestError
from coderoom.runs import Journal, RunEntry, Step, export_run, open_journal
from tests.support.commands import ROOT, coderoom, recording

PNG = bytes.fromhex("89504e470d0a1a0a") + b"data"
FILE = """\
```python
# filename: tools.py
def twice(number):
    return 2 * number
```

```python
import asyncio
import tools
text = 'two\\nlines'
await asyncio.sleep(0)
tools.twice(21), 'ü'
```

```sh
echo "from sh: $1"
```

```c
#include <stdio.h>
int main(void) { puts("from C"); }
```

```python
import sys
print(text, sys.argv[1])
[each
 for each in range(3)]  # The value.
```
"""


def journal_with(path: Path, *results: tuple[str, Any], request: Any = None, **entry: Any) -> tuple[Journal, RunEntry]:
    """A journal with one run, of steps of these kinds and results."""
    journal = Journal(path / "journal")
    given = {"command": "run", "name": "team", "task": "Compute it.", "model": None, "request": {}, **entry}
    run = journal.begin(**given)
    for number, (kind, result) in enumerate(results, 1):
        asked = request if kind == "code" else None
        journal.add(run, Step(number, kind, "coder", "", 0.0, 0.0, asked, result), {"picture": PNG})
    journal.end(run, "ok", {})
    return journal, journal.find(run)


def repeated(script: str, folder: Path) -> str:
    """What a script prints in an empty folder."""
    folder.mkdir()
    (folder / "again.py").write_text(script)
    command = [sys.executable, "-W", "ignore", "again.py"]
    done = subprocess.run(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False
    )
    return done.stdout


@pytest.mark.slow
def test_a_script_prints_what_the_blocks_of_a_file_have_printed(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text(FILE)
    env = {"CODEROOM_JOURNAL": str(tmp_path / "journal")}
    done = coderoom("exec", "notes.md", "--", "given", cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stdout
    journal = open_journal(str(tmp_path / "journal"))
    assert journal is not None
    said = "".join(step.result["output"] for step in journal.steps(journal.find("last").id))
    assert "(42, 'ü')\nfrom sh: given\nfrom C\ntwo\nlines given\n[0, 1, 2]\n" in said
    assert repeated(export_run(journal, journal.find("last"), "script"), tmp_path / "empty") == said


@pytest.mark.slow
def test_a_script_repeats_what_failed_and_goes_on(tmp_path: Path) -> None:
    replies = [
        "```python\nx = 1\nprint(x)\nopen('made').write('')\n```\n\n```python\nprint('never')\n```",
        "It could not write.\n\n```python\nprint(x + 1)\n```",
        "It is 2.",
    ]
    env = {"CODEROOM_JOURNAL": str(tmp_path / "journal")}
    replay = recording(tmp_path / "replay.json", replies)
    done = coderoom("run", "code-act", "Count.", "--model", replay, "-w", "work", cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stdout
    out = tmp_path / "again.py"
    assert coderoom("runs", "export", "--out", str(out), cwd=tmp_path, env=env).stdout == f"{out}: written\n"
    printed = repeated(out.read_text(), tmp_path / "empty")
    assert re.fullmatch(r"1\nTraceback [\s\S]*FileNotFoundError: .*\n2\n", printed)
    notebook = nbformat.reads(coderoom("runs", "export", "--as", "notebook", cwd=tmp_path, env=env).stdout, 4)  # type: ignore[no-untyped-call]
    tags = [cell.metadata.get("tags", []) for cell in notebook.cells if cell.cell_type == "code"]
    assert tags == [["raises-exception"], ["raises-exception"], []]  # Jupyter goes on after these.


def test_no_word_of_a_model_becomes_code(tmp_path: Path) -> None:
    said = "Look.\r\nprint('out')\rprint('out')\x0cprint('out')\u2028print('out')\n# /// script\n# x = []\n# ///"
    block = {"language": "python", "code": "print('in')"}
    journal, entry = journal_with(
        tmp_path,
        ("message", {"type": "CodeGenerationEvent", "content": said, "code_blocks": [block]}),
        ("code", {"outcome": "ok"}),
        ("message", {"type": "CodeExecutionEvent", "result": {"output": "in", "exit_code": 0}}),
        request={"blocks": [["python", "print('in')"]]},
        name="team\nprint('out')",
        task="Go.\nprint('out')",
    )
    script = export_run(journal, entry, "script")
    assert [ast.unparse(each) for each in ast.parse(script).body] == ["print('in')"]
    assert not re.search("^# ///", script, re.MULTILINE)


@pytest.mark.parametrize(
    "said",
    [
        "![x](https://other.example/x.png)",
        "a <img src=x onerror=alert(1)> b",
        "<!-- hidden -->",
        "```\nnever closed",
        "[x]: https://other.example",
        "````\n```\n",
    ],
)
def test_words_that_could_load_or_hide_something_stay_text(tmp_path: Path, said: str) -> None:
    message = {"type": "TextMessage", "content": said}
    journal, entry = journal_with(tmp_path, ("message", message), ("message", {**message, "content": "The *end*."}))
    notebook = nbformat.reads(export_run(journal, entry, "notebook"), 4)  # type: ignore[no-untyped-call]
    texts = [export_run(journal, entry, "markdown"), *(cell.source for cell in notebook.cells)]
    for text in texts:
        tokens = MarkdownIt("commonmark").parse(text)
        found = {each.type for token in tokens for each in (token, *(token.children or ()))}
        assert not found & {"image", "html_inline", "html_block"}
    assert any(said.strip() in token.content for token in MarkdownIt("commonmark").parse(texts[0]))
    assert tokens[-2].content == "The *end*."


def test_a_notebook_and_markdown_have_code_output_and_pictures(tmp_path: Path) -> None:
    picture = {"name": "a plot.png", "size": 4, "media_type": "image/png", "hash": "picture", "position": 7}
    other = {"name": "data.bin", "size": 9, "media_type": "application/octet-stream"}
    journal, entry = journal_with(
        tmp_path,
        ("message", {"type": "CodeExecutionEvent", "result": {"output": "before\nafter\n", "exit_code": 0}}),
        ("code", {"outcome": "ok", "artifacts": [picture, other]}),
        ("message", {"type": "CodeExecutionEvent", "result": {"output": "before\nafter\n", "exit_code": 0}}),
        request={"blocks": [["sh", "ls"], ["c", "int x;"], ["python", "plot('```')"]]},
    )
    notebook = nbformat.reads(export_run(journal, entry, "notebook"), 4)  # type: ignore[no-untyped-call]
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"][1:]
    assert [cell.source.partition("\n")[0] for cell in cells] == [
        "%%script sh",
        "%%script coderoom exec --language c -",
        "plot('```')",
    ]
    assert [[*each.get("data", [each.get("text")])] for each in cells[2].outputs] == [
        ["before\n"],
        ["text/plain", "image/png"],
        ["after\n"],
        ["text/plain"],
    ]
    markdown = export_run(journal, entry, "markdown")
    assert (
        "````python\nplot('```')\n````\n\n```text\nbefore\n```\n\n![a plot.png](data:image/png;base64,iVBOR" in markdown
    )
    assert "```text\nafter\n```\n\n`data.bin`, 9 bytes" in markdown


def test_only_the_branch_that_won_and_what_was_not_undone_are_repeated(tmp_path: Path) -> None:
    branches = {"branching": 1, "won": "coder 1.2", "why": "it passed"}
    branches["branches"] = [{"branch": f"coder 1.{number}", "outcome": "ok"} for number in (1, 2)]
    journal = Journal(tmp_path / "journal")
    run = journal.begin("run", "team", "Compute it.", None, {})
    ran = {"type": "CodeExecutionEvent", "result": {"output": "", "exit_code": 0}}
    number = 0

    def add(kind: str, result: Any, request: Any = None) -> None:
        nonlocal number
        number += 1
        journal.add(run, Step(number, kind, "coder", "", 0.0, 0.0, request, result))

    def add_code(code: str, branch: str = "") -> None:
        more = {"branch": branch} if branch else {}
        add("code", {"outcome": "ok"}, {"blocks": [["python", code]], **more})
        add("message", {**ran, "metadata": {"coderoom.branch": branch} if branch else {}})

    add_code("undone = 1")
    add("undo", {})
    for branch in ("coder 1.1", "coder 1.2"):
        for part in ("a", "b"):
            add_code(f"branch = '{branch} {part}'", branch)
    facts = {"coderoom.event": "branching", "coderoom.branches": json.dumps(branches)}
    add("message", {"type": "CodeGenerationEvent", "content": "", "code_blocks": [], "metadata": facts})
    script = export_run(journal, journal.find(run), "script")
    assert [ast.unparse(each) for each in ast.parse(script).body] == [
        "branch = 'coder 1.2 a'",
        "branch = 'coder 1.2 b'",
    ]
    assert "#   undone = 1" in script


@pytest.mark.slow
def test_a_solution_is_a_script_with_its_functions(tmp_path: Path) -> None:
    env = {"CODEROOM_JOURNAL": str(tmp_path / "journal")}
    replay = f"replay:{ROOT / 'examples' / 'solve.replay.yaml'}"
    assert coderoom("solve", "Roman numerals.", "--model", replay, cwd=tmp_path, env=env).returncode == 0
    done = coderoom("runs", "export", "--as", "script", cwd=tmp_path, env=env)
    names: dict[str, Any] = {}
    exec(done.stdout, names)
    assert names["from_roman"](names["to_roman"](1994)) == 1994


@pytest.mark.slow
def test_a_chat_has_the_code_of_the_person_and_nothing_that_was_undone(tmp_path: Path) -> None:
    env = {"CODEROOM_JOURNAL": str(tmp_path / "journal")}
    replay = recording(tmp_path / "replay.json", ["```python\ny = 6\nprint('undone')\n```", "It is 6."])
    lines = "/run y = 5\nCount.\n/undo\n/run print(y)\n!echo end\n"
    assert coderoom("chat", "code-act", "--model", replay, cwd=tmp_path, env=env, stdin=lines).returncode == 0
    script = coderoom("runs", "export", "--as", "script", cwd=tmp_path, env=env).stdout
    assert repeated(script, tmp_path / "empty") == "5\nend\n"
    assert "#   y = 6" in script


def test_what_cannot_be_exported_is_said(tmp_path: Path) -> None:
    journal, entry = journal_with(tmp_path)
    with pytest.raises(RequestError, match="has run no code"):
        export_run(journal, entry, "script")
    env = {"CODEROOM_JOURNAL": str(journal.path)}
    done = coderoom("runs", "export", "--out", "run.txt", cwd=tmp_path, env=env)
    assert (done.returncode, "markdown (.md)" in done.stderr) == (2, True)
    assert "notebook, markdown, script" in coderoom("runs", "export", "--as", "pdf", cwd=tmp_path, env=env).stderr
