"""YAML 1.2 with its core schema: the events are ruamel.yaml's, what they mean for a team file is said here."""

from __future__ import annotations

import re
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from coderoom.configs._places import Mark
from coderoom.configs._tree import Node, TreeBuilder
from coderoom.errors import ConfigError

__all__ = ["core_value", "read_yaml"]

_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ENDLESS_TAG = re.compile(r"(?:^|[\s\[{,])!\S{100000}")
_INTEGER = re.compile(r"[-+]?[0-9]+")
_OTHER_INTEGER = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_INFINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}

_SENTENCES = {
    "mapping values are not allowed here": "there is a ': ' where no value can begin; quote the text, or indent it as "
    "the lines above",
    "could not find expected ':'": "a key stands here without its ':'",
    "found unexpected end of stream": "a quote that is opened here is never closed",
    "sequence entries are not allowed here": "a '- ' cannot stand here; begin the list on a line of its own",
    "mapping keys are not allowed here": "a key cannot begin here",
    "while parsing a flow sequence": "a '[' that is opened here is not closed where it should be",
    "while parsing a flow mapping": "a '{' that is opened here is not closed where it should be",
    "while parsing a block mapping": "the indentation, or what is here, does not fit the mapping above it",
    "while parsing a block collection": "the indentation, or what is here, does not fit the list above it",
}


def read_yaml(text: str, builder: TreeBuilder) -> Node | None:
    """Read a text with one YAML document.

    Args:
        text: The whole text.
        builder: What the document is built with.

    Returns:
        The document's value, or `None` where there is no document.

    Raises:
        ConfigError: The text is not YAML, or more than a team file may be.
    """
    _refuse_unreadable(text, builder)
    documents = 0
    try:
        for event in YAML(typ="safe", pure=True).parse(text):
            if isinstance(event, DocumentStartEvent):
                documents += 1
                if documents > 1:
                    builder.fail(_mark(event.start_mark), "a second YAML document begins here; a team file holds one")
            else:
                _add(event, builder)
    except ConfigError:
        raise
    except MarkedYAMLError as error:
        _fail_marked(error, builder)
    except Exception as error:  # ruamel.yaml lets some of its own slip on damaged input
        reason = " ".join(str(error).split()) or type(error).__name__
        builder.fail(Mark(1, 1), f"this is not YAML: {reason}")
    return builder.root


def core_value(text: str) -> Any:
    """Give the value of a plain scalar by YAML 1.2's core schema, in which `yes` and dates are texts."""
    if text in _WORDS:
        return _WORDS[text]
    try:
        if _INTEGER.fullmatch(text):
            return int(text)
        if _OTHER_INTEGER.fullmatch(text):
            return int(text, 0)
        if _FLOAT.fullmatch(text):
            return float(text)
        if _INFINITE.fullmatch(text):
            return float(text.replace(".", ""))
    except ValueError:  # thousands of digits
        return text
    return text


def _refuse_unreadable(text: str, builder: TreeBuilder) -> None:
    found = _UNPRINTABLE.search(text)
    if found:
        mark = _mark_at(text, found.start())
        builder.fail(mark, f"YAML does not allow the control character U+{ord(found[0]):04X} ({_at(mark)})")
    found = _ENDLESS_TAG.search(text)
    if found:  # the scanner needs minutes for these
        builder.fail(_mark_at(text, found.start()), "a word that begins with '!' is more than 100,000 characters long")


def _add(event: Event, builder: TreeBuilder) -> None:
    if isinstance(event, AliasEvent):
        builder.alias(_mark(event.start_mark), str(event.anchor))
    elif isinstance(event, ScalarEvent):
        _add_scalar(event, builder)
    elif isinstance(event, (SequenceStartEvent, MappingStartEvent)):
        kind = "list" if isinstance(event, SequenceStartEvent) else "mapping"
        mark = _mark(event.start_mark)
        if event.ctag is not None and _tag(event) != ("!!seq" if kind == "list" else "!!map"):
            _refuse_tag(event, builder)
        builder.open("list" if kind == "list" else "mapping", mark, anchor=_anchor(event))
    elif isinstance(event, (SequenceEndEvent, MappingEndEvent)):
        builder.close()


def _add_scalar(event: ScalarEvent, builder: TreeBuilder) -> None:
    text = str(event.value)
    plain = not event.style
    value: Any = core_value(text) if plain else text
    if event.ctag is not None:
        tag = _tag(event)
        kinds: dict[str, tuple[type, ...]] = {"!!int": (int,), "!!float": (int, float), "!!bool": (bool,)}
        if tag in {"!!str", "!"}:
            value = text
        elif tag in kinds and isinstance(core_value(text), kinds[tag]):
            value = core_value(text)
        elif tag == "!!null" and core_value(text) is None:
            value = None
        elif tag in kinds or tag == "!!null":
            builder.problem(_mark(event.start_mark), f"the tag {tag!r} does not fit this value")
        else:
            _refuse_tag(event, builder)
    merge = plain and text == "<<" and event.ctag is None
    builder.scalar(_mark(event.start_mark), value, text, anchor=_anchor(event), merge=merge)


def _refuse_tag(event: Any, builder: TreeBuilder) -> None:
    tag = _tag(event)
    builder.problem(_mark(event.start_mark), f"the tag {tag[:80]!r} is not allowed; a team file is plain data")


def _tag(event: Any) -> str:
    handle, suffix = event.ctag.handle, str(event.ctag.suffix)
    if handle is None:
        return suffix.replace("tag:yaml.org,2002:", "!!", 1)
    return f"{handle}{suffix}"


def _anchor(event: Any) -> str | None:
    return None if event.anchor is None else str(event.anchor)


def _fail_marked(error: MarkedYAMLError, builder: TreeBuilder) -> None:
    problem, context = str(error.problem or ""), str(error.context or "")
    # Ruamel sees some mistakes only far behind the place where a person has to look.
    sentence = _SENTENCES.get(problem, _SENTENCES.get(context, ""))
    behind = "opened here" in sentence or "stands here" in sentence
    mark = _mark(error.context_mark if behind and error.context_mark else error.problem_mark or error.context_mark)
    if problem in _SENTENCES:
        sentence = _SENTENCES[problem]
    elif problem.startswith("found character '\\t'"):
        sentence = "a tab cannot indent; use spaces"
    elif problem.startswith("found character"):
        character = problem.split("'")[1] if "'" in problem else "this"
        sentence = f"no value can begin with {character!r}; put it in quotes"
    elif problem.startswith("found undefined tag handle"):
        sentence = "tags are not allowed; a team file is plain data"
    elif context in _SENTENCES:
        sentence = _SENTENCES[context]
    else:
        sentence = " ".join(f"{context}, {problem}".strip(", ").split())
    builder.fail(mark, f"this is not YAML: {sentence} ({_at(mark)})")


def _mark(mark: Any) -> Mark:
    return Mark(1, 1) if mark is None else Mark(mark.line + 1, mark.column + 1)


def _mark_at(text: str, offset: int) -> Mark:
    return Mark(text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset))


def _at(mark: Mark) -> str:
    return f"line {mark.line}, column {mark.column}"
