"""What code shows as notebooks have it: several forms of each value, by media types. Used by the runner on request."""

from __future__ import annotations

import base64
import io
import json
import math
import sys
from typing import Any, Callable

from .files import PYPLOT, SAVED, Pictures, is_figure
from .imports import when_imported

_LARGEST = 12 * 1024 * 1024
_LONGEST_TEXT = 1024 * 1024
_METHODS = (
    ("_repr_html_", "text/html"),
    ("_repr_markdown_", "text/markdown"),
    ("_repr_svg_", "image/svg+xml"),
    ("_repr_png_", "image/png"),
    ("_repr_jpeg_", "image/jpeg"),
    ("_repr_pdf_", "application/pdf"),
    ("_repr_latex_", "text/latex"),
    ("_repr_json_", "application/json"),
    ("_repr_javascript_", "application/javascript"),
)
_PLAIN = "text/plain"
CHART, DATA = "e2b/chart", "e2b/data"


class Bundles(Pictures):
    """Sends what is shown to the host, in place of files; `send` also gets whether it is the value of the cell."""

    def __init__(self, send: Callable[[dict[str, Any], bool], None]) -> None:
        super().__init__(lambda: "", lambda _: None)
        self._send = send
        when_imported("PIL.Image", self._show_images)

    def display(self, *values: Any, raw: bool = False, **_: Any) -> None:
        """Show values in the middle of a cell, as notebooks do."""
        for value in values:
            self._send(_sendable(value) if raw else bundle(value), False)
            if is_figure(value):
                pyplot: Any = sys.modules.get(PYPLOT)
                is_open = pyplot is not None and pyplot.fignum_exists(getattr(value, "number", None))
                setattr(value, SAVED, is_open)

    def save(self, value: Any = None) -> None:
        """Send the value of the cell, and the open figures; close all figures."""
        if value is not None:
            self._send(bundle(value), True)
            if is_figure(value):
                setattr(value, SAVED, True)
        super().save()

    def _save_figure(self, figure: Any) -> None:
        if not getattr(figure, SAVED, False):
            self._send(bundle(figure), False)

    def _adapt(self, pyplot: Any) -> None:
        def show(*_: Any, **__: Any) -> None:
            self.save()

        show.__doc__ = "Show the open figures."
        pyplot.show = show

    def _show_images(self, module: Any) -> None:
        save = module.Image.save

        def save_and_show(image: Any, fp: Any, format: Any = None, **options: Any) -> None:
            save(image, fp, format, **options)
            if isinstance(fp, str):  # As E2B's sandboxes do.
                self.display(image)

        save_and_show.__doc__ = save.__doc__
        module.Image.save = save_and_show
        module.Image.show = lambda image, *_, **__: self.display(image)


def bundle(value: Any) -> dict[str, Any]:
    """The forms of a value."""
    found: dict[str, Any] = {}
    try:
        found[_PLAIN] = repr(value)[:_LONGEST_TEXT]
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        found[_PLAIN] = "<%s whose repr has failed: %s>" % (type(value).__name__, type(error).__name__)
    if is_figure(value):
        found.update(_of_figure(value))
    else:
        found.update(_of_methods(value))
    if isinstance(value, (dict, list)):
        found["application/json"] = value
    frame: Any = getattr(sys.modules.get("pandas"), "DataFrame", None)
    is_frame = isinstance(frame, type) and isinstance(value, frame)
    if is_frame:
        found[DATA] = value.to_dict(orient="list")
    return _sendable(found)


def _of_figure(figure: Any) -> dict[str, Any]:
    picture = io.BytesIO()
    try:
        figure.savefig(picture, format="png", bbox_inches="tight")
    except Exception as error:
        print("[A figure could not be shown: %s: %s]" % (type(error).__name__, error), file=sys.stderr)
        return {}
    found = {"image/png": picture.getvalue()}
    try:
        from e2b_charts import chart_figure_to_dict  # type: ignore[import-not-found]

        found[CHART] = chart_figure_to_dict(figure)
    except Exception:  # It is not installed, or cannot read this chart.
        pass
    return found


def _of_methods(value: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    kind = type(value)
    if hasattr(kind, "_repr_mimebundle_"):
        given = _given(value, "_repr_mimebundle_")
        found.update(given if isinstance(given, dict) else {})
    for name, media_type in _METHODS:
        if media_type not in found and hasattr(kind, name):
            given = _given(value, name)
            if given is not None:
                found[media_type] = given
    return found


def _given(value: Any, name: str) -> Any:
    try:
        found = getattr(value, name)()
    except KeyboardInterrupt:
        raise
    except BaseException:
        return None
    return found[0] if type(found) is tuple and found else found  # With metadata.


def _sendable(data: dict[str, Any]) -> dict[str, Any]:
    """The forms as JSON, without what is too large."""
    found: dict[str, Any] = {}
    room = _LARGEST
    for name, value in data.items():
        try:
            plain = _plain(value)
            size = len(json.dumps(plain, allow_nan=False))
        except KeyboardInterrupt:
            raise
        except BaseException:  # It is not data, or its methods do anything.
            continue
        if size <= room:
            room -= size
            found[str(name)] = plain
    return found


def _plain(value: Any) -> Any:
    """A value as JSON has it; numbers that it does not have become `None`."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {key if isinstance(key, str) else str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, (str, int, float)):
        return value
    for name in ("isoformat", "tolist", "item"):
        method = getattr(value, name, None)
        if callable(method):
            return _plain(method())
    raise TypeError
