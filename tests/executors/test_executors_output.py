from __future__ import annotations

import re
from pathlib import Path

import pytest

from coderoom.executors import bound_output, save_output


def test_a_text_that_fits_is_returned_as_it_is() -> None:
    assert bound_output("a" * 200, 200) == "a" * 200
    assert bound_output("", 200) == ""


@pytest.mark.parametrize("limit", [200, 201, 333, 5000])
@pytest.mark.parametrize("text", ["x" * 100_000, "line of text\n" * 9000, "é\n\n" * 40_000])
def test_a_long_text_keeps_its_beginning_and_end_and_says_what_is_missing(limit: int, text: str) -> None:
    bounded = bound_output(text, limit)
    match = re.search(r"\[\.\.\. ([\d,]+) of ([\d,]+) characters left out \.\.\.\]\n", bounded)
    assert match
    head, tail = bounded[: match.start()], bounded[match.end() :]
    assert text.endswith(tail)
    assert len(bounded) <= limit
    assert int(match[2].replace(",", "")) == len(text)
    left_out = int(match[1].replace(",", ""))
    # The line break before the notice may be one of ours.
    assert len(head) + len(tail) + left_out in {len(text), len(text) + 1}
    assert text.startswith(head) or (head.endswith("\n") and text.startswith(head[:-1]))
    assert len(head) > len(tail)


def test_cuts_are_at_line_ends_where_one_is_near() -> None:
    text = "".join(f"line {number:05}\n" for number in range(10_000))
    lines = bound_output(text, 1000).splitlines()
    assert all(re.fullmatch(r"line \d{5}|\[\.\.\. .* \.\.\.\]", line) for line in lines)


def test_the_notice_names_the_file_and_the_true_total() -> None:
    bounded = bound_output("x" * 1000, 300, whole=Path("/there/output.txt"), total=5_000_000)
    assert "of 5,000,000 characters left out; the whole output is in /there/output.txt" in bounded


def test_a_very_long_path_does_not_eat_the_text() -> None:
    bounded = bound_output("x" * 1000, 200, whole=Path("/" + "p" * 250))
    assert bounded.count("x") == 100


def test_a_limit_too_small_for_the_notice_is_refused() -> None:
    with pytest.raises(ValueError, match="limit=199"):
        bound_output("text", 199)


def test_save_output_writes_the_whole_text_to_a_file_of_its_own(tmp_path: Path) -> None:
    folder = tmp_path / "not" / "there"
    text = "one\r\ntwo é \N{SNOWMAN}\n"
    first, second = save_output(text, folder), save_output("", folder)
    assert first != second
    assert first.parent == folder / ".coderoom"
    assert first.read_bytes().decode() == text


def test_save_output_stands_text_that_has_no_bytes(tmp_path: Path) -> None:
    assert save_output("a\udcff\ud83db", tmp_path).read_text(encoding="utf-8") == "a??b"
