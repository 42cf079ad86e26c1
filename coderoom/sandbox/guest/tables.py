"""Tables as a model reads them best: size, types, columns, first and last rows. Used by the runner on request."""

from __future__ import annotations

import builtins
import sys
from functools import wraps
from typing import Any, Callable, Iterable, List, NamedTuple, Optional

from .imports import when_imported

_ROOM = 8_000  # Characters.
_WHOLE = 20  # A table of up to so many rows is shown whole.
_MOST_COLUMNS, _FIRST_COLUMNS, _LAST_COLUMNS = 60, 40, 10
_LONGEST_NAME = 60
_COUNTED = 2_000_000  # Of more cells, the missing ones are not counted.
_SHORT_LIST = 2_000
# How many rows of each end, and how many characters of a cell, until all of it fits.
_STEPS = ((5, 100), (3, 60), (2, 30), (1, 15))
_PLAIN = (str, int, float, bool, bytes, type(None))


class Table(NamedTuple):
    """A table of any library.

    Attributes:
        kind: What it is called.
        length: How many rows it has.
        columns: The names of its columns.
        types: The types of the columns.
        missing: How many values each column lacks; empty: not known.
        label: The name of the rows' labels.
        rows: Returns the rows from one number to another: the label, then the values of the columns with these numbers.
    """

    kind: str
    length: int
    columns: List[str]
    types: List[str]
    missing: List[int]
    label: str
    rows: Callable[[int, int, List[int]], Iterable[Iterable[Any]]]


def install() -> None:
    """Have `print` describe tables, once there is a library for them."""
    for name in ("pandas", "polars", "pyarrow"):
        when_imported(name, _adapt)


def to_text(value: Any) -> str:
    """The description of a table, and of a long list of rows; else the `repr`."""
    described = None if isinstance(value, _PLAIN) else _described(value, _table_of)
    if described is not None:
        return described
    return describe_list(value, repr(value))


def describe_list(value: Any, text: str) -> str:
    """The description of a list of rows whose `repr`, the text, is long; else that text."""
    is_long = type(value) is list and len(text) > _SHORT_LIST
    return (_described(value, _of_dicts) if is_long else None) or text


def _adapt(module: Any) -> None:
    if module.__name__ == "pandas":  # For what is printed as a part of a text.
        module.set_option("display.max_columns", _MOST_COLUMNS)
        module.set_option("display.width", 200)
    plain = builtins.print
    if hasattr(plain, "__wrapped__"):
        return

    @wraps(plain)
    def print_described(*values: Any, **options: Any) -> None:
        if options.get("file") in (None, sys.stdout):
            values = tuple(
                [each if isinstance(each, _PLAIN) else _described(each, _table_of) or each for each in values]
            )
        plain(*values, **options)

    builtins.print = print_described


def _described(value: Any, read: Callable[[Any], Optional[Table]]) -> Optional[str]:
    try:
        table = read(value)
        return None if table is None else _describe(table)
    except Exception:  # The library or its subclasses may do anything.
        return None


def _table_of(value: Any) -> Optional[Table]:
    """The table that a value of one of the libraries is."""
    for name, read in (("pandas", _of_pandas), ("polars", _of_polars), ("pyarrow", _of_pyarrow)):
        module = sys.modules.get(name)
        table = None if module is None else read(module, value)
        if table is not None:
            return table
    return None


def _of_pandas(pandas: Any, value: Any) -> Optional[Table]:
    kind = type(value).__name__
    if isinstance(value, pandas.Series):
        value = value.to_frame("value" if value.name is None else value.name)
    if not isinstance(value, pandas.DataFrame):
        return None

    def rows(begin: int, end: int, columns: List[int]) -> Any:
        part = value.iloc[begin:end]
        return zip(part.index.tolist(), *[part.iloc[:, number].tolist() for number in columns])  # noqa: B905

    index = ", ".join(str(name) for name in value.index.names if name is not None)
    missing = value.isna().sum().tolist() if value.size <= _COUNTED else []
    columns = [_cell(name, _LONGEST_NAME) for name in value.columns.tolist()]
    return Table(kind, len(value), columns, [str(each) for each in value.dtypes.tolist()], missing, index, rows)


def _of_polars(polars: Any, value: Any) -> Optional[Table]:
    kind = type(value).__name__
    if isinstance(value, polars.Series):
        value = value.to_frame(value.name or "value")
    if not isinstance(value, polars.DataFrame):
        return None

    def rows(begin: int, end: int, columns: List[int]) -> Any:
        found = value.slice(begin, end - begin).rows()
        return [[begin + number, *[row[each] for each in columns]] for number, row in enumerate(found)]

    missing = list(value.null_count().row(0)) if value.width else []
    columns = [_cell(name, _LONGEST_NAME) for name in value.columns]
    return Table(kind, value.height, columns, [str(each) for each in value.dtypes], missing, "", rows)


def _of_pyarrow(pyarrow: Any, value: Any) -> Optional[Table]:
    if not isinstance(value, (pyarrow.Table, pyarrow.RecordBatch)):
        return None

    def rows(begin: int, end: int, columns: List[int]) -> Any:
        part = value.slice(begin, end - begin)
        return zip(range(begin, end), *[part.column(number).to_pylist() for number in columns])  # noqa: B905

    columns = [_cell(name, _LONGEST_NAME) for name in value.schema.names]
    types, missing = [str(each) for each in value.schema.types], [each.null_count for each in value.columns]
    return Table(type(value).__name__, value.num_rows, columns, types, missing, "", rows)


def _of_dicts(value: Any) -> Optional[Table]:
    """A list of dicts with the same keys."""
    names = list(value[0]) if type(value[0]) is dict else []
    if not names or not all(type(each) is dict and list(each) == names for each in value):
        return None
    kinds = [sorted({type(each[name]).__name__ for each in value}) for name in names]

    def rows(begin: int, end: int, columns: List[int]) -> Any:
        return [[number, *[value[number][names[each]] for each in columns]] for number in range(begin, end)]

    columns = [_cell(name, _LONGEST_NAME) for name in names]
    return Table("list of dicts", len(value), columns, [" or ".join(kind) for kind in kinds], [], "", rows)


def _describe(table: Table) -> str:
    count = len(table.columns)
    shown = list(range(count))
    if count > _MOST_COLUMNS:
        shown = shown[:_FIRST_COLUMNS] + shown[-_LAST_COLUMNS:]
    head = ["%s, %s x %s" % (table.kind, _counted(table.length, "row"), _counted(count, "column"))]
    head.append("types: " + (_types(table, shown) or "none"))
    if len(shown) < count:
        head.append(
            "[%s after column %r not shown, nor in the rows]"
            % (_counted(count - len(shown), "column"), table.columns[_FIRST_COLUMNS - 1])
        )
    if not table.length:
        return "\n".join(head)
    head.append(" | ".join([table.label, *[table.columns[number] for number in shown]]))
    text = ""
    for ends, longest in _STEPS:
        text = "\n".join(head + _rows(table, shown, ends, longest))
        if len(text) <= _ROOM:
            return text
    return text[:_ROOM] + "... (%s characters)" % format(len(text), ",")


def _types(table: Table, shown: List[int]) -> str:
    kinds = set(table.types)
    if len(kinds) == 1 and len(shown) > 1 and not any(table.missing):
        return "all " + kinds.pop()
    found = []
    for number in shown:
        missing = table.missing[number] if table.missing else 0
        found.append(
            "%s %s" % (table.columns[number], table.types[number])
            + (" (%s missing)" % format(missing, ",") if missing else "")
        )
    return ", ".join(found)


def _rows(table: Table, shown: List[int], ends: int, longest: int) -> List[str]:
    if table.length <= (_WHOLE if ends == _STEPS[0][0] else 2 * ends):
        parts = [(0, table.length)]
    else:
        parts = [(0, ends), (table.length - ends, table.length)]
    lines: List[str] = []
    for begin, end in parts:
        if begin:
            lines.append("[%s in between]" % _counted(begin - ends, "row"))
        for row in table.rows(begin, end, shown):
            lines.append(" | ".join([_cell(each, longest) for each in row]))
    return lines


def _cell(value: Any, longest: int) -> str:
    if isinstance(value, float):
        return format(value, ".12g")
    if isinstance(value, tuple):
        return ", ".join([_cell(each, longest) for each in value])
    text = str(value)
    if "\n" in text or "\r" in text:
        text = repr(text)[1:-1]
    return text if len(text) <= longest else "%s... (%s characters)" % (text[:longest], format(len(text), ","))


def _counted(number: int, what: str) -> str:
    return "%s %s%s" % (format(number, ","), what, "" if number == 1 else "s")
