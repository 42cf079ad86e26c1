"""Text of a reply → blocks of code."""

from __future__ import annotations

import pickle
import re
from textwrap import indent

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coderoom.blocks import Block, extract_code_blocks, fence, normalize_language, split_thoughts, without_thoughts
from coderoom.errors import RequestError


def only(text: str) -> Block:
    (block,) = extract_code_blocks(text)
    return block


def codes(text: str) -> list[tuple[str, str]]:
    return [(block.language, block.code) for block in extract_code_blocks(text)]


# --- CE10: the replies that AutoGen's pattern misreads ---------------------------------------------------------------


@pytest.mark.parametrize("label", ["py", "python3", "Python", "PY", "python3.11", "ipython3"])
def test_ce10_every_name_of_python_is_python(label: str) -> None:
    assert codes(f"```{label}\nprint(1)\n```") == [("python", "print(1)")]


def test_ce10_bash_is_found() -> None:
    assert codes("```bash\nls -l\n```") == [("sh", "ls -l")]


def test_ce10_block_without_language_is_found() -> None:
    assert codes("```\nprint(1)\n```") == [("", "print(1)")]


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_ce10_every_line_end_is_read(line_end: str) -> None:
    text = line_end.join(["Run it:", "", "```python", "x = 1", "", "print(x)", "```", "Done."])
    block = only(text)
    assert (block.code, block.closed, block.line) == ("x = 1\n\nprint(x)", True, 3)


@pytest.mark.parametrize(
    "info", ["python ", "python  \t", ' python title="x.py"', "python {.numberLines}", "python3 x=1"]
)
def test_ce10_trailing_space_and_attributes_do_not_hide_a_block(info: str) -> None:
    assert codes(f"```{info}\nprint(1)\n```   ") == [("python", "print(1)")]


def test_ce10_tildes_are_a_fence() -> None:
    assert codes("~~~python\nprint('```')\n~~~") == [("python", "print('```')")]


def test_ce10_fence_inside_a_string_does_not_cut_the_code() -> None:
    code = 's = """\n```\ntext\n```\n"""\nprint(s)'
    assert codes(f"Look:\n\n```python\n{code}\n```\n\nThat was it.") == [("python", code)]


def test_ce10_indented_block_loses_its_indentation() -> None:
    text = "1. Run this:\n\n   ```python\n   for i in range(2):\n       print(i)\n   ```\n"
    assert codes(text) == [("python", "for i in range(2):\n    print(i)")]


def test_ce10_example_inside_a_longer_fence_is_no_block() -> None:
    text = "````markdown\n# Title\n\n```python\nprint('not to run')\n```\n````\n\n```python\nprint('to run')\n```\n"
    assert codes(text) == [
        ("markdown", "# Title\n\n```python\nprint('not to run')\n```"),
        ("python", "print('to run')"),
    ]


def test_ce10_no_run_flag_is_reported() -> None:
    assert only("```python no-run\nprint(1)\n```").no_run


# --- Fences as CommonMark has them -----------------------------------------------------------------------------------


def test_code_is_exactly_the_lines_between_the_fences() -> None:
    assert only("```\n\n  a \n\n\n```").code == "\n  a \n\n"
    assert only("```\n```").code == ""
    assert only("```\n\n```").code == ""


def test_closing_fence_may_be_longer_and_shorter_ones_are_content() -> None:
    assert codes("````\n```\n~~~~\n`````\nx") == [("", "```\n~~~~")]


def test_blocks_come_in_the_order_of_the_text_with_their_lines() -> None:
    text = "a\n\n```json\n{}\n```\nb\n~~~\nc\n~~~\n<execute>d</execute>\n> ```js\n> e\n> ```\n"
    assert [(b.tag, b.code, b.line) for b in extract_code_blocks(text)] == [
        ("json", "{}", 3),
        ("", "c", 7),
        ("execute", "d", 10),
        ("js", "e", 11),
    ]


def test_block_in_a_quote() -> None:
    assert codes("> Try:\n> ```py\n> if x:\n>     y\n>\n> z\n> ```\nend") == [("python", "if x:\n    y\n\nz")]


def test_block_in_a_quote_in_a_list_in_a_list() -> None:
    text = "- a\n  1. b\n     > ```sh\n     > ls\n     > ```\n\n```\nx\n```\n"
    assert codes(text) == [("sh", "ls"), ("", "x")]


def test_content_left_of_its_fence_keeps_its_levels() -> None:
    # CommonMark would take two blanks from the second line only.
    assert only("  ```python\nif x:\n  y\n  ```").code == "if x:\n  y"
    assert only("  ```yaml\n  a:\n    b: 1\n c: 2\n  ```").code == "a:\n  b: 1\nc: 2"


def test_indented_code_and_inline_code_are_no_blocks() -> None:
    assert codes("Text\n\n    ```python\n    x\n    ```\n\nand `x = 1` and ```y = 2``` too") == []


def test_text_without_code_has_no_blocks() -> None:
    assert codes("") == codes("\n") == codes("No code here.\n\n- a\n- b\n\n# T\n\nU\n---\n") == []


def test_setext_title_ends_where_a_list_with_a_fence_begins() -> None:
    assert codes("Title\n=====\n2. a\n   ```sh\n   ls\n   ```") == [("sh", "ls")]
    assert codes("Title\n-\n2. a\n   ```sh\n   ls\n   ```") == [("sh", "ls")]


def test_byte_order_mark_is_no_text() -> None:
    assert codes("\ufeff```python\nx\n```") == [("python", "x")]


def test_nul_and_lone_surrogates_stay_in_the_code() -> None:
    assert only("```python\na\0b\ud800\n```").code == "a\0b\ud800"


@pytest.mark.parametrize("separator", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029"])
def test_only_real_line_ends_end_a_line(separator: str) -> None:
    assert only(f"```python\na{separator}```{separator}b\n```").code == f"a{separator}```{separator}b"


# --- Fences that models write ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code",
    [
        "s = '''\n```\n'''",
        's = """\n```\n"""\nt = """\n```python\nx\n```\n"""',
        'README = """# Usage\n\n```python\nimport x\n```\n\n```bash\nls\n```\n"""',
        'PROMPT = r"""```python\nx\n```\n\n```python\ny\n```\n"""',
        's = f"""{a}\n```\n"""  # it\'s """ here',
        's = "\\"\\"\\""\nt = """\\"""\n```\n"""',
        "s = 'it'  # don't\nt = '''\n```\n'''",
        's = "a\\\n\'\'\'b"\nt = """\n```\n"""',
    ],
)
def test_fences_in_triple_quoted_strings_belong_to_the_code(code: str) -> None:
    assert codes(f"```python\n{code}\n```\nEnd.\n```sh\nls\n```") == [("python", code), ("sh", "ls")]


def test_fences_in_a_string_in_a_list_item() -> None:
    code = 's = """\n```\n"""\nprint(s)'
    assert codes(f"- a\n{indent(fence_of_three(code), '  ')}\n- b") == [("python", code)]


def fence_of_three(code: str) -> str:
    return f"```python\n{code}\n```"


def test_string_that_is_never_closed_does_not_take_in_the_next_block() -> None:
    text = '```python\ns = """ oops\n```\n\nNow "this":\n\n```python\ndef f():\n    """Do # it."""\n```\n'
    assert codes(text) == [("python", 's = """ oops'), ("python", 'def f():\n    """Do # it."""')]


def test_string_that_is_closed_in_the_next_block_does_not_take_it_in() -> None:
    text = '```python\ns = """\n```\nsay """\n```python\nx\n```\n'
    assert codes(text) == [("python", 's = """'), ("python", "x")]


def test_string_that_is_never_closed_ends_at_the_first_fence() -> None:
    assert codes('```python\ns = """\n```\n\nEnd.') == [("python", 's = """')]


def test_only_python_has_such_strings() -> None:
    assert codes('```text\n"""\n```\n"""\n') == [("text", '"""')]


@pytest.mark.parametrize(("opening", "closing"), [("~~~", "~~~"), ("````", "````")])
def test_longer_fences_and_tildes_are_plain_commonmark(opening: str, closing: str) -> None:
    assert codes(f'{opening}python\ns = """\n{closing}\n"""') == [("python", 's = """')]


@pytest.mark.parametrize("label", ["markdown", "md"])
def test_labelled_fences_in_a_markdown_block_are_nested(label: str) -> None:
    inner = "# T\n\n```python\nprint(1)\n```\n\ntext\n\n```sh\nls\n```"
    assert codes(f"```{label}\n{inner}\n```\n\n```python\nx\n```") == [("markdown", inner), ("python", "x")]


def test_longer_fence_inside_a_markdown_block_is_closed_by_its_like() -> None:
    inner = "````md\n```\n```\n````"
    assert codes(f"```markdown\n{inner}\n```\nend") == [("markdown", inner)]


def test_markdown_block_that_does_not_balance_is_plain_commonmark() -> None:
    text = "```markdown\n# T\n```python\nx\n```\n\nDone.\n\n```python\ny\n```\n"
    assert codes(text) == [("markdown", "# T\n```python\nx"), ("python", "y")]


def test_only_markdown_nests() -> None:
    assert codes("```text\n```python\nx\n```\ny\n```z\n```") == [("text", "```python\nx"), ("z", "")]


@pytest.mark.parametrize("label", ["diff", "patch"])
def test_fences_in_a_diff_belong_to_it(label: str) -> None:
    head = "--- a/README.md\n+++ b/README.md\n@@ -1,5 +1,8 @@\n"
    diff = f"{head} # Title\n ```sh\n-make\n+make all\n ```\n+```\n+more\n+```\n end"
    assert codes(f"Like this:\n\n```{label}\n{diff}\n```\n\nThat is all.") == [("diff", diff)]
    item = diff.replace("\n", "\n  ")
    assert codes(f"- First:\n\n  ```{label}\n  {item}\n  ```\n\n```py\n1\n```") == [("diff", diff), ("python", "1")]
    assert extract_code_blocks(f"```{label}\n{diff}\n```")[0].unclear == ""


@pytest.mark.parametrize("text", ["```python\nprint(1)", "```python\nprint(1)\n", "- ```python\n  print(1)\n\nend"])
def test_block_that_is_never_closed_says_so(text: str) -> None:
    block = extract_code_blocks(text)[0]
    assert (block.code.strip(), block.closed) == ("print(1)", False)


def test_block_ends_with_its_quote() -> None:
    assert [(b.code, b.closed) for b in extract_code_blocks("> ```\n> x\n\n```\ny\n```")] == [("x", False), ("y", True)]


def test_closing_fence_left_of_the_list_item_closes_the_block() -> None:
    text = "1. Run:\n   ```python\n   x = 1\n```\n2. And:\n   ```sh\n   ls\n```\n\nEnd.\n\n```js\ny\n```\n"
    blocks = extract_code_blocks(text)
    assert [(b.language, b.code, b.closed) for b in blocks] == [
        ("python", "x = 1", True),
        ("sh", "ls", True),
        ("javascript", "y", True),
    ]


def test_code_left_of_the_list_item_belongs_to_the_block() -> None:
    text = "1. Run:\n   ```python\ndef f():\n    return 1\n\nprint(f())\n   ```\n2. Done\n\n```\nx\n```\n"
    assert codes(text) == [("python", "def f():\n    return 1\n\nprint(f())"), ("", "x")]


def test_code_that_leaves_the_list_item_later_belongs_to_the_block() -> None:
    text = '- ```python\n  s = """\ntext\n"""\n  print(s)\n  ```\nend'
    assert codes(text) == [("python", 's = """\ntext\n"""\nprint(s)')]


def test_list_that_is_code_left_of_the_list_item_belongs_to_the_block() -> None:
    assert codes("- Config:\n  ```yaml\n- a\n- b\n  ```\nend\n") == [("yaml", "- a\n- b")]
    assert codes("- ````\na\n~~~\n```\n  ````\nend\n") == [("", "a\n~~~\n```")]


def test_block_that_ends_with_its_list_item_leaves_the_others_alone() -> None:
    labelled = "- ```python\n  x\n\nProse.\n\n```python\ny\n```\n"
    assert [(b.code.strip(), b.closed) for b in extract_code_blocks(labelled)] == [("x", False), ("y", True)]
    bare = "- ```python\n  x\n\nProse.\n\n```\ny\n```\n"
    assert [(b.code.strip(), b.closed) for b in extract_code_blocks(bare)] == [("x", False), ("y", True)]
    next_item = "1. ```\n   x\n2. ```\n   y\n   ```\n"
    assert [(b.code, b.closed) for b in extract_code_blocks(next_item)] == [("x", False), ("y", True)]


def test_python_that_is_indented_as_a_whole_is_dedented() -> None:
    assert only("```python\n    for i in x:\n\n        print(i)\n```").code == "for i in x:\n\n    print(i)"
    assert only("```python\n    %pip install x\n    import x\n```").code == "%pip install x\nimport x"


def test_other_indentation_stays() -> None:
    assert only("```yaml\n  a: 1\n```").code == "  a: 1"
    assert only("```python\n  a\nb\n```").code == "  a\nb"


# --- Text inside of code that holds fences ---------------------------------------------------------------------------

PAGE = "# Use\n\n```sh\nrm -rf build\n```\n\ndon't, or:\n\n```\nout\n```\n"
NEXT = "\n\n```bash\necho next\n```"


@pytest.mark.parametrize(
    ("language", "code"),
    [
        ("sh", f"cat > R <<'END'\n{PAGE}END\necho ok"),
        ("bash", f'cat > R <<-"END"\n{PAGE}\tEND\necho ok'),
        ("zsh", f"cat <<\\A <<'B C'\n{PAGE}A\n{PAGE}B C\necho ok"),
        ("sh", f'# don\'t\nX="$(cat <<\'E\'\n{PAGE}E\n)"; echo "$X"'),
        ("sh", f'x="$(case $1 in a) echo "it\'s";; esac)"\ncat <<\'E\'\n{PAGE}E'),
        ("bash", "echo '# Use\n\n```sh\nls\n```\n' > R"),
        ("bash", f"# it's\n(( x << 2 )); y=$((1 << 3)) ${{x#a}} z=${{#x}} $# \\' <<< hi\ncat <<'E'\n{PAGE}E"),
        ("js", f"const s = `${{f(`b`, {{a: 1}})}}\n{PAGE}`;\nf(s)"),
        ("ts", f"const r = /[`/]/g, q = a / 2; // it`s\n/* ` */ f('`', `{PAGE}`);"),
        ("js", f"/*\n{PAGE}*/\nf()"),
        (
            "js",
            "if (f(a)) /`/.test(b); else /[`{]/.test(c)\nwhile (x) {\n}\n/`/.test(y)\nx =\n  /`/g; y = x => /'`/\n"
            "z = `${(a + b) / 2} a/b ${i++ / 2} ${a.if(b) / 2} ${{c: 1}.c / 2} ${d.in / 2} c/d`\n"
            f"e = [1] / 2\n  / `f`\ng = a /* b */ / `c` / 2; f(`{PAGE}`)",
        ),
        (
            "ts",
            f"const a: Map<string, B<c>> = `${{b! / 2}} km/h ${{(c as d) / 2}} m/s`; if (e!) /`/.test(e!)\nf(`{PAGE}`)",
        ),
        ("jsx", f"const a = <b c={{d}} /> || <b>{{`c`}}</b> || <b>{{`/`}}</b>\nf(`{PAGE}`)"),
        (
            "bash",
            "x=$[1<<3] y=$[ a[1] << (2<<b) ]; a[1<<2]=3; b=([1<<2]=3)\nif((x<<1));then :;fi\n"
            f"y=\"${{x#'\"'}} ${{x:-it's}}\"\ncat <<'A' <<-'B'\n{PAGE}A\n{PAGE}\tB\ncat <<\\E\n{PAGE}E",
        ),
        ("python", f"open('R', 'w').write('''{PAGE.strip()}''')"),
        ("bash", "echo '# Use\n\n```sh\nls\n```\nor\n```\nls\n```' > R\nls"),
        ("python", f's = f"""{{x}}\n{PAGE}"""\nprint(s)'),
    ],
)
@pytest.mark.parametrize("marker", ["```", "~~~"])
def test_fences_in_the_text_of_a_language_belong_to_the_code(language: str, code: str, marker: str) -> None:
    code = code.replace("```", marker)
    block = f"{marker}{language}\n{code}\n{marker}{NEXT}"
    # Below a list item, the indentation is no part of the code, in which the delimiter stands alone on its line.
    for text in (block, "1. " + indent(block, "   ")[3:], indent(block, "  ")):
        first, second = extract_code_blocks(f"Do:\n\n{text}")
        assert (first.code, first.closed, first.unclear) == (code, True, "")
        assert second.code == "echo next"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (f"```sh\ncat > R <<'END'\nx\n```\n\nand{NEXT}", "here-document 'END'"),
        (f"```sh\necho 'x\n```{NEXT}", "a quoted string"),
        (f"```js\nf(`x\n```{NEXT}", "a template literal"),
        (f"```js\na: {{}} /`/ 1\n```{NEXT}", "has two readings"),
        (f'```python\ns = """x\n```{NEXT}', "a triple-quoted string"),
        (f"```ruby\nx = <<~E\n{PAGE}E\n```{NEXT}", "another block seems to begin in it, at line 5"),
        (f"```sh\nls\n```sh\nrm -rf build\n```{NEXT}", "another block seems to begin in it, at line 3"),
        (f"```sh\nls\n```This lists all.\n```\nout\n```{NEXT}", "it seems to end at line 3"),
        (f"```md\n# T\n```sh\nrm -rf build\n```\n\nand{NEXT}", "not in pairs"),
        # The shell runs what is between backticks in these.
        (f"```sh\ncat > R <<END\n{PAGE}END\n```{NEXT}", "would run"),
        (f"````sh\ncat > R <<-END\n{PAGE}END\n````{NEXT}", "would run"),
        ('```sh\necho "\n```sh\nrm -rf build\n```\n" > R\n```', "would run"),
    ],
)
def test_what_cannot_be_told_for_sure_is_unclear(text: str, why: str) -> None:
    assert why in extract_code_blocks(text)[0].unclear


@pytest.mark.parametrize("text", ["```sh\ncat <<END\nx\n```\nThat is all.", "````js\nf(`x\n````\n\n```js\ny\n```"])
def test_an_open_text_with_one_possible_end_is_not(text: str) -> None:
    assert {block.unclear for block in extract_code_blocks(text)} == {""}


# --- Thoughts --------------------------------------------------------------------------------------------------------

DRAFT, REAL = "```python\ndraft\n```\n", "```python\nreal\n```\n"


@pytest.mark.parametrize(
    "reply",
    [
        f"<think>\n{DRAFT}</think>\n{REAL}",
        f"<THINKING mode='a'>\n\n{DRAFT}\n</THINKING >\n{REAL}".replace(" >", ">"),
        f"Sure. <reasoning>Maybe\n{DRAFT}</reasoning>{REAL}",
        f"{REAL}\n<think>\n{DRAFT}",
        f"{REAL}\nBut: <thought>\n{DRAFT}{DRAFT}",
        f"I could\n{DRAFT}</think>\n\n{REAL}",
        f"I could\n```python\ndraft\n</think>\n\n{REAL}",
        f"<think>I could\n```python\ndraft\n</think>\n\n{REAL}",
        f"<think>To end, I write `</think>`, or '</think>'.\n{DRAFT}</think>\n{REAL}",
        f"<think>a <think>\n{DRAFT}</think>\n{DRAFT}</think>\n{REAL}",
        f"<think>\n{DRAFT}</thinking>\n{REAL}",
        f"1. <think>\n   {DRAFT}</think>\n2. {REAL.replace(chr(10), chr(10) + '   ')}",
        f"> <think>\n> ```python\n> draft\n> ```\n> </think>\n\n{REAL}",
        f"<think>{DRAFT.strip()}</think>{REAL}",
        f"I could\n{DRAFT.strip()}</think>{REAL}",
        f"1. I could\n   ```python\n   draft```</think>\n   Or so.\n\n{REAL}",
        f"I could\n```ruby\ndraft\n``` </think>{REAL}",
        f"{REAL.strip()}<think>Or {DRAFT.strip()}</think>",
        f"<think>no</think> yes <think>no</think>\n{REAL}",
        f"<think/>\nThe <think> tag, `<think>`, and what is between <think> and </think>:\n{REAL}",
        f"{REAL}\nThis strips all up to the </think> tag.",
        f"{REAL}\nIt ends with a tag (</thinking>), or with </think>.",
        "<think><execute>draft</execute></think><execute>real</execute>",
    ],
)
def test_code_in_thoughts_is_none(reply: str) -> None:
    assert codes(without_thoughts(reply)) == [("python", "real")]


@pytest.mark.parametrize(
    "code",
    [
        's = """\n<think>\n</think>\n"""',
        's = """\n</think>\n"""',
        "s = text.split('</think>')[1]  # <think>",
        'print("<think>" + s)',
    ],
)
def test_a_tag_in_a_string_of_code_is_a_string(code: str) -> None:
    for reply in (fence(code, "python"), f"<think>\n{DRAFT}</think>\n{fence(code, 'python')}\nDone."):
        assert codes(without_thoughts(reply)) == [("python", code)]


def test_thoughts_leave_their_lines_and_say_whether_they_end() -> None:
    assert split_thoughts("a <think>b\nc</think> d\n\ne") == ("a \n d\n\ne", "")
    assert split_thoughts("a\n<think>b") == ("a\n", "<think>")
    assert split_thoughts("a\n</Think>b\n") == ("\nb\n", "</Think>")
    assert split_thoughts("`<think>`\r\n") == ("`<think>`\r\n", "")


# --- HTML ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tag", ["<think>", "</think>", "<details>", "<div>", "<p>"])
@pytest.mark.parametrize("gap", ["\n", "\n\n"])
def test_html_line_does_not_hide_the_fence_after_it(tag: str, gap: str) -> None:
    assert codes(f"{tag}{gap}```python\nx\n```\n</think>\n") == [("python", "x")]


def test_code_in_a_comment_is_hidden() -> None:
    assert codes("<!--\n```python\nx\n```\n\n<execute>y</execute>\n-->\n```python\nz\n```") == [("python", "z")]
    assert codes("<!-- a -->\n```python\nz\n```") == [("python", "z")]
    assert codes("- <!-- a\n\n  ```\n  x\n  ```\n\n```python\nz\n```") == [("python", "z")]


# --- Execute tags ----------------------------------------------------------------------------------------------------


def test_execute_tag_with_blank_lines() -> None:
    block = only("I compute:\n<execute>\nx = 1\n\n\nprint(x)\n</execute>\nDone.")
    assert block == Block("python", "x = 1\n\n\nprint(x)", tag="execute", line=2)


def test_execute_tag_on_one_line_and_inside_a_line() -> None:
    assert codes("<execute>print(1)</execute>") == [("python", "print(1)")]
    assert codes("So: <execute> print(1) </execute>, and <EXECUTE>print(2)</EXECUTE>.") == [
        ("python", "print(1)"),
        ("python", "print(2)"),
    ]


def test_execute_tag_loses_common_indentation() -> None:
    assert only("<execute>\n    if x:\n        y\n</execute>").code == "if x:\n    y"
    assert only("Run <execute>if x:\n    y\nz</execute>").code == "if x:\n    y\nz"
    assert only("Run <execute> x = 1\ny = 2</execute>").code == "x = 1\ny = 2"


@pytest.mark.parametrize("prefix", ["- ", "1. ", "> ", "## "])
def test_execute_tag_in_containers_and_titles(prefix: str) -> None:
    assert codes(f"{prefix}a <execute>b</execute>\n{prefix}<execute>c</execute>") == [("python", "b"), ("python", "c")]


def test_execute_tag_in_a_list_item_and_a_quote_over_lines() -> None:
    assert codes("- <execute>\n  if x:\n      y\n  </execute>\n- b") == [("python", "if x:\n    y")]
    assert codes("> <execute>\n> if x:\n>\n>     y\n> </execute>") == [("python", "if x:\n\n    y")]
    assert codes("1. Run:\n   <execute>\nif x:\n    y\n</execute>\n2. b") == [("python", "if x:\n    y")]


def test_execute_tags_mixed_with_fences() -> None:
    text = "```sh\nls\n```\n<execute>\na\n</execute> and <execute>\n\nb\n\n</execute>\n```js\nc\n```\n"
    assert codes(text) == [("sh", "ls"), ("python", "a"), ("python", "b"), ("javascript", "c")]


def test_execute_tag_takes_everything_that_looks_like_markdown() -> None:
    code = "x\n---\n- a\n\n# b\n> c\n\n    d\ns = '''\n```\n'''"
    assert codes(f"<execute>\n{code}\n</execute>\nend") == [("python", code)]


def test_execute_tag_in_a_fence_or_an_inline_code_is_none() -> None:
    assert codes("```text\n<execute>x</execute>\n```") == [("text", "<execute>x</execute>")]
    assert codes("Use `<execute>x</execute>` or ``a ` <execute>\ny</execute>``.") == []
    assert codes("`<execute>` and <execute>x</execute> and `</execute>`") == [("python", "x")]


def test_backtick_that_opens_nothing_does_not_hide_a_tag() -> None:
    assert codes("A ` and <execute>x</execute>") == [("python", "x")]
    assert codes("A ` and\n\n<execute>x</execute> `b") == [("python", "x")]


def test_execute_tag_with_one_fence_is_that_block() -> None:
    block = only('<execute>\n  ```bash title="a.sh"\n  ls\n    x\n  ```\n</execute>')
    assert block == Block("sh", "ls\n  x", True, "a.sh", "execute", {"title": "a.sh"}, 1)
    assert only("<execute>```\nx\n```</execute>").language == "python"
    assert only("<execute>\n```py\nx\n</execute>").code == "x"
    assert only("Run <execute>```py\nx\n```</execute> now.").code == "x"
    assert only("<Execute> ```py\nx```\n</execute>").code == "x"


def test_execute_tag_with_more_than_one_fence_stays_as_it_is() -> None:
    assert codes("<execute>\n```\na\n```\n```\nb\n```\n</execute>") == [("python", "```\na\n```\n```\nb\n```")]


def test_execute_tag_that_is_never_closed() -> None:
    blocks = extract_code_blocks("Run:\n<execute>\nx = 1\n\nprint(x)\n")
    assert blocks == [Block("python", "x = 1\n\nprint(x)", closed=False, tag="execute", line=2)]
    assert extract_code_blocks("Run: <execute>x")[0].closed is False


def test_execute_tag_that_is_never_closed_with_a_fence_in_it() -> None:
    blocks = extract_code_blocks("<execute>\n```python\nx\n```\n")
    assert blocks == [Block("python", "x", closed=False, tag="execute")]


def test_execute_tag_that_is_never_closed_ends_at_the_next_one() -> None:
    blocks = extract_code_blocks("<execute>\na\n<execute>\nb\n</execute>")
    assert [(b.code, b.closed) for b in blocks] == [("a", False), ("b", True)]


def test_execute_tag_that_is_never_closed_ends_with_its_container() -> None:
    blocks = extract_code_blocks("- <execute>\n  a\n\nb\n\n> <execute>\n> c\n\nd\n")
    assert [(b.code, b.closed) for b in blocks] == [("a", False), ("c", False)]


def test_text_after_an_execute_tag_goes_on() -> None:
    text = "<execute>\na\n\nb\n</execute>\n```sh\nls\n```\n<execute>\n\nc\n\n</execute> `<execute>` x\n```js\ny\n```"
    assert codes(text) == [("python", "a\n\nb"), ("sh", "ls"), ("python", "c"), ("javascript", "y")]


def test_execute_tag_that_is_a_word_hides_nothing() -> None:
    assert codes("I put it into <execute> tags.\n\n```python\nx\n```\n\nand\n\n```sh\nls\n```") == [
        ("python", "x"),
        ("sh", "ls"),
    ]
    assert codes("I use <execute> here:\n\n<execute>\nx\n</execute>") == [("python", "x")]
    assert codes("Some <execute> tag: <execute>x</execute>") == [("python", "x")]
    assert codes("The tags <execute></execute> hold code.") == []


@pytest.mark.parametrize(
    "code", ["print('<execute>')", 'print("</execute>")', "print('<execute> x')", 'a = "</execute>"']
)
def test_execute_tag_in_a_string_of_the_code(code: str) -> None:
    assert codes(f"<execute>{code}</execute>") == [("python", code)]
    assert codes(f"<execute>\n{code}\n</execute>\n```sh\nls\n```") == [("python", code), ("sh", "ls")]


def test_execute_tag_in_quotes_is_a_word() -> None:
    assert codes('Between "<execute>" and "</execute>" is code.') == []
    assert codes("Between '<execute>' tags: <execute>x</execute>") == [("python", "x")]


# --- Info strings ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("info", "tag", "attributes", "filename"),
    [
        ('python title="x.py"', "python", {"title": "x.py"}, "x.py"),
        ('python title="a b"', "python", {"title": "a b"}, None),
        ('python title="Version 1.0"', "python", {"title": "Version 1.0"}, None),
        ("py title='a \"b\".py'", "py", {"title": 'a "b".py'}, None),
        (r'py title="a \"b\""', "py", {"title": 'a "b"'}, None),
        (r'py file="C:\new\x.py"', "py", {"file": r"C:\new\x.py"}, r"C:\new\x.py"),
        ("{.python .numberLines file=x.py}", "python", {"numberLines": "", "file": "x.py"}, "x.py"),
        ("{#id .python}", "python", {"id": "id"}, None),
        ("python {.numberLines path=src/x.py}", "python", {"numberLines": "", "path": "src/x.py"}, "src/x.py"),
        ("{r, echo=FALSE}", "r", {"echo": "FALSE"}, None),
        ("python:src/app.py", "python", {}, "src/app.py"),
        ("python: flag", "python", {"flag": ""}, None),
        ("c++ Filename=a.cc", "c++", {"Filename": "a.cc"}, "a.cc"),
        ('python linenums="1" hl_lines="2 3"', "python", {"linenums": "1", "hl_lines": "2 3"}, None),
        ("rust,no_run", "rust", {"no_run": ""}, None),
        ("no-run", "", {"no-run": ""}, None),
        ("file=x.py", "", {"file": "x.py"}, "x.py"),
        ("python file=", "python", {"file": ""}, None),
        ('python file="" title="x y.py" path=z', "python", {"file": "", "title": "x y.py", "path": "z"}, "z"),
        ('python title="x', "python", {"title": "x"}, None),
    ],
)
def test_info_string(info: str, tag: str, attributes: dict[str, str], filename: str | None) -> None:
    block = only(f"```{info}\nx\n```")
    assert (block.tag, block.attributes, block.filename) == (tag, attributes, filename)


@pytest.mark.parametrize("flag", ["no-run", "norun", "no_run", "NO-RUN", "{.no-run}", "no-run=true"])
def test_no_run_flag(flag: str) -> None:
    assert only(f"```python {flag}\nx\n```").no_run


@pytest.mark.parametrize("flag", ["", "run", "no-run=false", "title=no-run"])
def test_no_run_flag_is_off(flag: str) -> None:
    assert not only(f"```python {flag}\nx\n```").no_run


@pytest.mark.parametrize(
    ("code", "filename"),
    [
        ("# filename: x.py\nprint(1)", "x.py"),
        ("# file: src/x.py", "src/x.py"),
        ("#Filename : ../x.py", "../x.py"),
        ("// filename: x.js", "x.js"),
        ("<!-- filename: x.html -->", "x.html"),
        ("/* filename: a.css */", "a.css"),
        ("#!/usr/bin/env python\n# filename: x.py", "x.py"),
        ("# filename: my file.py", "my file.py"),
        ('# filename: "x.py"', "x.py"),
        ("# filename:   ", None),
        ("<!-- filename: -->", None),
        ("# file: reads all of it", None),
        ("x = 1\n# filename: x.py", None),
        ("# filename: " + "x" * 10_000, None),
    ],
)
def test_file_name_in_a_comment(code: str, filename: str | None) -> None:
    block = only(f"```\n{code}\n```")
    assert (block.filename, block.code) == (filename, code)


def test_file_name_of_the_info_string_comes_first() -> None:
    assert only("```python:a.py\n# filename: b.py\n```").filename == "a.py"


@pytest.mark.parametrize(
    ("names", "language"),
    [
        ("py PY python python3 python3.11 py3 ipython ipython3", "python"),
        ("sh bash Shell zsh", "sh"),
        ("js node nodejs mjs cjs JavaScript", "javascript"),
        ("ts typescript", "typescript"),
        ("pwsh powershell ps1", "pwsh"),
        ("rb ruby", "ruby"),
        ("rs rust", "rust"),
        ("golang go", "go"),
        ("yml yaml", "yaml"),
        ("md markdown", "markdown"),
        ("c++ cpp", "cpp"),
        ("pycon", "pycon"),
        ("console", "console"),
        ("python2", "python2"),
        ("Brainfuck", "brainfuck"),
    ],
)
def test_normalize_language(names: str, language: str) -> None:
    assert {normalize_language(name) for name in names.split()} == {language}


def test_normalize_language_of_nothing() -> None:
    assert normalize_language("") == normalize_language("  ") == ""


# --- The way back ----------------------------------------------------------------------------------------------------


def test_fence_writes_the_info_string() -> None:
    assert fence("x", "python", "no-run") == "```python no-run\nx\n```"
    assert fence("x") == "```\nx\n```"
    assert only(fence("x", "", "no-run")).no_run
    assert only(fence("x", "python", "title=x.py")).filename == "x.py"


def test_fence_is_longer_than_those_in_the_code() -> None:
    assert fence("a\n```\nb", "text").startswith("````text\n")


@pytest.mark.parametrize("code", ['s = """', "    x = 1", "'''\n\"\"\"", "\tx\n\t\ty\n"])
def test_fence_keeps_python_that_would_be_read_with_tolerance(code: str) -> None:
    assert only(fence(code, "python")).code == code


def test_fence_with_backticks_in_its_info_string() -> None:
    assert only(fence("~~~", "a`b")) == Block("a`b", "~~~", tag="a`b")
    assert only(fence("x", "~`")).tag == "~`"


@pytest.mark.parametrize("language", ["a\nb", "a\rb"])
def test_fence_refuses_an_info_string_of_two_lines(language: str) -> None:
    with pytest.raises(RequestError, match="one line"):
        fence("x", language)


MARKS = ["`", "```", "````", "~~~", '"""', "'''", '"', "'", "\\", "#", "-", ">", "1.", "a", "x = 1", "---"]
TAGS = ["```python", "```md", "<execute>", "</execute>", "<!--", "-->"]
SPACES = ["\n", "\n\n", " ", "    ", "\t", "- ", "> ", "\u2028", "\0"]
PIECES = st.sampled_from([*MARKS, *TAGS, *SPACES])
CODE = (st.text(max_size=40) | st.lists(PIECES, max_size=12).map("".join)).map(
    lambda code: re.sub(r"\r\n?", "\n", code)
)
LANGUAGES = st.sampled_from(["", "python", "py", "bash", "js", "json", "markdown", "md", "c++", "x", "no`such"])
PROSE = st.text("ab .,*#->1)\t\n`", max_size=20).filter(lambda prose: "```" not in prose)
# What a container puts before its first line, and before the others.
CONTAINERS = st.sampled_from([("", ""), ("- ", "  "), ("1. ", "   "), ("> ", "> "), ("- > ", "  > "), ("> * ", ">   ")])


@settings(deadline=None)
@given(st.lists(st.tuples(CODE, LANGUAGES, PROSE, CONTAINERS), max_size=4))
def test_extraction_finds_what_fence_put_in(parts: list[tuple[str, str, str, tuple[str, str]]]) -> None:
    text = ""
    for code, language, prose, (first, others) in parts:
        lines = fence(code, language).split("\n")
        text += f"{prose}\n\n{first}" + f"\n{others}".join(lines) + "\n\n"
    expected = [(normalize_language(language), code, True) for code, language, *_ in parts]
    assert [(block.language, block.code, block.closed) for block in extract_code_blocks(text)] == expected


@settings(deadline=None)
@given(st.lists(PIECES | st.text(st.characters(), max_size=3), max_size=40).map("".join))
def test_no_text_is_an_error_and_what_is_found_can_be_put_back(text: str) -> None:
    blocks = extract_code_blocks(text)
    lines = [block.line for block in blocks]
    assert lines == sorted(lines)
    assert all(1 <= line <= len(re.split(r"\r\n?|\n", text)) for line in lines)
    for block in blocks:
        assert only(fence(block.code, block.language)).code == block.code


@settings(deadline=None)
@given(st.text(st.characters(), max_size=20))
def test_normalizing_twice_changes_nothing(name: str) -> None:
    assert normalize_language(normalize_language(name)) == normalize_language(name)


# --- Texts that would hurt a careless parser -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "unit",
    [
        "```python\n",
        '```python\n"""\n```\n',
        "```md\n```a\n```\n",
        "- ```\n  x\ny\n",
        "> ",
        "- ",
        "+ ",
        "[",
        "*a",
        "`",
        "\t",
        "\"'",
        "<!--",
        "<a a=",
        "<execute>\n",
        "a <execute> b\n\n",
        "x <execute> ```\n\n",
        "- a <execute>\n",
        '~~~a="\\"\n',
        "a```python\n",
        "```sh\n'\n```\n",
        "/[",
        ":{}/[",
        "<think></think>",
        "- <think>\n```\n",
    ],
)
def test_long_hostile_texts_are_read(unit: str) -> None:
    text = unit * (20_000 // len(unit))
    without_thoughts(f"```js\n{text}")
    assert extract_code_blocks(f"```js\n1\n```\n\n{text}")[0].code == "1"


def test_backtick_runs_of_every_length() -> None:
    assert codes("".join("a" + "`" * length for length in range(300)) + "\n\n```js\nx\n```") == [("javascript", "x")]


def test_deep_nesting_does_not_lose_what_follows() -> None:
    text = f"{'> ' * 5000}a\n\n{'+ ' * 5000}b\n\n```python\nx\n```\n"
    assert codes(text) == [("python", "x")]


def test_look_ahead_without_end_falls_back_to_plain_commonmark() -> None:
    # Each block would look ahead through all the others; after some of them the budget for that is used up.
    blocks = extract_code_blocks("```md\n```a\n```\n" * 1000)
    assert len(blocks) == 1000
    assert {block.code for block in blocks} == {"```a"}


def test_very_long_line() -> None:
    assert only("x" * 800_000 + "\n```\n" + "y" * 100_000 + "\n```").code == "y" * 100_000


def test_a_text_that_no_model_writes_is_not_run() -> None:
    text = "x" * 1_000_000 + "\n```python\ny\n```"
    assert "1,000,000 are read" in only(text).unclear
    assert extract_code_blocks(text, longest=2_000_000)[0].code == "y"
    assert extract_code_blocks("x" * 2_000_000) == []


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        ("< think >", "< /think >"),
        ("<antThinking>", "</antThinking>"),
        ("<seed:think>", "</seed:think>"),
        ("[THINK]", "[/THINK]"),
        ("\u25c1think\u25b7", "\u25c1/think\u25b7"),
    ],
)
def test_spellings_of_thoughts(begin: str, end: str) -> None:
    code = "\n```python\nx\n```\n"
    assert all(
        "x" not in without_thoughts(text) for text in (f"{begin}{code}{end}\nDone.", f"{begin}{code}", code + end)
    )
    assert "x" in without_thoughts(f"```python\nx = '{begin}'\n```\n")


# --- The module ------------------------------------------------------------------------------------------------------


def test_block_is_a_value() -> None:
    block = only("```python a=1\nx\n```")
    assert pickle.loads(pickle.dumps(block)) == block
    assert len({block, block}) == 1
    with pytest.raises(AttributeError):
        block.code = "y"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("```python\nprint(1)```", ["print(1)"]),
        ("```python\nprint(1)```\nThat was it.", ["print(1)"]),
        ("```python\nprint(1)```  \n\nNext:\n```python\nprint(2)\n```\n", ["print(1)", "print(2)"]),
        ("```python\nprint(1)```\n```python\nprint(2)```", ["print(1)", "print(2)"]),
        ("~~~sh\nls~~~", ["ls"]),
        ("```js\nf(1)```\n\n```js\nf(`2`)```", ["f(1)", "f(`2`)"]),
        ("```python\nprint(1)\n```<end_code>\n```python\nprint(2)```<|im_end|>", ["print(1)", "print(2)"]),
        ("```python\nprint(1)\n<end_code>\n```\n```sh\nls <|im_end|>\n\n```", ["print(1)", "ls"]),
        ("```python\nprint(1)\n<end_code>```<end_code>\n```html\n<b>\n</s>\n```", ["print(1)", "<b>\n</s>"]),
        ("<execute>\nprint(1)\n<end_code>\n</execute>", ["print(1)"]),
        ("```python\nprint(1)\n```<\uff5cend\u2581of\u2581sentence\uff5c>", ["print(1)"]),
        ("```python\nprint(1)\n```This prints `1`.", ["print(1)"]),
        ("1. ```sh\n   ls\n   ```It doesn't matter\n2. Now:\n   ```sh\n   id\n   ```Done.", ["ls", "id"]),
        ("First:```python\nprint(1)\n```Then:```python\nprint(2)\n```", ["print(1)", "print(2)"]),
        ("Here it is:```python\nprint(1)\n```\nDone.", ["print(1)"]),
        ("1. Run\n   this: ```sh\n   ls\n   ```\n2. Begin with ```python\nand end with ```.", ["ls"]),
        ("1. Do:\n   ```python\n   print(1)```\n2. Done", ["print(1)"]),
    ],
)
def test_a_closing_fence_at_the_end_of_the_code_closes(text: str, codes: list[str]) -> None:
    blocks = extract_code_blocks(text)
    assert [(block.code, block.closed) for block in blocks] == [(code, True) for code in codes]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("```python\nx = 1  # like ```this```\nprint(x)\n```", "x = 1  # like ```this```\nprint(x)"),
        ('```python\ns = """\na ```\n"""\nprint(s)\n```', 's = """\na ```\n"""\nprint(s)'),
    ],
)
def test_what_looks_like_one_inside_the_code_does_not(text: str, code: str) -> None:
    [block] = extract_code_blocks(text)
    assert (block.code, block.closed) == (code, True)


def test_an_open_string_is_no_end() -> None:
    [block] = extract_code_blocks('```python\ns = """\na ```')
    assert not block.closed


@pytest.mark.parametrize(
    "text",
    [
        "Do not run this: <!-- <execute>harm()</execute> --> at all.",
        "# Title <!-- <execute>harm()</execute> -->",
        "Over <!-- several\nlines <execute>harm()</execute>\nof text --> it goes.",
    ],
)
def test_a_tag_in_a_comment_inside_a_paragraph_is_no_code(text: str) -> None:
    assert extract_code_blocks(text) == []


def test_a_tag_beside_a_comment_is() -> None:
    [block] = extract_code_blocks("Here <!-- not <execute>this</execute> --> but <execute>that()</execute>")
    assert block.code == "that()"


@pytest.mark.parametrize(
    "text",
    [
        "> -\nx\n" * 10_000,
        pytest.param("> ~~~\nx\n" * 10_000, marks=pytest.mark.slow),
        "a ```python\ny```\n" * 5_000,
        pytest.param("<think>a</think>```python\nx```\n" * 5_000, marks=pytest.mark.slow),
        "<think>a</think>``` b " * 9_000,
    ],
)
def test_what_is_read_again_and_again_takes_linear_time(text: str) -> None:
    # If all that follows were read again for each quote, fence or tag, this would exceed the time limit of a test.
    extract_code_blocks(text)
    without_thoughts(text)


def test_all_is_thought_where_thoughts_cannot_be_told() -> None:
    assert without_thoughts("<think>a</think>```python\nx```\n" * 5_000) == ""


def test_ordinary_quotes_are_read_in_a_long_text() -> None:
    quote = "> Run this:\n> ```python\n> print(1)\n> ```\n\nSome words.\n\n"
    assert len(extract_code_blocks(quote * 500)) == 500
