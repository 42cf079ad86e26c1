"""Answers as messages, and pictures in them. Used by all agents."""

from __future__ import annotations

import io
from collections.abc import Sequence

from autogen_agentchat.base import TaskResult
from autogen_agentchat.messages import TextMessage
from autogen_core import Image
from autogen_core.models import CreateResult
from PIL import Image as PILImage

from coderoom.agents import metadata as keys
from coderoom.agents.attempt import Attempt, cut_of, facts, report
from coderoom.agents.metadata import StopReason
from coderoom.sandbox import Artifact

_PICTURES = {"image/png": "PNG", "image/jpeg": "JPEG", "image/gif": "GIF", "image/webp": "WEBP"}
_LARGEST_PICTURE = 8 * 1024 * 1024
_MOST_PIXELS = 25_000_000


def plain_answer(
    source: str,
    message_id: str,
    reply: CreateResult,
    attempts: Sequence[Attempt],
    after_code: StopReason = StopReason.NO_CODE,
) -> TextMessage:
    """The model has answered without code; `after_code` is the stop reason if there was code before."""
    text, metadata = str(reply.content), {keys.STOP_REASON: StopReason.NO_CODE.value}
    if attempts:
        # An answer does not change the result of the code.
        metadata = facts(attempts[-1], after_code) | {keys.SUMMARY: text}
        text = report(text, attempts[-1])
    metadata |= cut_of(reply)
    return TextMessage(id=message_id, content=text, source=source, models_usage=reply.usage, metadata=metadata)


def picture_of(artifact: Artifact) -> Image | None:
    """The picture in a file; `None` if it is too large or not a picture."""
    if artifact.media_type not in _PICTURES or artifact.size > _LARGEST_PICTURE:
        return None
    try:
        data = artifact.data if artifact.path is None else artifact.path.read_bytes()
        if data is None:
            return None
        picture = PILImage.open(io.BytesIO(data), formats=[_PICTURES[artifact.media_type]])
        return Image.from_pil(picture) if picture.width * picture.height <= _MOST_PIXELS else None
    except Exception:  # Pillow raises many kinds of errors for a broken file.
        return None


def without_questions(result: TaskResult) -> TaskResult:
    """A result without the questions to a person, which are not for agents and programs."""
    kept = [message for message in result.messages if keys.SHOWN not in message.metadata]
    return result.model_copy(update={"messages": kept})
