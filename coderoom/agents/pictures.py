"""Pictures that code has made, as models get them: not larger than they use, each once, and only the newest.

Used by all coding agents whose model sees pictures.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
from collections.abc import Sequence
from pathlib import PurePosixPath

from autogen_core import Image
from autogen_core.models import LLMMessage, UserMessage
from PIL import Image as PILImage

from coderoom._util.files import read_inside
from coderoom._util.text import named
from coderoom.sandbox import Artifact

MOST_TOKENS = 8_000
"""What all pictures of its code may take of an agent's request."""
_LONGEST_SIDE = 1568  # Services make what is larger smaller.
_PIXELS = 750  # Of a token.
_FORMATS = {"image/png": "PNG", "image/jpeg": "JPEG", "image/gif": "GIF", "image/webp": "WEBP"}
_LARGEST = 8 * 1024 * 1024
_MOST_PIXELS = 25_000_000
_LEFT_OUT = "[A picture that was shown before is left out.]"


async def with_pictures(
    text: str, artifacts: Sequence[Artifact], conversation: Sequence[LLMMessage]
) -> str | list[str | Image]:
    """What a model gets to know about code: a text and the pictures that the code has made.

    Args:
        text: What happened.
        artifacts: The files that the code has made or changed.
        conversation: What the model sees already, of which no picture comes again.
    """
    candidates = [artifact for artifact in artifacts if artifact.media_type in _FORMATS]
    return await asyncio.to_thread(_with_pictures, text, candidates, conversation) if candidates else text


def _with_pictures(
    text: str, artifacts: Sequence[Artifact], conversation: Sequence[LLMMessage]
) -> str | list[str | Image]:
    seen = {_digest(each) for message in conversation for each in _pictures_in(message)}
    found: list[str | Image] = []
    known, too_many, room = [], [], MOST_TOKENS
    for artifact in artifacts:
        picture = picture_of(artifact)
        if picture is None:
            continue
        if (digest := _digest(picture)) in seen:
            known.append(artifact.name)
        elif tokens_of(picture) > room:
            too_many.append(artifact.name)
        else:
            room -= tokens_of(picture)
            seen.add(digest)
            found += [f"{named(artifact.name)}:", picture] if len(artifacts) > 1 else [picture]
    for names, why in ((known, "already shown above"), (too_many, "not shown, since these are too many pictures")):
        if names:
            text += f"\n\n{', '.join(map(named, names))}: {why}."
    return [text, *found] if found else text


def picture_of(artifact: Artifact) -> Image | None:
    """The picture in a file, as large as models use it; `None` if it is too large or not a picture."""
    if artifact.media_type not in _FORMATS or artifact.size > _LARGEST:
        return None
    try:
        data, path = artifact.data, artifact.path
        if path is not None:  # The code may have put something else there since.
            root = path.parents[len(PurePosixPath(artifact.name).parts) - 1]
            data = read_inside(root, artifact.name, _LARGEST)
        if data is None:
            return None
        picture = PILImage.open(io.BytesIO(data), formats=[_FORMATS[artifact.media_type]])
        if picture.width * picture.height > _MOST_PIXELS:
            return None
        shown = picture.convert("RGBA" if picture.has_transparency_data else "RGB")
        shown.thumbnail((_LONGEST_SIDE, _LONGEST_SIDE))
        return Image.from_pil(shown)
    except Exception:  # Pillow raises many kinds of errors for a broken file.
        return None


def tokens_of(picture: Image) -> int:
    """About how many tokens a picture takes."""
    return -(-picture.image.width * picture.image.height // _PIXELS)


def only_newest(conversation: Sequence[LLMMessage], source: str) -> list[LLMMessage]:
    """A conversation with the newest pictures of this agent's code, as many as there may be; others as they are."""
    kept: list[LLMMessage] = []
    room = MOST_TOKENS
    for message in reversed(conversation):
        if isinstance(message, UserMessage) and message.source == source and (found := _pictures_in(message)):
            room -= sum(map(tokens_of, found))
            if room < 0:
                content = [_LEFT_OUT if isinstance(each, Image) else each for each in message.content]
                message = message.model_copy(update={"content": content})
        kept.append(message)
    return kept[::-1]


def _pictures_in(message: LLMMessage) -> list[Image]:
    if not isinstance(message, UserMessage) or isinstance(message.content, str):
        return []
    return [each for each in message.content if isinstance(each, Image)]


def _digest(picture: Image) -> bytes:
    image = picture.image
    return hashlib.sha256(f"{image.mode} {image.size}".encode() + image.tobytes()).digest()
