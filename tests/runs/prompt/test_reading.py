"""The prompt of `coderoom chat` at a real terminal: tmux, whose screen a person would see."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.screen import Screen

pytestmark = pytest.mark.slow

WAITS = "```python\nimport os, time\nwhile not os.path.exists('go'): time.sleep(0.05)\nprint('has waited')\n```"
DONE = "That is done."


@pytest.fixture
def open_chat(tmp_path: Path) -> Iterator[Callable[..., Screen]]:
    opened: list[Screen] = []

    def open_one(replies: Sequence[str] = (DONE,) * 5, **options: Any) -> Screen:
        for screen in opened:
            screen.end()
        opened[:] = [Screen(tmp_path, replies, **options)]
        return opened[0]

    yield open_one
    for screen in opened:
        screen.end()


Open = Callable[..., Screen]


def test_a_paste_is_one_task_whatever_its_length(open_chat: Open) -> None:
    chat = open_chat()
    chat.paste("first\nsecond\nthird")
    chat.until_line("first\n  second\n  third")
    chat.type("Enter")
    chat.until("no code ran")
    assert chat.tasks() == ["first\nsecond\nthird"]
    chat.paste("".join(f"line {number} of a long paste\n" for number in range(2_000)) + "its end")
    chat.until("its end")
    chat.type("Enter")
    chat.until(lambda: chat.text.count("no code ran") == 2)
    assert [task.splitlines()[-1] for task in chat.tasks()] == ["third", "… and 1,991 more lines"]
    assert json.loads(chat.history.read_text().splitlines()[-1]).endswith("line 1999 of a long paste\nits end")


def test_lines_history_and_what_is_not_kept(open_chat: Open) -> None:
    chat = open_chat()
    chat.type("one", "M-Enter", "two\\", "Enter", "three")
    chat.until_line("one\n  two\n  three")
    chat.type("Enter")
    chat.until("no code ran")
    chat.type(" a secret", "Enter")
    chat.until(lambda: chat.text.count("no code ran") == 2)
    chat.type("exit", "Enter")
    chat.until("ended with")
    assert stat.S_IMODE(chat.history.stat().st_mode) == 0o600
    assert "secret" not in chat.history.read_text()
    chat = open_chat()
    chat.type("Up", "Up")
    chat.until_line("one\n  two\n  three")
    chat.type("Home", "BSpace", "!", "Enter")
    chat.until("no code ran")
    assert chat.tasks() == ["one\ntwo!three"]


def test_what_is_typed_while_the_team_works_comes_next(open_chat: Open) -> None:
    chat = open_chat([WAITS, DONE, "The second answer."])
    chat.type("Begin.", "Enter")
    chat.until("while not os.path.exists")
    chat.type("/later And then this.", "Enter", "half of a ta")
    chat.until("queued: /later And then this.")
    chat.type("C-u", "/tokens", "Enter", "half of a ta")
    chat.until("this task, so far")  # It does not wait for the end of the task.
    chat.until(lambda: re.search(r"^coder +[1-9]", chat.text, re.MULTILINE) is not None)
    (chat.folder / "w" / "go").touch()
    chat.until("The second answer.")
    assert chat.tasks() == ["Begin.", "/later And then this."]
    chat.until_line("half of a ta")


def test_words_reach_the_team_in_the_middle_of_its_task(open_chat: Open) -> None:
    chat = open_chat([WAITS, DONE, WAITS, "The second answer.", "The third answer.", "The fourth answer."])
    (chat.folder / "other.txt").write_text("x")
    chat.type("Begin.", "Enter")
    chat.until("while not os.path.exists")
    chat.type("No, use @other.txt", "Enter")
    chat.until("for the team's next step: No, use @other.txt")
    (chat.folder / "w" / "go").touch()
    chat.until("ok · 1 run of code")
    shown = chat.text[chat.text.index("has waited") : chat.text.index(DONE)]
    assert "No, use @other.txt" in shown
    assert "Files in the working folder: other.txt" in shown
    assert "gets it with its next request" in shown
    chat.until(lambda: "the team's next step:" not in chat.text)
    assert (chat.folder / "w" / "other.txt").read_text() == "x"
    (chat.folder / "w" / "go").unlink()
    chat.type("Again.", "Enter")
    chat.until(lambda: chat.text.count("while not os.path.exists") == 2)
    chat.type("One more thing.", "Enter", "/undo", "Enter", "And the last.", "Enter")
    chat.until("for the team's next step: And the last.")
    (chat.folder / "w" / "go").touch()
    chat.until("As before the task 'Again.'")  # The words have gone with the task.
    chat.type("Last.", "Enter")
    chat.until("The third answer.")
    assert chat.tasks() == ["Begin.", "Again.", "/undo", "Last."]


def test_words_that_were_not_heard_before_a_kill_are_in_the_line_of_the_chat_that_goes_on(open_chat: Open) -> None:
    chat = open_chat([WAITS, DONE, WAITS, DONE])
    chat.type("Begin.", "Enter")
    chat.until("while not os.path.exists")
    chat.type("This is heard.", "Enter")
    (chat.folder / "w" / "go").touch()
    chat.until("ok · 1 run of code")
    (chat.folder / "w" / "go").unlink()
    chat.type("Again.", "Enter")
    chat.until(lambda: chat.text.count("while not os.path.exists") == 2)
    chat.type("No, use the other.", "Enter", "And hurry.", "Enter")
    chat.until("for the team's next step: And hurry.")
    chat.kill()
    chat = open_chat([], options=["--continue"])
    chat.until_line("No, use the other.\n  And hurry.")
    assert "Not heard before the chat was ended:\n> No, use the other.\n> And hurry.\n" in chat.text
    assert "> This is heard." not in chat.text


def test_ctrl_c_clears_ends_the_task_and_leaves(open_chat: Open) -> None:
    chat = open_chat([WAITS, DONE])
    chat.type("words")
    chat.until_line("words")
    chat.type("C-c")
    chat.until_line("")
    chat.type("Begin.", "Enter")
    chat.until("while not os.path.exists")
    chat.type("not yet given", "Enter", "C-c")
    chat.until("cancelled")
    chat.until_line("not yet given")  # It is not run, and not lost.
    chat.type("C-c", "C-c")
    chat.until("Ctrl-C again")
    assert "ended with" not in chat.text
    chat.type("C-c")
    chat.until("ended with 130\n icanon")


def test_ctrl_d_leaves_only_from_an_empty_line_and_not_while_the_team_works(open_chat: Open) -> None:
    chat = open_chat([WAITS, DONE])
    chat.type("Begin.", "Enter")
    chat.until("while not os.path.exists")
    chat.type("C-d")
    chat.until("The team works.")
    (chat.folder / "w" / "go").touch()
    chat.until("ok · 1 run of code")
    chat.type("text", "C-d")
    chat.until_line("text")
    chat.type("C-c", "C-d")
    chat.until("ended with 0\n icanon")


def test_a_question_gets_the_keyboard_and_typed_text_is_no_answer(open_chat: Open) -> None:
    code = "```python\nprint('was allowed')\n```"
    chat = open_chat([code, DONE, DONE, code], team="human-approves")
    chat.type("Begin.", "Enter", "/later y", "Enter")
    chat.until("queued: /later y")
    typed = 0
    while typed < 20 or "A question waits" not in chat.text:  # A person who goes on typing, whatever the screen shows.
        chat.type("y")
        typed += 1
        assert "[y/N/a/e]" not in chat.text
    chat.until("[y/N/a/e]")
    time.sleep(1)
    assert "was allowed" not in chat.text.partition("[y/N/a/e]")[2]
    chat.type("y", "Enter")
    chat.until("│ was allowed")
    chat.until(lambda: chat.text.count(" tokens · ") == 2)
    assert chat.tasks() == ["Begin.", "/later y"]
    assert chat.line.replace("\n  ", "") == "y" * typed
    chat.type("C-c", "Again.", "Enter")
    chat.until(lambda: chat.text.count("[y/N/a/e]") == 2)
    chat.type("C-c")
    chat.until("The question is withdrawn.")
    chat.until_line("")


def test_wide_and_right_to_left_text_and_a_smaller_terminal(open_chat: Open) -> None:
    chat = open_chat()
    text = "数一数这些苹果 🍎 مرحبا بالعالم"
    chat.type(text)
    chat.until_line(text)
    chat.type("Left", "Left", "BSpace", "Home", "A")
    wanted = "A数一数这些苹果 🍎 مرحبا بالعلم"
    chat.until_line(wanted)
    chat.tmux("resize-window", "-x", "40", "-y", "15")
    chat.type("B")
    chat.until(lambda: "AB数" in chat.text.replace("\n", ""))
    chat.type("Enter")
    chat.until("no code ran")
    assert chat.text.count("> AB") == 1


def test_tab_completes_files(open_chat: Open) -> None:
    chat = open_chat()
    (chat.folder / "sales of may.csv").touch()
    (chat.folder / "w" / "deep").mkdir()
    chat.type("Read @sal", "Tab")
    chat.until_line("Read @sales of may.csv")
    chat.type(" and @w/", "Tab")
    chat.until_line("Read @sales of may.csv and @w/deep/")
    chat.type("C-c", "/fi", "Tab")  # Two begin so.
    chat.until("/files")


def test_an_editor_changes_the_task(open_chat: Open, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\necho >> $1\necho and more >> $1\n")
    editor.chmod(0o700)
    monkeypatch.setenv("VISUAL", str(editor))
    chat = open_chat()
    chat.type("A task", "C-x", "C-e")
    chat.until("and more")
    chat.type("Enter")
    chat.until("no code ran")
    assert chat.tasks() == ["A task\nand more"]


@pytest.mark.parametrize("busy", [False, True])
def test_nothing_stays_when_the_terminal_goes_away(open_chat: Open, busy: bool) -> None:
    chat = open_chat([WAITS, DONE])
    if busy:
        chat.type("Begin.", "Enter")
        chat.until("while not os.path.exists")
    (pid,) = chat.tmux("list-panes", "-F", "#{pane_pid}").split()
    children = [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    chat.tmux("kill-pane")
    deadline = time.monotonic() + 40
    while any(Path(f"/proc/{child}").exists() for child in children):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_sigterm_leaves_the_terminal_as_it_was(open_chat: Open) -> None:
    chat = open_chat()
    (pid,) = chat.tmux("list-panes", "-F", "#{pane_pid}").split()
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    os.kill(int(child), signal.SIGTERM)
    chat.until("ended with 0\n icanon")


def test_a_plain_terminal_has_plain_lines(open_chat: Open) -> None:
    chat = open_chat([DONE], term="dumb")
    chat.type("Begin.", "Enter")
    chat.until("no_code")
    chat.type("Enter")
    chat.until("ended with 1")
    assert "\x1b" not in chat.tmux("capture-pane", "-p", "-e", "-S", "-")


def test_what_models_and_code_say_cannot_control_the_terminal(open_chat: Open) -> None:
    hostile = "\x1b]0;taken\x07\x1b[2J\x1b[31mred\x1b[0m \x9b5n"
    chat = open_chat([f"{WAITS}\n{hostile}", DONE])
    chat.type("Begin.", "Enter")
    chat.until("while not os.path.exists")
    chat.type("queued", "Enter")
    chat.paste("\x1b[2Jpasted \u202e")
    chat.until("␛]0;taken␇")
    chat.until("^[[2Jpasted")
    assert chat.tmux("display-message", "-p", "#{pane_title}").strip() != "taken"
    (chat.folder / "w" / "go").touch()
    chat.until("ok · 1 run of code")


STUBBORN = """\
import asyncio
from coderoom.configs import ReplayModel

class Model(ReplayModel):
    async def create(self, *arguments, **named):
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                pass
"""
TEAM = """\
provider: autogen_agentchat.teams.RoundRobinGroupChat
component_type: team
config:
  participants:
    - provider: autogen_agentchat.agents.AssistantAgent
      component_type: agent
      config:
        name: coder
        description: Goes on.
        model_client: {provider: own.Model, component_type: model, config: {replies: []}}
        reflect_on_tool_use: false
        tool_call_summary_format: "{result}"
"""


def test_a_team_that_does_not_end_leaves_the_terminal_as_it_was(open_chat: Open, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "own.py").write_text(STUBBORN)
    (tmp_path / "team.yaml").write_text(TEAM)
    chat = open_chat(team="team.yaml", options=["--trust", "own"])
    chat.type("Begin.", "Enter")
    chat.until("waits for the model")
    chat.type("C-c", "C-c")
    chat.until("The task has not ended yet.")
    chat.type("C-\\")
    chat.until("ended with 131\n icanon")
