"""`CodeExecutorAgent`: whose code it runs, and which blocks of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from coderoom.agents import CodeExecutorAgent
from coderoom.blocks import extract_code_blocks
from coderoom.executors import LocalCodeExecutor
from tests.agents.helpers import (
    BAD,
    COBOL,
    GOOD,
    TASK,
    Client,
    MakeCoder,
    MakeTerminal,
    decide,
    facts_of,
    python,
    said_by,
    text_of,
    turn,
)

# --- Without a model ---


async def test_the_code_of_all_new_messages_runs_in_their_order(terminal: MakeTerminal) -> None:
    response = await turn(
        terminal(), python("print(1)"), said_by("peer", f"{python('print(2)')}\n\n```sh\necho 3\n```")
    )
    assert text_of(response) == "1\n2\n3\n"


async def test_only_the_code_of_the_sources_runs(terminal: MakeTerminal) -> None:
    agent = terminal(sources=["writer"])
    response = await turn(agent, python("print('user')"), said_by("writer", python("print('writer')")))
    assert text_of(response) == "writer\n"


async def test_without_code_of_the_sources_nothing_runs(terminal: MakeTerminal) -> None:
    response = await turn(terminal(sources=["writer"]), GOOD)
    assert text_of(response) == CodeExecutorAgent.NO_CODE_BLOCKS_FOUND_MESSAGE
    assert facts_of(response) == {"stop_reason": "no_code"}
    assert response.inner_messages == []


async def test_no_sources_at_all_means_nobodys_code(terminal: MakeTerminal) -> None:
    assert facts_of(await turn(terminal(sources=[]), GOOD)) == {"stop_reason": "no_code"}


README = "```sh\ncat > README.md <<'END'\n# Use\n\n```sh\nrm -rf build\n```\n{end}\n```\n\n```sh\nls -F\n```"


async def test_a_page_in_a_here_document_is_written_and_its_own_blocks_are_not_run(
    terminal: MakeTerminal, tmp_path: Path
) -> None:
    (tmp_path / "build").mkdir()
    agent = terminal(code_executor=LocalCodeExecutor(work_dir=tmp_path))
    assert {"README.md", "build/"} <= set(text_of(await turn(agent, README.format(end="END"))).split())
    assert (tmp_path / "README.md").read_text() == "# Use\n\n```sh\nrm -rf build\n```\n"
    (tmp_path / "README.md").unlink()
    assert "Nothing was run" in text_of(await turn(agent, README.format(end="EOF")))
    assert [each.name for each in tmp_path.iterdir() if not each.name.startswith("tmp")] == ["build"]


async def test_a_draft_in_a_models_thoughts_is_not_run(terminal: MakeTerminal) -> None:
    reply = f"<think>{python('print(1)')}\n</think>\n{python('print(2)')}"
    assert text_of(await turn(terminal(), said_by("writer", reply))) == "2\n"
    # In what a person writes, a tag is text.
    assert text_of(await turn(terminal(), reply)) == "1\n2\n"


@pytest.mark.parametrize("said", [[], ["Hello."], [""]])
async def test_without_code_it_says_what_it_needs(said: list[str], terminal: MakeTerminal) -> None:
    assert text_of(await turn(terminal(), *said)) == CodeExecutorAgent.NO_CODE_BLOCKS_FOUND_MESSAGE


async def test_it_stops_at_the_first_block_that_fails(terminal: MakeTerminal) -> None:
    response = await turn(terminal(), f"{python('print(1)')}\n\n{BAD}\n\n{python('print(3)')}")
    assert facts_of(response)["outcome"] == "error"
    assert "1\n" in text_of(response)
    assert "ValueError: first" in text_of(response)
    assert "3\n" not in text_of(response).replace("line 3", "")


async def test_an_error_of_the_code_is_told_with_its_exit_code(terminal: MakeTerminal) -> None:
    response = await turn(terminal(), python("print('so far')\nexit(5)"))
    assert "exited with an error (POSIX exit code: 5)" in text_of(response)
    assert "so far" in text_of(response)


@pytest.mark.parametrize(
    ("code", "outcome"),
    [("print('begun')\nwhile True: pass", "timeout"), ("print('begun')\nimport os; os.kill(os.getpid(), 9)", "error")],
)
async def test_what_was_printed_before_a_sudden_end_is_told(
    code: str, outcome: str, terminal: MakeTerminal, tmp_path: Path
) -> None:
    agent = terminal(code_executor=LocalCodeExecutor(work_dir=tmp_path, timeout=1))
    response = await turn(agent, python(code))
    assert facts_of(response)["outcome"] == outcome
    assert "begun" in text_of(response)


async def test_a_report_of_another_agent_is_not_run_again(
    coder: MakeCoder, terminal: MakeTerminal, tmp_path: Path
) -> None:
    code = python("with open('runs', 'a') as file:\n    file.write('x')\nprint('```python')\nprint('ran')")
    report = await turn(coder(Client(code, "Done.")), TASK)
    response = await turn(terminal(), report.chat_message)
    assert facts_of(response) == {"stop_reason": "no_code"}
    assert (tmp_path / "runs").read_text() == "x"


@pytest.mark.parametrize("summary", [f"The final code:\n\n{GOOD}\n\nDone.", "The final code:\n\n```python\nprint(6 *"])
async def test_code_in_the_summary_of_a_report_is_not_run_again(
    summary: str, coder: MakeCoder, terminal: MakeTerminal
) -> None:
    report = await turn(coder(Client(GOOD, summary)), TASK)
    response = await turn(terminal(), report.chat_message)
    assert facts_of(response) == {"stop_reason": "no_code"}


async def test_a_summary_that_was_cut_in_a_block_does_not_swallow_the_report(coder: MakeCoder) -> None:
    report = text_of(await turn(coder(Client(GOOD, "The final code:\n\n```python\nprint(6 *")), TASK))
    shown = [block.code for block in extract_code_blocks(report) if block.no_run]
    assert shown[-2:] == ["print(6 * 7)", "42\n"]


# --- Which blocks run ---


async def test_other_languages_can_be_supported(terminal: MakeTerminal) -> None:
    agent = terminal(supported_languages=["bash"])
    response = await turn(agent, f"```bash\necho ${{BASH_VERSION:+bash}}\n```\n\n{GOOD}")
    assert text_of(response).startswith("bash\n")
    assert "labelled 'python'" in text_of(response)


@pytest.mark.parametrize("name", ["python3", "Python", "py"])
async def test_a_supported_language_goes_by_any_of_its_names(name: str, terminal: MakeTerminal) -> None:
    assert text_of(await turn(terminal(supported_languages=[name]), GOOD)) == "42\n"


async def test_a_language_that_does_not_run_here_is_named(terminal: MakeTerminal) -> None:
    response = await turn(terminal(), COBOL)
    assert "labelled 'cobol'" in text_of(response)
    assert "python, sh" in text_of(response)
    assert facts_of(response)["outcome"] == "error"


async def test_the_model_is_told_of_a_language_that_does_not_run_here(coder: MakeCoder) -> None:
    client = Client(f"{COBOL}\n\n{GOOD}", "Done.")
    response = await turn(coder(client), TASK)
    told = client.calls[-1].texts[-1]
    assert told.startswith("42\n")
    assert "line 1 was not run: it is labelled 'cobol'" in told
    assert facts_of(response)["outcome"] == "ok"


async def test_code_in_an_unknown_language_alone_can_be_mended(coder: MakeCoder) -> None:
    client = Client(COBOL, decide(True, "use Python"), GOOD, "Done.")
    response = await turn(coder(client, max_retries_on_error=1), TASK)
    assert "labelled 'cobol'" in client.calls[1].texts[-3]
    assert (facts_of(response)["attempts"], facts_of(response)["outcome"]) == ("2", "ok")


@pytest.mark.parametrize("label", ["json", "text", "markdown", "html", "yaml", "console", "diff"])
async def test_data_beside_code_is_no_problem(label: str, coder: MakeCoder) -> None:
    response = await turn(coder(Client(f"{GOOD}\n\nIt prints:\n```{label}\n42\n```", "Done.")), TASK)
    assert facts_of(response)["outcome"] == "ok"


@pytest.mark.parametrize("label", ["json", "text", "markdown", "html", "yaml", "console", "diff"])
async def test_data_alone_is_an_answer(label: str, coder: MakeCoder) -> None:
    response = await turn(coder(Client(f"Here:\n```{label}\n42\n```"), max_retries_on_error=2), TASK)
    assert facts_of(response) == {"stop_reason": "no_code"}


CUT = "Like this:\n\n```python\nopen('ran', 'w')\nprint(6 *"


async def test_a_block_that_was_cut_is_reported_and_never_run(coder: MakeCoder, tmp_path: Path) -> None:
    client = Client(CUT, "Sorry.")
    response = await turn(coder(client), TASK)
    assert "line 3 was not run: it is cut off" in client.calls[-1].texts[-2]
    assert "cut off" in text_of(response)
    assert (facts_of(response)["outcome"], facts_of(response)["exit_code"]) == ("error", "1")
    assert not (tmp_path / "ran").exists()


async def test_a_block_that_was_cut_is_not_run_for_others_either(terminal: MakeTerminal, tmp_path: Path) -> None:
    response = await turn(terminal(), CUT)
    assert "cut off" in text_of(response)
    assert facts_of(response)["outcome"] == "error"
    assert not (tmp_path / "ran").exists()


async def test_what_ran_beside_a_block_that_was_cut_does_not_count_as_done(coder: MakeCoder, tmp_path: Path) -> None:
    client = Client(f"{GOOD}\n\n{CUT}", decide(True), GOOD, "Done.")
    response = await turn(coder(client, max_retries_on_error=1), TASK)
    first = client.calls[1].texts[-3]
    assert "42\n" in first
    assert "cut off" in first
    assert (facts_of(response)["attempts"], facts_of(response)["outcome"]) == ("2", "ok")
    assert not (tmp_path / "ran").exists()


async def test_a_block_marked_no_run_is_not_run(coder: MakeCoder, tmp_path: Path) -> None:
    response = await turn(coder(Client(f"```python no-run\nopen('ran', 'w')\n```\n\n{GOOD}", "Done.")), TASK)
    assert facts_of(response)["outcome"] == "ok"
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("draft", [f"So: <think>I could\n{python('print(1)')}", f"{python('print(1)')}\n</think>"])
async def test_code_in_thoughts_with_one_tag_is_not_run_and_the_model_is_told(coder: MakeCoder, draft: str) -> None:
    client = Client(draft, decide(True), f"<think>{python('print(2)')}</think>{GOOD}", "Done.")
    response = await turn(coder(client, max_retries_on_error=1), TASK)
    assert facts_of(response)["outcome"] == "ok"
