"""Which blocks of a text run, and why others do not."""

from __future__ import annotations

from functools import partial

import pytest
from autogen_agentchat.messages import TextMessage

from coderoom.agents.selection import select_blocks, select_from_reply, texts_of

FENCE = "```{}\n{}\n```\n"


def test_only_the_languages_that_run_here() -> None:
    text = FENCE.format("py", 1) + FENCE.format("bash", "ls") + FENCE.format("json", "{}") + FENCE.format("", "2")
    found = select_blocks([text], ["python"])
    assert [(block.code, block.language) for block in found.blocks] == [("1", "python")]
    assert (found.is_code, found.cut, found.left_out) == (True, False, ("ls", "{}", "2"))
    assert "labelled 'bash', and what runs here is python." in found.notes[0]
    assert "it has no language" in found.notes[2]


@pytest.mark.parametrize(
    ("label", "is_code"), [("json", False), ("bash", True), ("python no-run", False), ("", False), ("diff", False)]
)
def test_which_labels_are_those_of_code(label: str, is_code: bool) -> None:
    found = select_blocks([FENCE.format(label, "x")], ["python"])
    assert (found.is_code, found.blocks) == (is_code, ())
    assert ("No diff is applied here" in "".join(found.notes)) == (label == "diff")


@pytest.mark.parametrize(("label", "cut"), [("python", True), ("bash", True), ("json", False), ("", False)])
def test_a_block_without_an_end(label: str, cut: bool) -> None:
    found = select_blocks([f"```{label}\n1"], ["python"])
    assert (found.blocks, found.cut, found.left_out) == ((), cut, ("1",))
    assert ("its closing fence is missing" in "".join(found.notes)) == (label != "json")


def test_fences_or_tags() -> None:
    text = f"{FENCE.format('python', 1)}\n<execute>\n2\n</execute>"
    codes = {
        each: [block.code for block in select_blocks([text], ["python"], each).blocks] for each in ("fence", "execute")
    }
    assert codes == {"fence": ["1"], "execute": ["2"]}
    assert "tags is not run here" in select_blocks([text], ["python"], "fence").notes[0]
    assert select_blocks([text], ["python"], "execute").notes == ()


def test_many_notes_and_many_blocks() -> None:
    assert len(select_blocks([FENCE.format("sh", 1) * 20], ["python"]).notes) == 20
    assert select_blocks([FENCE.format("sh", 1) * 22], ["python"]).notes[20:] == ("2 more blocks were not run either.",)
    assert len(select_blocks([FENCE.format("py", 1) * 1000], ["python"]).blocks) == 1000
    found = select_blocks([FENCE.format("py", 1) * 1001], ["python"])
    assert found.blocks == ()
    assert "the text has 1,001 blocks, and 1,000 are read" in found.notes[0]


def test_thoughts_are_drafts() -> None:
    find = partial(lambda text: select_blocks([text], ["python"]))
    draft, code = FENCE.format("python", 1), FENCE.format("python", 2)
    closed = select_from_reply(f"{draft}</think>\n{code}", find)
    assert ([block.code for block in closed.blocks], closed.notes) == (["2"], ())
    for reply, why in (
        (f"{draft}</think>\nDone.", "before </think> was not run"),
        (f"<think>\n{draft}", "never closed"),
    ):
        found = select_from_reply(reply, find)
        assert (found.blocks, found.is_code, found.left_out) == ((), True, ("1",))
        assert why in found.notes[0]
    assert texts_of(TextMessage(content="<think>a</think>b", source="user")) == ["<think>a</think>b"]
    assert [text.strip() for text in texts_of(TextMessage(content="<think>a</think>b", source="x"))] == ["b"]
