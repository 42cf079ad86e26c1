"""Fences: what their info strings say, and where they end, in CommonMark and as models write them."""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from markdown_it.rules_block import StateBlock

from coderoom.blocks.marks import TagIndex, Thoughts, strings_of

_SPELLINGS = {
    "python": "py ipython",
    "sh": "bash shell zsh ash dash ksh shellscript shell-script",
    "javascript": "js node nodejs mjs cjs",
    "typescript": "ts mts cts",
    "pwsh": "powershell ps1 posh",
    "bat": "batch cmd",
    "ruby": "rb",
    "rust": "rs",
    "go": "golang",
    "kotlin": "kt kts",
    "csharp": "cs c#",
    "fsharp": "fs f#",
    "cpp": "c++ cxx cc hpp",
    "haskell": "hs",
    "julia": "jl",
    "perl": "pl",
    "yaml": "yml",
    "markdown": "md mkd mdown",
    "html": "htm",
    "latex": "tex",
    "dockerfile": "docker",
    "makefile": "make mk",
    "text": "txt plain plaintext",
    "diff": "patch udiff",
}
_LANGUAGES = {spelling: name for name, spellings in _SPELLINGS.items() for spelling in spellings.split()}
_PYTHON_3 = re.compile(r"(?:i?python|py)3(?:\.\d+)*")

_PART = re.compile(r"""([{}])|([^\s,={}"']+)(?:=("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s,}]*))?""")


def normalize_language(name: str) -> str:
    """Return the one name under which a language is known here.

    Transcripts (`pycon`, `console`) and `python2` keep their own names, since they cannot run as they are.

    Args:
        name: The name as a fence gives it, in any case, for instance `py3`, `Bash` or `yml`.

    Returns:
        The usual name, or the given one in lower case if it is not known.
    """
    name = name.strip().lower()
    return "python" if _PYTHON_3.fullmatch(name) else _LANGUAGES.get(name, name)


def is_language(name: str) -> bool:
    """Return whether a name is one of a language that is known here."""
    return normalize_language(name) in _SPELLINGS


@dataclass(frozen=True, slots=True)
class Info:
    """An info string, taken apart."""

    tag: str
    path: str
    attributes: dict[str, str]


def parse_info(info: str) -> Info:
    """Take an info string apart; no spelling of it is an error.

    The usual styles are read: `python title="x.py" no-run`, `{.python file=x.py}`, `rust,no_run`, `python:src/app.py`.
    """
    tag, path = "", ""
    attributes: dict[str, str] = {}
    in_braces = False
    for match in _PART.finditer(info):
        brace, word, value = match.groups()
        if brace:
            in_braces = brace == "{"
        elif value is not None:
            is_quoted = len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'"
            # Only quotes are unescaped: a backslash in a file name stays what it is.
            unescaped = re.sub(r"\\([\"'])", r"\1", value[1:-1])
            attributes[word] = unescaped if is_quoted else value.strip("\"'")
        elif in_braces and word.startswith("#"):
            attributes["id"] = word[1:]
        else:
            is_class = in_braces and word.startswith(".")
            word = word.lstrip(".") if is_class else word
            if not tag and (is_class or not attributes) and not is_no_run({word: ""}):
                name, _, path = word.partition(":")
                tag, path = (name, path) if name else (word, "")
            else:
                attributes[word] = ""
    return Info(tag, path, attributes)


def is_no_run(attributes: Mapping[str, str]) -> bool:
    """Return whether the attributes say that the block is not to run."""
    return any(
        key.lower().replace("_", "-") in {"no-run", "norun"} and value.lower() not in {"false", "no", "0"}
        for key, value in attributes.items()
    )


_FENCE = re.compile(r"(`{3,}+)([^`]*)\Z|(~{3,}+)(.*)\Z")
_FENCE_IN_CONTAINER = re.compile(r"(?:(?:[-*+>]|\d{1,9}[.)])[ \t]*)+(?:```|~~~)")
# What some models write after their code, such as `<end_code>` or `<|im_end|>`, is no info string. DeepSeek
# has bars and spaces of its own.
_END_TOKEN = re.compile(r"<[/|\uff5c]?[\w:\u2581-]+[|/\uff5c]?>")
_BEFORE_TAG = re.compile(r"(?<![\"'`~])(`{3,}+|~{3,}+)[ \t]*(?=[<\[\u25c1])")
_BEFORE_WORDS = re.compile(r"(`{3,}+|~{3,}+)[ \t]*(?=[^\s`~])")
_SENTENCE_END = re.compile(r"[.!?:\u2026\u3002\uff01\uff1a\uff1f][)*_\"'\u201d]*\Z")


@dataclass(frozen=True, slots=True)
class Find:
    """A piece of code as a rule found it; `line` counts from 0."""

    line: int
    info: str
    code: str
    closed: bool
    exact: bool = False
    in_tag: bool = False
    unclear: str = ""


@dataclass(slots=True)
class Scan:
    """The state that all rules share while one document is read.

    The budget is how many characters may still be looked at twice. A rule that looks ahead pays for what it looks at,
    and without budget it reads plain CommonMark; so the whole takes linear time, whatever the text.
    """

    budget: int
    tags: TagIndex | None = None
    thoughts: Thoughts | None = None
    finds: list[Find] = field(default_factory=list)
    quotes: int = 0

    def pay(self, characters: int) -> bool:
        """Take the characters from the budget; return whether it sufficed."""
        self.budget -= characters
        return self.budget >= 0


def scan_of(state: StateBlock) -> Scan:
    """Return the scan that belongs to markdown-it's state."""
    scan = state.env["scan"]
    assert isinstance(scan, Scan)
    return scan


def line_start(state: StateBlock, line: int) -> int:
    """Return the offset of the line's first character that is not white space."""
    return state.bMarks[line] + state.tShift[line]


def is_outdented(state: StateBlock, line: int) -> bool:
    """Return whether the line is too far left to belong to the container that is being read."""
    return state.sCount[line] < state.blkIndent and not state.isEmpty(line)


def content_lines(state: StateBlock, start: int, stop: int, indent: int) -> str:
    """Return the lines without the indentation that they have because of where their fence or tag stands.

    CommonMark takes it from each line as far as it is there. If the content starts further left than that, this would
    flatten its levels, so then only what all lines share is taken.
    """
    indents = [state.sCount[line] for line in range(start, stop) if not state.isEmpty(line)]
    if indents and indents[0] < indent:
        indent = max(0, min(indents))
    return state.getLines(start, stop, indent, True)


def dedent(text: str) -> str:
    """Remove the indentation that all lines share; unlike `textwrap.dedent`, leave the other white space alone."""
    lines = text.split("\n")
    indents = [line[: len(line) - len(line.lstrip(" \t"))] for line in lines if line.strip(" \t")]
    margin = len(os.path.commonprefix(indents))  # noqa: RUF071 (not paths)
    if not indents:
        return text
    return "\n".join(line[margin:] if line.strip(" \t") else line.lstrip(" \t") for line in lines)


@dataclass(frozen=True, slots=True)
class _Fence:
    marker: str
    length: int
    info: str

    def closes(self, opening: _Fence) -> bool:
        return not self.info and self.marker == opening.marker and self.length >= opening.length


_Reading = Literal["end", "content", "contradiction"]
"""How a line that looks like a fence is read inside a block."""


def fence_rule(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Read a fenced block; a block rule for markdown-it."""
    opening = _read_fence(state, start)
    if opening is None:
        return False
    if silent:
        return True
    find, state.line, rest = _read_block(state, start, end, opening)
    scan_of(state).finds.append(find)
    if rest is not None:
        begin_at(state, state.line, rest)
    return True


def read_glued_fence(state: StateBlock, start: int, end: int) -> Find | None:
    """Read a block whose opening fence is glued to a sentence, if its end is clear."""
    opening = _read_fence(state, start)
    if opening is None:
        return None
    find, state.line, rest = _read_block(state, start, end, opening)
    if not find.closed or find.unclear or "```" in find.code:
        return None
    if rest is not None:
        begin_at(state, state.line, rest)
    return find


def begin_at(state: StateBlock, line: int, offset: int) -> None:
    """Let a line begin at an offset in it."""
    text = state.src[offset : state.eMarks[line]]
    state.bMarks[line], state.tShift[line] = offset, len(text) - len(text.lstrip(" \t"))
    state.sCount[line] = state.blkIndent


def _read_block(state: StateBlock, start: int, end: int, opening: _Fence) -> tuple[Find, int, int | None]:
    """Return a block, the line after it, and the offset in that line if the closing fence is in the same one."""
    found, run = _find_end(state, start, end, opening), opening.marker * opening.length
    stop, closed, rest = found.line, found.closed, found.rest
    glued = closed and not state.src.startswith(run, line_start(state, stop))
    code = content_lines(state, start + 1, stop + 1 if glued else stop, state.sCount[start]).removesuffix("\n")
    if glued and rest is not None:
        code = code[: len(code) - (state.eMarks[stop] - rest)]
    if glued:
        code = _without_end_token(code).removesuffix(run)
    exact = opening.marker == "`" and opening.length > 3
    find = Find(start, opening.info, code, closed, exact, unclear=found.unclear)
    return find, stop + 1 if closed and rest is None else stop, rest


def _read_fence(state: StateBlock, line: int) -> _Fence | None:
    begin = line_start(state, line)
    if not state.src.startswith(("```", "~~~"), begin) or state.is_code_block(line):
        return None
    match = _FENCE.match(state.src, begin, state.eMarks[line])
    if match is None:
        return None
    run, info = match[1] or match[3], (match[2] or match[4] or "").strip(" \t")
    thoughts = scan_of(state).thoughts
    if thoughts is not None and thoughts.has_tag_at(state.src.find(info, begin + len(run))):
        return None
    return _Fence(run[0], len(run), "" if _END_TOKEN.fullmatch(info) else info)


@dataclass(frozen=True, slots=True)
class _End:
    """Where a block ends: the line of its closing fence, or the one after the content of a block without one.

    It is `unclear` if another end is as likely; this says why, in words. The `rest` is the offset of what the model
    glued to the closing fence.
    """

    line: int
    closed: bool = True
    unclear: str = ""
    rest: int | None = None


def _find_end(state: StateBlock, start: int, end: int, opening: _Fence) -> _End:
    """Find the end of a block.

    CommonMark ends the block at its `first` bare fence. A block that shows fences itself may go on to a later one. A
    fence that the model `glued` to the last line of code or to a sentence counts only if the block would otherwise have
    no end, or take in the opening of another one.
    """
    scan, content = scan_of(state), _Content(opening)
    # The second one is right if no other fence follows.
    first: tuple[_End, _End] | None = None
    glued: _End | None = None
    is_unclear = False
    for line in range(start + 1, end):
        if is_outdented(state, line):
            if first is None and glued is None:
                outside = _find_outdented_end(state, line, end, opening, scan)
                return _End(line, closed=False) if outside is None else _End(outside)
            break
        text = state.getLines(line, line + 1, state.sCount[start], False)
        if (first is not None or glued is not None) and not scan.pay(len(text) + 1):
            is_unclear = True
            break
        if scan.thoughts is not None and content.is_code and scan.thoughts.close_at(line_start(state, line)):
            return _End(line, closed=False)  # The code was a draft in a thought that ends here.
        tag = _thought_tag(state, line, opening)
        if tag is not None and content.may_end_with(text[: tag - state.eMarks[line]].rstrip(" \t")):
            return _End(line, rest=tag)
        if content.is_diff and state.sCount[line] > state.sCount[start]:
            continue  # Lines that are the same in both files begin with a space.
        fence, why = _read_fence(state, line), content.unclear
        if fence is not None:
            is_unclear = is_unclear or first is not None
            content.check_commands(fence, line)
            fence = None if content.ends_text(fence, text) else fence
        words = _words_after(state, line, opening) if first is None and glued is None and content.is_code else None
        if words is not None:
            glued = _End(line, unclear=why, rest=words)
            content.unclear = why or f"it seems to end at line {line + 1}, where words follow the closing fence"
            if "```" in state.src[words : state.eMarks[line]]:
                break
        elif fence is not None and fence.marker == opening.marker:
            if fence.info and first is None and glued is not None:
                break
            reading = content.read_fence(fence, line, past_first=first is not None)
            if reading == "end":
                return _End(line, unclear=why)
            if reading == "contradiction":
                break
            if first is None and fence.closes(opening):
                first = _End(line, unclear=why or content.why_unclear(line)), _End(line, unclear=why)
        may_be_glued = glued is None and fence is None and _ends_with(state, line, opening) and not content.is_markdown
        if may_be_glued and content.may_end_with(_without_end_token(text)):
            glued, text = _End(line, unclear=why), _without_end_token(text).rstrip(opening.marker)
        content.read_text(text, is_fence=fence is not None)
    if first is not None:
        return first[0] if is_unclear else first[1]
    return _End(end, closed=False) if glued is None else glued


def _without_end_token(text: str) -> str:
    text = text.rstrip(" \t")
    token = _END_TOKEN.search(text, max(0, text.rfind("<")))
    return text[: token.start()].rstrip(" \t") if token is not None and token.end() == len(text) else text


def _ends_with(state: StateBlock, line: int, opening: _Fence) -> bool:
    text = _without_end_token(state.src[line_start(state, line) : state.eMarks[line]])
    rest = text.removesuffix(opening.marker * opening.length)
    return rest not in {text, ""} and not rest.endswith(opening.marker)


def _thought_tag(state: StateBlock, line: int, opening: _Fence) -> int | None:
    """Return the offset of a tag of thoughts that is glued to a closing fence."""
    thoughts = scan_of(state).thoughts
    if thoughts is None:
        return None
    for match in _BEFORE_TAG.finditer(state.src, line_start(state, line), state.eMarks[line]):
        if match[1].startswith(opening.marker * opening.length) and thoughts.has_tag_at(match.end()):
            return match.end()
    return None


def _words_after(state: StateBlock, line: int, opening: _Fence) -> int | None:
    """Return the offset of a sentence that is glued to a closing fence, and is no info string."""
    match = _BEFORE_WORDS.match(state.src, line_start(state, line), state.eMarks[line])
    if match is None or not match[1].startswith(opening.marker * opening.length) or state.is_code_block(line):
        return None
    text = state.src[match.end() : state.eMarks[line]].partition("```")[0].rstrip(" \t")
    words = text.split()
    is_ended, is_long = bool(_SENTENCE_END.search(text)), len(words) > 2
    is_label = is_language(words[0].strip(".,:!?"))
    is_sentence = (is_ended and is_long) if is_label else (is_ended or is_long)
    return match.end() if is_sentence and not any(mark in text for mark in "={}") else None


def _find_outdented_end(state: StateBlock, outdented: int, end: int, opening: _Fence, scan: Scan) -> int | None:
    """Find the closing fence of a block in a list item that goes on left of the item.

    Strictly the item ends here and the block with it, and its closing fence would open a new block that swallows the
    rest. If the closing fence is the first line on the left, it closes. If code comes first, bare fences are counted
    up to the next one that can only open: an odd number leaves one over, which is ours; an even number pairs up
    without us.
    """
    fence = _read_fence(state, outdented) if state.sCount[outdented] >= 0 else None
    if fence is not None and fence.closes(opening):
        return outdented
    first, count = None, 0
    for line in range(outdented, end):
        # A negative count marks the lazy lines of a block quote.
        if state.sCount[line] < 0 or not scan.pay(state.eMarks[line] - state.bMarks[line] + 1):
            return None
        fence = _read_fence(state, line)
        if _FENCE_IN_CONTAINER.match(state.src, line_start(state, line), state.eMarks[line]):
            break
        if fence is None or fence.marker != opening.marker:
            continue
        if fence.info:
            break
        if fence.length >= opening.length:
            first = line if first is None else first
            count += 1
    return first if count % 2 else None


class _Content:
    """What was read of a block, which tells the fences that it shows from the one that ends it.

    Fences in a string or here-document belong to the code. One that the model never closed would take in the prose and
    the blocks that follow, too. That shows when a labelled fence comes where a pair of fences should be closed, or
    where the string is over. In Markdown, labelled fences pair with the bare ones that close them.

    Attributes:
        is_markdown: Whether the content is Markdown.
        is_diff: Whether it is a diff.
        unclear: Why the code must not run as it is, though its end is found.
    """

    def __init__(self, opening: _Fence) -> None:
        self._opening = opening
        self._language = normalize_language(parse_info(opening.info).tag)
        self._strings = strings_of(self._language)
        self.is_markdown = self._language == "markdown"
        self.is_diff = self._language == "diff"
        # Who writes a longer fence has thought of the inner ones.
        self._nests = (self._strings is not None or self.is_markdown) and opening.length == 3
        self._inner: list[_Fence] = []
        self.unclear = ""

    @property
    def is_code(self) -> bool:
        """Whether the next line is code for sure, and not text in it."""
        return self._strings is not None and not self._strings.open

    def may_end_with(self, line: str) -> bool:
        """Return whether the block may end with this line, which ends with a fence; it is not read yet."""
        strings = copy.deepcopy(self._strings)
        if strings is not None:
            strings.feed(line.rstrip(self._opening.marker))
        return strings is None or not strings.open

    def ends_text(self, fence: _Fence, line: str) -> bool:
        """Return whether what follows the fence is no info string, but the closing quotes of the text it is in."""
        if self._strings is None or not self._strings.open or self._strings.runs_backticks:
            return False
        return fence.info.startswith(("'", '"')) and self.may_end_with(line)

    def read_fence(self, fence: _Fence, line: int, *, past_first: bool) -> _Reading:
        """Read a line that is a fence with the marker of the block."""
        if not self._nests:
            if fence.closes(self._opening):
                return "end"
            if fence.info and self._opening.length == 3:
                self.unclear = self.unclear or f"another block seems to begin in it, at line {line + 1}"
            return "content"
        if self._strings is None:
            if fence.info:
                self._inner.append(fence)
            elif not self._inner:
                return "end"
            elif fence.length >= self._inner[-1].length:
                self._inner.pop()
            return "content"
        if not self._strings.open:
            if not fence.info:
                return "end"
            if past_first:
                return "contradiction"
            self.unclear = self.unclear or f"another block seems to begin in it, at line {line + 1}"
            return "content"
        if fence.info and self._inner and not self._inner[0].info:
            return "contradiction"
        self._inner = [fence] if fence.info or not self._inner else []
        return "content"

    def check_commands(self, fence: _Fence, line: int) -> None:
        """Read a line that is a fence with any marker, before `read_fence`."""
        if self._strings is not None and self._strings.runs_backticks and fence.marker == "`" and not self.unclear:
            self.unclear = (
                f"the shell would run what is between the backticks of the fence at line {line + 1}, which is in "
                f"{self._strings.open}. Quote the delimiter of a here-document, as in <<'END'"
            )

    def why_unclear(self, line: int) -> str:
        """Why the fence at this line may be the end of the block or a part of it; empty if only one is possible."""
        if self._strings is None and self.is_markdown:
            return "the fences in it are not in pairs. Use four backticks around the block"
        if self._strings is None or not self._strings.open:
            return ""
        return (
            f"the fence at line {line + 1} is in {self._strings.open}, and no end of that fits to the other fences. "
            "Use four backticks around the block, and close the inner ones"
        )

    def read_text(self, line: str, *, is_fence: bool) -> None:
        """Read any line, after `read_fence` if it is one."""
        if self._strings is None:
            return
        self._strings.feed(line, is_fence=is_fence)
        if self._strings.tail is not None:
            starts_with_fence = self._strings.tail.lstrip().startswith("```")
            self._inner = [_Fence("`", 3, "labelled")] if starts_with_fence else []
        elif not self._strings.open:
            self._inner = []
