"""Extracts blocks of code from Markdown, and writes them. Used by agents, approvals and the command line."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from io import StringIO

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock, blockquote, heading, list_block
from markdown_it.token import Token

from coderoom.blocks.fences import (
    Find,
    Info,
    Scan,
    begin_at,
    content_lines,
    dedent,
    fence_rule,
    is_language,
    is_no_run,
    is_outdented,
    line_start,
    normalize_language,
    parse_info,
    read_glued_fence,
    scan_of,
)
from coderoom.blocks.marks import TAG, THOUGHT, Tag, TagIndex, Thoughts, find_all, strings_of
from coderoom.errors import RequestError

# Labels that models use for data and text, and not for code to run.
_DATA_LANGUAGES = frozenset(
    "console css csv diff env html ini json json5 jsonl latex log markdown mermaid none output pycon svg text toml "  # noqa: SIM905
    "tsv xml yaml".split()
)
_LAST_TOKEN = re.compile(r"<end_\w+>|<eos>|</s>|<[|\uff5c][\w:\u2581-]+[|\uff5c]>")  # Never the end of code.
_NAME_WITH_EXTENSION = re.compile(r"[^\s]*[^\s./\\]\.[A-Za-z][A-Za-z0-9]{0,9}")
_NAME_COMMENT = re.compile(r"[ \t]*(?:#|//|--|<!--|/\*)[ \t]*(?:filename|file)[ \t]*:", re.IGNORECASE)
_LONGEST_NAME_LINE = 4096
_GLUED = re.compile(r"```[\w+#-]{1,100}+[ \t]*\Z")
_OPENS_TAG = re.compile(r"<execute[ \t]*>[ \t]*\Z", re.IGNORECASE)
_GLUED_LABEL = re.compile(r"[`\s]+")
_UNDERLINE = re.compile(r"(?:=+|-+)[ \t]*\Z")
_INTERRUPTING = frozenset("`~>#*+-_=<0123456789")  # what the lines that end a paragraph begin with
_LONGEST = 1_000_000
_MOST_FENCES = 16_000  # More of them would be so many objects that Python's collection of garbage stops all threads.
_SIGNS_OF_CODE = re.compile(rf"```|~~~|{TAG.pattern}", re.IGNORECASE)
_MAX_NESTING = 20
_MAX_QUOTES = 6
_BUDGET = 100_000
_BUDGET_PER_CHARACTER = 8


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of code found in a message.

    Attributes:
        language: The language under the name that `normalize_language` gives it, "" if the block has no label.
        code: The lines between the fences, without the line end before the closing one.
        closed: Whether the closing fence or tag was found. Otherwise the code may be incomplete.
        filename: The file name in the info string or in a comment on the first line, as written.
        tag: The language as written, for instance "py", or "execute" for a block in `<execute>` tags.
        attributes: The other parts of the info string; a flag has the value "".
        line: The line of the opening fence or tag in the text, from 1.
        unclear: Why the code, or what is code in the text after it, cannot be told for sure; then nothing of the text
            should run. Empty if it can.
    """

    language: str
    code: str
    closed: bool = True
    filename: str | None = None
    tag: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict, hash=False)
    line: int = 1
    unclear: str = ""

    @property
    def no_run(self) -> bool:
        """Whether the info string says `no-run`: the code is for display only."""
        return is_no_run(self.attributes)

    @property
    def is_data(self) -> bool:
        """Whether the label is one that models use for data and text, and not for code to run."""
        return self.language in _DATA_LANGUAGES

    @property
    def run_language(self) -> str:
        """The language for running it: a script labelled bash may use features that sh does not have."""
        return "bash" if self.tag.lower() == "bash" else self.language


def extract_code_blocks(text: str, *, longest: int = _LONGEST) -> list[Block]:
    """Find the blocks of code in a model's reply.

    Fenced blocks are found as CommonMark defines them, and in some more forms that models write: a block whose closing
    fence is left of its list item, code with fences in a string or here-document, a Markdown block with fenced
    examples.
    `<execute>` tags contain Python, or one fenced block. Indented code, inline code and HTML comments are not blocks.

    The time is linear in the length of the text, and any text is valid.

    Args:
        text: The reply.
        longest: How many characters are read. A longer text, or one with more than 16,000 fences and tags, which no
            model writes, has at most one block, an `unclear` one.

    Returns:
        All blocks in the order of the text, whatever their language.
    """
    if len(text) > longest:
        why = f"the text has {len(text):,} characters, and {longest:,} are read"
        return [Block("code", "", tag="code", unclear=why)] if _has(_SIGNS_OF_CODE, text) else []
    if (fences := _fences(text)) > _MOST_FENCES:
        why = f"the text has {fences:,} fences and tags, and {_MOST_FENCES:,} are read"
        return [Block("code", "", tag="code", unclear=why)]
    return [_to_block(find) for find in _read(text).finds]


def _fences(text: str) -> int:
    """How many fences and `<execute>` tags the text has."""
    return text.count("```") + text.count("~~~") + sum(1 for _ in find_all(TAG, text, 0, len(text)))


def without_thoughts(reply: str) -> str:
    """Remove the thoughts from a model's reply, and leave its lines where they are.

    Code in thoughts is a draft. A thought stands between `<think>` and `</think>` (or `thinking`, `thought`,
    `reasoning`, `[THINK]` and others), after a tag that is never closed, or before a lone closing one. A tag in a
    string of code or in inline code is none, and a lone one in a sentence is a word. This is for what a model wrote: in
    a person's message, such a tag is text. In a reply of more than a million characters, thoughts stay.
    """
    return split_thoughts(reply)[0]


def split_thoughts(reply: str) -> tuple[str, str]:
    """Return what `without_thoughts` does, and the tag without a partner that made a thought, if there is one."""
    is_read = len(reply) <= _LONGEST and _fences(reply) <= _MOST_FENCES
    tag = next(find_all(THOUGHT, reply, 0, len(reply)), None) if is_read else None
    if tag is None:
        return reply, ""
    scan = _read(reply, is_reply=True)
    if scan.budget < 0:
        return "", tag[0]  # Not all thoughts were found, so everything may be one.
    thoughts = scan.thoughts
    if not thoughts:
        return reply, ""
    spoken = thoughts.without()
    return spoken if reply.endswith(("\n", "\r")) else spoken.removesuffix("\n"), thoughts.lone


def fence(code: str, language: str = "", *flags: str) -> str:
    r"""Wrap code in a fence from which `extract_code_blocks` gets back exactly this code.

    Args:
        code: The code. Line ends come back as "\n".
        language: The label, for instance "python".
        *flags: Other parts of the info string, for instance "no-run" or "title=x.py".

    Returns:
        The block, without a line end after the closing fence.

    Raises:
        RequestError: The language or a flag contains a line end.
    """
    info = " ".join(part for part in (language, *flags) if part)
    if "\n" in info or "\r" in info:
        raise RequestError(f"The info string of a fence is one line, but this one has a line end in it: {info!r}")
    # Only tildes may have backticks after them.
    marker = "~" if "`" in info else "`"
    longest = max((len(run[0]) for run in re.finditer(f"{marker}+", code)), default=0)
    length = max(3, longest + 1)
    # Whether a tolerance for three backticks would change this code.
    tag = normalize_language(parse_info(info).tag)
    strings = strings_of(tag)
    if strings is not None:
        for line in _lines(code):
            strings.feed(line)
    if (strings is not None and strings.open) or (tag == "python" and _is_indented(code)):
        length = max(4, length)
    space = " " if info.startswith(marker) else ""
    return f"{marker * length}{space}{info}\n{code}\n{marker * length}"


def _is_indented(code: str) -> bool:
    lines = (line for line in _lines(code) if line.strip(" \t"))
    return next(lines, "").startswith((" ", "\t")) and all(line.startswith((" ", "\t")) for line in lines)


def _lines(code: str) -> Iterator[str]:
    """The lines one by one, so that other threads go on meanwhile."""
    return (line.removesuffix("\n") for line in StringIO(code, newline=None))


def _to_block(find: Find) -> Block:
    info = parse_info(find.info)
    language = normalize_language(info.tag)
    if find.in_tag and not language:
        language = "python"
    code = find.code
    if language not in _DATA_LANGUAGES:
        # What some models write after it, before the closing fence.
        text = code.rstrip()
        begin = max(0, text.rfind("<"))
        code = text[:begin].rstrip() if _LAST_TOKEN.fullmatch(text, begin) else code
    # Python with all lines indented cannot run, so the indentation belongs to a list or is a mistake.
    code = dedent(code) if language == "python" and not find.exact and _is_indented(code) else code
    return Block(
        language=language,
        code=code,
        closed=find.closed,
        filename=_file_name(info, code),
        tag="execute" if find.in_tag else info.tag,
        attributes=info.attributes,
        line=find.line + 1,
        unclear=find.unclear,
    )


def _file_name(info: Info, code: str) -> str | None:
    """Return the file name that the info string or a comment at the top of the code gives, as written."""
    named = {key.lower(): value.strip() for key, value in info.attributes.items()}
    title = named.get("title", "")
    if not _NAME_WITH_EXTENSION.fullmatch(title):
        title = ""
    given = named.get("filename") or named.get("file") or named.get("path") or title or info.path
    if given:
        return given
    first, _, rest = code.partition("\n")
    line = rest.partition("\n")[0] if first.startswith("#!") else first
    match = _NAME_COMMENT.match(line) if len(line) <= _LONGEST_NAME_LINE else None
    if match is None:
        return None
    name = line[match.end() :].strip().removesuffix("-->").removesuffix("*/").strip()
    name = name.strip("\"'`").strip()
    # "# file: reads all of it" is a remark and not a name.
    is_name = len(name.split()) == 1 or _NAME_WITH_EXTENSION.fullmatch("".join(name.split()))
    return name if is_name else None


def _read(text: str, *, is_reply: bool = False) -> Scan:
    source = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    source = source if source.endswith("\n") else source + "\n"
    tags = TagIndex(source) if _has(TAG, source) else None
    scan = Scan(_BUDGET + _BUDGET_PER_CHARACTER * len(source), tags, Thoughts(source) if is_reply else None)
    parser = _parser()
    # Only blocks are parsed: inline content is not needed, and its time is not linear.
    parser.block.parse(source, parser, {"scan": scan}, _NoTokens())
    return scan


class _NoTokens(list[Token]):
    """What markdown-it makes of lists and quotes: nobody needs it, and to collect so much garbage is slow."""

    def append(self, token: Token) -> None:
        """Drop it."""


def _has(pattern: re.Pattern[str], text: str) -> bool:
    return next(find_all(pattern, text, 0, len(text)), None) is not None


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"maxNesting": _MAX_NESTING})
    rules = parser.block.ruler
    rules.at("fence", fence_rule, {"alt": ["paragraph", "reference", "blockquote", "list"]})
    rules.at("blockquote", _shallow_quote, {"alt": ["paragraph", "reference", "blockquote", "list"]})
    rules.at("list", _shallow_list, {"alt": ["paragraph", "reference", "blockquote"]})
    rules.at("html_block", _comment_rule, {"alt": ["paragraph", "reference", "blockquote"]})
    rules.at("heading", _heading_rule, {"alt": ["paragraph", "reference", "blockquote"]})
    rules.at("paragraph", _paragraph_rule)
    # The paragraph rule reads underlined titles too, and link definitions may count as paragraphs.
    return parser.disable(["lheading", "reference"])


def _shallow_list(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Limit the nesting of lists, since markdown-it drops text that is nested too deeply."""
    return state.level < _MAX_NESTING - 2 and list_block(state, start, end, silent)


def _shallow_quote(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Limit the nesting of quotes, since each level reads all of its lines again."""
    scan = scan_of(state)
    if scan.quotes == _MAX_QUOTES or state.level >= _MAX_NESTING - 2:
        return False
    if not silent and not _pay_for_lazy_lines(state, start, end):
        return False
    scan.quotes += 1
    found = blockquote(state, start, end, silent)
    scan.quotes -= 1
    return found


def _pay_for_lazy_lines(state: StateBlock, start: int, end: int) -> bool:
    """Pay for all lines that markdown-it reads for a quote, up to a blank one, even if they are not part of it."""
    if not state.src.startswith(">", line_start(state, start)):
        return True
    scan = scan_of(state)
    for line in range(start, end):
        if state.isEmpty(line):
            break
        if not scan.pay(state.eMarks[line] - state.bMarks[line] + 1):
            return False
    return True


def _comment_rule(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Read an HTML comment, the only HTML that hides code.

    In CommonMark, `<think>` or `<details>` begins HTML up to a blank line, which would hide a fence on the next line.
    Models write such lines, and readers see that fence. The content of a comment is not visible.
    """
    begin = line_start(state, start)
    if not state.src.startswith("<!--", begin) or state.is_code_block(start):
        return False
    if silent:
        return True
    begin += len("<!--")
    line = start
    while line < end and state.src.find("-->", begin, state.eMarks[line]) < 0:
        line += 1
        if line == end or is_outdented(state, line):
            state.line = line
            return True
        begin = state.bMarks[line]
    state.line = line + 1
    return True


def _paragraph_rule(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Read a paragraph, a title with its underline included, and the tags in it; a block rule for markdown-it."""
    stop = _paragraph_end(state, start, end)
    for line in range(start, stop):
        offset = state.src.find("`", line_start(state, line), state.eMarks[line])
        is_glued = offset > line_start(state, line) and _GLUED.match(state.src, offset, state.eMarks[line])
        if is_glued and _read_glued(state, start, line, offset, stop, end):
            return True
    _read_text(state, start, stop, end)
    return True


def _read_glued(state: StateBlock, start: int, line: int, offset: int, stop: int, end: int) -> bool:
    """Read a block whose opening fence is glued to the end of a sentence, if a bare fence closes it.

    The sentence is in a paragraph from `start` to `stop`.
    """
    if not is_language(_GLUED_LABEL.sub("", state.src[offset : state.eMarks[line]])):
        return False
    if _OPENS_TAG.search(state.src, line_start(state, line), offset):
        return False  # The fence belongs to the content of the tag.
    scan = scan_of(state)
    before = state.bMarks[line], state.tShift[line], state.sCount[line]
    if not scan.pay(0):
        return False
    begin_at(state, line, offset)
    found = read_glued_fence(state, line, end)
    after = state.line
    state.bMarks[line], state.tShift[line], state.sCount[line] = before
    if found is None:
        scan.pay(state.eMarks[after - 1] - offset)
        return False
    line_end, state.eMarks[line] = state.eMarks[line], offset
    _read_text(state, start, line + 1, end)
    state.eMarks[line] = line_end
    scan.finds.append(found)
    state.line = after
    scan.pay(max(0, state.eMarks[stop - 1] - line_end))
    return True


def _heading_rule(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Read a heading, and the tags in it; a block rule for markdown-it."""
    if not heading(state, start, end, True):
        return False
    if not silent:
        _read_text(state, start, start + 1, end)
    return True


def _paragraph_end(state: StateBlock, start: int, end: int) -> int:
    terminators = state.md.block.ruler.getRules("paragraph")
    parent, state.parentType = state.parentType, "paragraph"
    line = start + 1
    while line < end and not state.isEmpty(line):
        if state.src[line_start(state, line)] not in _INTERRUPTING:
            line += 1
            continue
        indent = state.sCount[line] - state.blkIndent
        if 0 <= indent < 4 and _UNDERLINE.match(state.src, line_start(state, line), state.eMarks[line]):
            line += 1
            break
        # A negative count marks the lazy lines of a block quote, which nothing ends.
        if indent < 4 and state.sCount[line] >= 0 and any(rule(state, line, end, True) for rule in terminators):
            break
        line += 1
    state.parentType = parent
    return line


def _read_text(state: StateBlock, start: int, stop: int, end: int) -> None:
    """Read the tags in the lines of a paragraph; the content of a tag is code, whatever it looks like."""
    scan = scan_of(state)
    state.line = stop
    if (scan.tags is None and scan.thoughts is None) or not scan.pay(0):
        return
    offset, line = line_start(state, start), start
    while (after := read_tags(state, offset, line, stop, end)) is not None:
        # The content went past the paragraph; the rest of its last line begins another block.
        offset = after
        line = bisect_left(state.eMarks, offset)
        if not state.src[offset : state.eMarks[line]].strip(" \t"):
            state.line = line + 1
            return
        begin_at(state, line, offset)
        is_fence = fence_rule(state, line, end, False)
        # What is left of the paragraph is read again.
        if not scan.pay(max(0, state.eMarks[stop - 1] - offset)) or is_fence:
            return
        stop = state.line = _paragraph_end(state, line, end)


# --- The `<execute>` tags in paragraphs and headings ---

_FENCE_LINE = re.compile(r"[ \t]*(?:```|~~~)")
# Each alternative begins with a character of its own, which is found much faster.
_MARK = re.compile(rf"``*|<execute[ \t]{{0,100}}>|<!--|-->|{THOUGHT.pattern}", re.IGNORECASE)


def read_tags(state: StateBlock, offset: int, line: int, stop: int, end: int) -> int | None:
    """Read the tags of code and thoughts between the offset and the end of the lines.

    Return where the last one ends if that is beyond, or if a fence follows on its line.
    """
    scan, limit = scan_of(state), state.eMarks[stop - 1]
    for begin, span_end in _code_spans_and_tags(state, offset, line, stop):
        if begin < offset:
            continue
        tag = None if scan.tags is None else scan.tags.get(begin)
        if span_end:
            after: int | None = span_end
        elif tag is not None and scan.tags is not None:
            after = _read_tag(state, scan.tags, tag, end)
        elif scan.thoughts is None:
            after = None
        else:
            after = scan.thoughts.read(begin, state.eMarks[end - 1])
            if scan.thoughts.closes_all(begin):
                scan.finds.clear()
            if after is not None and _FENCE_LINE.match(state.src, after):
                return after
        if after is None:
            continue
        if after > limit:
            return after
        offset = after
    return None


def _code_spans_and_tags(state: StateBlock, offset: int, line: int, stop: int) -> list[tuple[int, int]]:
    """List the opening tags as (offset, 0), and what hides them, code spans and comments, as (offset, its end)."""
    marks: list[tuple[int, int]] = []
    span_ends: dict[str, int] = {}
    comment_end = 0
    for number in range(stop - 1, line - 1, -1):
        begin = offset if number == line else line_start(state, number)
        found = [match.span() for match in find_all(_MARK, state.src, begin, state.eMarks[number])]
        for start, mark_end in reversed(found):
            mark = state.src[start:mark_end]
            if mark == "-->":
                comment_end = mark_end
            elif mark == "<!--":
                # A comment that is not closed hides nothing: the rule for blocks has read those that are.
                if comment_end:
                    marks.append((start, comment_end))
            elif mark[0] != "`":
                marks.append((start, 0))
            else:
                if mark in span_ends:
                    marks.append((start, span_ends[mark]))
                span_ends[mark] = mark_end
    marks.reverse()
    return marks


def _read_tag(state: StateBlock, tags: TagIndex, tag: Tag, end: int) -> int | None:
    """Read the block that an opening tag begins; return the offset after it, or None if the tag is only mentioned."""
    limit, last = state.eMarks[end - 1], tags.get(tag.ended_by)
    if _is_mention(state, tag, tags.get(tag.following)):
        return None
    if last is not None and last.start < limit:
        if last.closing:
            code = _content(state, tag.end, last.start)
            _report(state, tag.end, code, _single_fence(state, code), closed=True)
            return last.end
        if not tag.leading:
            return None
        limit = state.eMarks[bisect_left(state.eMarks, last.start) - 1]
    return _read_unclosed(state, tags, tag.end, limit)


def _is_mention(state: StateBlock, tag: Tag, following: Tag | None) -> bool:
    """Return whether another tag opens first on the same line; after a quote it is taken for a part of a string."""
    if following is None or following.closing:
        return False
    is_one_line = state.src.find("\n", tag.end, following.start) < 0
    return is_one_line and not state.src.endswith(('"', "'", "`"), tag.end, following.start)


def _read_unclosed(state: StateBlock, tags: TagIndex, begin: int, limit: int) -> int | None:
    """Read a tag without an end: the reply was cut, unless fences follow; then the tag was only a word."""
    # Without fences the text is used up and need not be paid for.
    if tags.has_fence(begin, limit) and not scan_of(state).pay(limit - begin):
        return None
    lines = range(bisect_left(state.eMarks, begin) + 1, bisect_left(state.eMarks, limit) + 1)
    stop = next((line for line in lines if is_outdented(state, line)), lines.stop)
    limit = state.eMarks[stop - 1]
    code = _content(state, begin, limit)
    fenced = _single_fence(state, code)
    if fenced is None and tags.has_fence(begin, limit):
        return None
    _report(state, begin, code, fenced, closed=False)
    return limit


def _content(state: StateBlock, begin: int, finish: int) -> str:
    """Return the text between the offsets as code: without a container's marks, blank edges and indentation."""
    first, last = bisect_left(state.eMarks, begin), bisect_left(state.eMarks, finish)
    text = state.src[begin : min(finish, state.eMarks[first])]
    starts_on_tag_line = bool(text.strip(" \t"))
    if last > first:
        lines = content_lines(state, first + 1, last + 1, state.blkIndent).removesuffix("\n")
        text += "\n" + lines[: len(lines) - (state.eMarks[last] - finish)]
    text = text.rstrip(" \t\n")
    blank = len(text) - len(text.lstrip(" \t\n"))
    code = dedent(text[text.rfind("\n", 0, blank) + 1 :])
    return code.lstrip(" \t") if starts_on_tag_line else code


def _single_fence(state: StateBlock, code: str) -> Find | None:
    """Return the fenced block that the code of a tag consists of, if it does."""
    if not code.startswith(("```", "~~~")):
        return None
    scan = Scan(scan_of(state).budget)
    inner = StateBlock(code + "\n", state.md, {"scan": scan}, [])
    is_single = fence_rule(inner, 0, inner.lineMax, False) and inner.line == inner.lineMax
    scan_of(state).budget = scan.budget
    return scan.finds[0] if is_single else None


def _report(state: StateBlock, begin: int, code: str, fenced: Find | None, *, closed: bool) -> None:
    # An empty pair of tags is how prose names them.
    if not code:
        return
    line = bisect_left(state.eMarks, begin)
    found = fenced or Find(line, "", code, closed)
    scan_of(state).finds.append(replace(found, line=line, closed=closed, in_tag=True))
