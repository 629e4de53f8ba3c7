"""The content of one message: a string, or parts where an image is among them."""

from __future__ import annotations

import base64
import binascii
from collections import Counter
from collections.abc import Collection, Sequence
from hashlib import sha256
from typing import Any

from relaxforge.core.errors import RequestError
from relaxforge.core.messages import Content, ImagePart, Part, TextPart
from relaxforge.gateway.body import kind
from relaxforge.gateway.noise import without_noise


def read_content(
    message: dict[str, Any],
    where: str,
    noted: Counter[str],
    *,
    required: bool = True,
    images: bool = False,
    noise: Collection[str] = (),
) -> Content:
    """Chat-shaped content. Text parts without an image among them are joined, counted as ``content_parts``.

    Errors: ``RequestError`` 400 for empty content where it is ``required``, and for an image where none may stand.
    """
    content = message.get("content")
    where = f"{where}.content"
    if isinstance(content, list):
        parts = [_part(part, f"{where}[{index}]") for index, part in enumerate(content)]
        noted["content_parts"] += not any(isinstance(part, ImagePart) for part in parts)
    elif content is None or isinstance(content, str):
        parts = [TextPart(content or "")]
    else:
        raise RequestError(f"{where} must be a string or a list of parts, got {kind(content)}", param=where)
    if required and not any(isinstance(part, ImagePart) or part.text for part in parts):
        raise RequestError(
            f"{where} must not be empty; give an empty result a stable text such as (empty)", param=where
        )
    return joined(parts, where, noted, images=images, noise=noise)


def joined(
    parts: Sequence[Part], where: str, noted: Counter[str], *, images: bool = True, noise: Collection[str] = ()
) -> Content:
    """One string, unless an image is among the parts. Errors: ``RequestError`` for an image where none may stand."""
    texts = [part.text for part in parts if isinstance(part, TextPart)]
    if len(texts) == len(parts):
        return "".join(without_noise(text, noise, noted) for text in texts) if noise else "".join(texts)
    if not images:
        raise RequestError(f"{where} holds an image; only user and tool messages may", param=where)
    return tuple(parts)


def image(url: str, where: str) -> ImagePart:
    """An image by its address, which holds the bytes or is the identity itself. Errors: ``RequestError``."""
    if url.startswith(("http://", "https://")):
        return ImagePart(url, sha256(url.encode("utf-8", "replace")).hexdigest(), where)
    head, comma, data = url.partition(",")
    if comma and head.startswith("data:image/") and head.endswith(";base64"):
        try:
            return ImagePart(url, sha256(base64.b64decode(data, validate=True)).hexdigest(), where)
        except (binascii.Error, ValueError):
            raise RequestError(f"{where} is not valid base64", param=where) from None
    raise RequestError(f"{where} must begin with data:image/...;base64, or http:// or https://", param=where)


def _part(part: Any, where: str) -> Part:
    match part:
        case {"type": "text", "text": str(text)}:
            return TextPart(text)
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            return image(url, f"{where}.image_url.url")
    raise RequestError(
        f'{where} must be {{"type": "text", "text": ...}} or {{"type": "image_url", "image_url": {{"url": ...}}}}',
        param=where,
    )
