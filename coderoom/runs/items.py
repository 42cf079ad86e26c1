"""Reads the items of a batch: JSON lines, JSON, CSV, Parquet, or a Hugging Face dataset on disk. Used by `Batch`."""

from __future__ import annotations

import csv
import gzip
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, TextIO

from coderoom._util.text import encodable
from coderoom.agents.checks import Check, make_check
from coderoom.errors import MissingDependencyError, RequestError

_FIELDS: Final = ("task", "files", "check", "variables")
_VARIABLE: Final = re.compile(r"\$?\$\{([^{}]+)\}")
NOT_AN_ITEM: Final = (ValueError, TypeError, OSError, RecursionError, RequestError)
"""What reading an item raises if a line is none."""
_LARGEST_FIELD: Final = 2**31 - 1
_LONGEST_TAG: Final = 60
_MOST_TAGS: Final = 20


@dataclass(frozen=True)
class Item:
    """One task of a batch, with the values of its variables, which are the fields of its line.

    Without a check it cannot pass: a run that ends well is `unchecked`. `empty` has the names of the fields in the
    task that are empty.
    """

    id: str
    task: str
    files: tuple[Path, ...] = ()
    check: Check | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)
    empty: tuple[str, ...] = ()

    @property
    def tags(self) -> list[str]:
        """What results are grouped by: the field `tags`, a list or one, and as `name=value` all short plain fields."""
        own = self.variables.get("tags") or []
        found = [own] if isinstance(own, str) else list(map(str, own)) if isinstance(own, list | tuple) else []
        for name, value in self.variables.items():
            is_plain = isinstance(value, str | bool | int) and name != "tags" and str(value) != self.id
            if is_plain and "\n" not in (text := str(value)) and 0 < len(text) <= _LONGEST_TAG:
                found.append(f"{name}={text}")
        return [encodable(tag[:_LONGEST_TAG]) for tag in dict.fromkeys(found)][:_MOST_TAGS]

    @property
    def digest(self) -> str:
        """A hash of what is asked and how it is judged."""
        check = None if self.check is None else self.check.model_dump(mode="json")
        whole = json.dumps([self.task, [path.name for path in self.files], check, dict(self.variables)], default=str)
        return sha256(whole.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class BadLine:
    """A line that is no item, by its number, and what is wrong with it."""

    number: int
    why: str


def read_items(
    path: str | Path, *, task: str | None = None, check: Check | None = None, id_field: str = "id"
) -> Iterator[Item | BadLine]:
    """The items of a file, one after the other.

    The file is `.jsonl`, `.json` (a list), `.csv`, each perhaps with `.gz`, `.parquet`, or the folder of a dataset. A
    line is an object. Its fields are variables of the task: `${name}` stands for the field `name`, and `$${name}` for
    itself. Lines without an id are named after their number, and `task` and `check` are those of lines that have none.

    Raises:
        RequestError: The file cannot be read.
        MissingDependencyError: It needs a package that is not installed.
    """
    path = Path(path)
    seen: set[str] = set()
    for number, row in _rows(path):
        try:
            if isinstance(row, Exception):
                raise row
            item = item_of(row, number, path.parent, task, check, id_field)
            if item.id in seen:
                raise ValueError(f"the id {item.id!r} occurs twice")
            seen.add(item.id)
            yield item
        except NOT_AN_ITEM as error:
            yield BadLine(number, str(error))


def count_items(path: str | Path) -> int:
    """The number of lines of a file of items, bad ones too."""
    return sum(1 for _ in _rows(Path(path)))


def item_of(row: Any, number: int, folder: Path, task: str | None, check: Check | None, id_field: str) -> Item:
    """The item of a line, whose files are in a folder. The other arguments are those of `read_items`.

    Raises `NOT_AN_ITEM` if it is none.
    """
    if not isinstance(row, Mapping):
        raise ValueError(f"expected an object with fields, got {row!r:.80}")
    more = row.get("variables") or {}
    if not isinstance(more, Mapping):
        raise ValueError(f"the field 'variables' is an object, not {more!r:.80}")
    variables = {**{name: value for name, value in row.items() if name not in _FIELDS}, **more}
    text = row.get("task") or task
    if not isinstance(text, str) or not text.strip():
        raise ValueError("it has no task; give it a field 'task', or all of them --task TEXT")

    empty: dict[str, None] = {}

    def value_of(found: re.Match[str]) -> str:
        if found[0].startswith("$$"):
            return found[0][1:]
        if (value := variables.get(found[1])) is None:
            why = "it is null in the line" if found[1] in variables else "the line has no such field"
            raise ValueError(f"the task has the variable ${{{found[1]}}}, and {why}")
        if not str(value).strip() or value in ([], {}):
            empty[found[1]] = None
        return str(value)

    files = row.get("files") or ()
    if isinstance(files, str):
        files = files.split(";")
    paths = tuple(folder / str(each) for each in files)
    for each in paths:
        if not each.is_file():
            raise ValueError(f"there is no file {str(each)!r}")
    own, identity = row.get("check"), row.get(id_field)
    if identity in (None, ""):
        if id_field != "id":
            raise ValueError(f"it has no field {id_field!r}, which is to be its id")
        identity = number
    judged = check if own is None or own == "" else make_check(own)
    item = Item(str(identity), _VARIABLE.sub(value_of, text), paths, judged, variables, tuple(empty))
    f"{item.id}{item.task}".encode()  # Lone surrogates have no place in files.
    return item


def _rows(path: Path) -> Iterator[tuple[int, Any]]:
    """The lines with their numbers; one that cannot be read is an exception."""
    name = path.name.removesuffix(".gz")
    try:
        if path.is_dir() or name.endswith(".parquet"):
            yield from enumerate(_arrow_rows(path), 1)
            return
        if not name.endswith((".jsonl", ".ndjson", ".json", ".csv")):
            raise RequestError(f"The items {str(path)!r} are not .jsonl, .json, .csv, .parquet or a dataset's folder.")
        opens = gzip.open if path.suffix == ".gz" else open
        # What is not UTF-8 is a lone surrogate then, which makes a bad line.
        with opens(path, "rt", encoding="utf-8-sig", errors="surrogateescape") as file:
            yield from _text_rows(file, name)
    except (OSError, EOFError, zlib.error, csv.Error) as error:
        why = getattr(error, "strerror", None) or error
        raise RequestError(f"The items {str(path)!r} cannot be read: {why}.") from error


def _text_rows(file: TextIO, name: str) -> Iterator[tuple[int, Any]]:
    if name.endswith(".csv"):
        csv.field_size_limit(_LARGEST_FIELD)
        reader = csv.DictReader(file)
        for row in reader:
            whole = None not in row and None not in row.values()
            yield reader.line_num, row if whole else ValueError("it has more or fewer fields than the first line")
    elif name.endswith(".json"):
        try:
            rows = json.load(file)
        except ValueError as error:
            raise RequestError(f"The items {name!r} are not JSON: {error}.") from error
        if not isinstance(rows, list):
            raise RequestError(f"The items {name!r} are not a list of objects.")
        yield from enumerate(rows, 1)
    else:
        for number, line in enumerate(file, 1):
            if line.strip():
                try:
                    line.encode()
                    yield number, json.loads(line)
                except (ValueError, RecursionError) as error:
                    yield number, ValueError(f"it is not JSON: {error}")


def _arrow_rows(path: Path) -> Iterator[Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingDependencyError(
            f"The items {str(path)!r} need a package that is missing: pip install 'coderoom[batch]'"
        ) from error
    try:
        if path.is_file():
            for batch in pyarrow.parquet.ParquetFile(path).iter_batches(1_000):
                yield from batch.to_pylist()
            return
        if (splits := path / "dataset_dict.json").is_file():
            names = ", ".join(json.loads(splits.read_text("utf-8"))["splits"])
            raise RequestError(f"The dataset {str(path)!r} has splits ({names}); name the folder of one.")
        state = json.loads((path / "state.json").read_text("utf-8"))
        for each in state["_data_files"]:
            with pyarrow.memory_map(str(path / each["filename"])) as source:
                for batch in pyarrow.ipc.open_stream(source):
                    yield from batch.to_pylist()
    except (pyarrow.ArrowException, ValueError, KeyError, TypeError) as error:
        raise RequestError(f"The items {str(path)!r} cannot be read: {error}.") from error
