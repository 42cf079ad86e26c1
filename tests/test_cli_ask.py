"""`coderoom ask`: one question to a model."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.support.commands import coderoom, recording
from tests.support.openai_server import OpenAIServer, Reply
from tests.support.terminals import in_terminal


def env(server: OpenAIServer, folder: Path) -> dict[str, str]:
    return {
        "OPENAI_API_KEY": "test-key-1234",
        "OPENAI_BASE_URL": server.base_url,
        "CODEROOM_MODEL": "gpt-4o-2024-08-06",
        "CODEROOM_JOURNAL": str(folder / "journal.sqlite3"),
    }


def test_a_question_is_answered_kept_and_followed_by_another(tmp_path: Path) -> None:
    with OpenAIServer(["It is **42**.", "Yes."]) as server:
        asked = coderoom("ask", "6 * 7?", cwd=tmp_path, env=env(server, tmp_path))
        again = coderoom("ask", "Sure?", "--continue", cwd=tmp_path, env=env(server, tmp_path))
        listed = coderoom("runs", "--json", cwd=tmp_path, env=env(server, tmp_path))
    assert (asked.returncode, asked.stdout, asked.stderr) == (0, "It is **42**.\n", "")
    assert (again.returncode, again.stdout, again.stderr) == (0, "Yes.\n", "")
    assert [message["role"] for message in server.requests[0].messages] == ["user"]  # It has no instructions.
    assert [message["content"] for message in server.requests[1].messages] == ["6 * 7?", "It is **42**.", "Sure?"]
    [entry] = json.loads(listed.stdout)["runs"]
    assert (entry["command"], entry["outcome"], entry["facts"]["answer"]) == ("ask", "ok", "Yes.")
    assert not (tmp_path / "coderoom-workspace").exists()


def test_what_is_shown_of_a_question_does_not_speak_of_code(tmp_path: Path) -> None:
    model, kept = recording(tmp_path / "r.json", ["Fine."]), ("--journal", str(tmp_path / "journal"))
    asked = coderoom("ask", "How are you?", "-m", model, *kept, cwd=tmp_path)
    shown = coderoom("runs", "show", *kept, cwd=tmp_path)
    assert (asked.returncode, shown.returncode, "Fine." in shown.stdout) == (0, 0, True)
    assert "The model is a recording" in shown.stdout
    assert not [word for word in ("code", "none written", "real") if word in shown.stdout.replace(str(tmp_path), "")]


def test_files_and_what_is_piped_in_are_part_of_the_question(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("```sh\nls\n```")
    with OpenAIServer(["Fine."]) as server:
        words = ("ask", "Explain.", "-f", "a.md", "-s", "Keep ${HOME} as it is.")
        done = coderoom(*words, cwd=tmp_path, env=env(server, tmp_path), stdin="piped\n")
    assert done.returncode == 0, done.stderr
    system, user = server.requests[0].messages
    assert system["content"] == "Keep ${HOME} as it is."
    contents = "a.md:\n````\n```sh\nls\n```\n````\n\nStandard input:\n```\npiped\n```"
    assert user["content"] == f"Explain.\n\nContents of files:\n\n{contents}"


def test_what_is_piped_in_alone_is_the_question(tmp_path: Path) -> None:
    model = recording(tmp_path / "r.json", ["Fine."])
    done = coderoom("ask", "-m", model, "--json", "--no-journal", cwd=tmp_path, stdin="How are you?\n")
    found = json.loads(done.stdout)
    assert (found["task"], found["answer"], found["run"], found["cut_off"]) == ("How are you?", "Fine.", None, False)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "There is no question"),
        (["x", "-f", "large"], "have more than 1,000,000 bytes"),
        (["x", "-f", "picture"], "picture is not text"),
        (["x", "-f", "missing"], "Cannot read 'missing': No such file"),
        (["x", "--continue", "--system", "y"], "leave out --model, --system"),
    ],
)
def test_a_question_that_cannot_be_asked_is_a_wrong_request(tmp_path: Path, words: list[str], message: str) -> None:
    (tmp_path / "large").write_bytes(b"x" * 3_000_000)
    (tmp_path / "picture").write_bytes(b"\x89PNG\r\n")
    done = coderoom("ask", *words, "-m", recording(tmp_path / "r.json", ["x"]), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


@pytest.mark.slow
def test_an_answer_that_was_cut_off_and_a_limit_are_told(tmp_path: Path) -> None:
    with OpenAIServer([Reply("It is", finish_reason="length"), Reply("Late.", delay=20)]) as server:
        cut = coderoom("ask", "x", cwd=tmp_path, env=env(server, tmp_path))
        limited = coderoom("ask", "y", "-c", "--max-seconds", "0.2", cwd=tmp_path, env=env(server, tmp_path))
    assert (cut.returncode, cut.stdout) == (0, "It is\n")
    assert "cut off" in cut.stderr
    assert (limited.returncode, limited.stdout) == (1, "")
    assert "the budget of the run was reached" in " ".join(limited.stderr.split())


@pytest.mark.slow
def test_a_terminal_shows_the_answer_while_it_comes(tmp_path: Path) -> None:
    reply = (
        "<think>Not for you: 6 * 7.</think>\nIt is\x1b[31m **42**, \u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645."
    )
    with OpenAIServer([Reply(reply, chunk=3), "Not closed by\nits tag.</think>Yes."]) as server:
        command = [sys.executable, "-m", "coderoom", "ask", "6 * 7?"]
        code, shown = in_terminal(command, tmp_path, env(server, tmp_path))
        late = in_terminal(command, tmp_path, env(server, tmp_path))[1]
    assert code == 0
    answer = "It is\u241b[31m **42**, \u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645."
    assert shown.endswith(f"{answer}\r\n")
    assert "Not for you" not in shown
    assert late.endswith("\r\n\r\nYes.\r\n")  # Only at its end it turned out to be a thought.
