"""The content of one message: a string, or parts where an image is among them."""

from __future__ import annotations

import base64
import binascii
from collections import Counter
from hashlib import sha256
from typing import Any

from relaxforge.core.errors import RequestError
from relaxforge.core.messages import Content, ImagePart, Part, TextPart
from relaxforge.gateway.body import kind


def read_content(
    message: dict[str, Any], where: str, noted: Counter[str], *, required: bool = True, images: bool = False
) -> Content:
    """Text parts without an image among them are joined into a string, counted as ``content_parts``.

    Errors: ``RequestError`` 400 for empty content where it is ``required``, and for an image where none may stand.
    """
    content = message.get("content")
    where = f"{where}.content"
    if isinstance(content, list):
        return _parts(content, where, noted, required=required, images=images)
    if content is not None and not isinstance(content, str):
        raise RequestError(f"{where} must be a string or a list of parts, got {kind(content)}", param=where)
    if required and not content:
        raise _empty(where)
    return content or ""


def _parts(content: list[Any], where: str, noted: Counter[str], *, required: bool, images: bool) -> Content:
    if required and not content:
        raise _empty(where)
    parts = [_part(part, f"{where}[{index}]", required) for index, part in enumerate(content)]
    texts = [part.text for part in parts if isinstance(part, TextPart)]
    if len(texts) == len(parts):
        noted["content_parts"] += 1
        return "".join(texts)
    if not images:
        raise RequestError(f"{where} holds an image; only user and tool messages may", param=where)
    return tuple(parts)


def _part(part: Any, where: str, required: bool) -> Part:
    match part:
        case {"type": "text", "text": str(text)}:
            if required and not text:
                raise _empty(f"{where}.text")
            return TextPart(text)
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            return ImagePart(url, _image_digest(url, f"{where}.image_url.url"))
    raise RequestError(
        f'{where} must be {{"type": "text", "text": ...}} or {{"type": "image_url", "image_url": {{"url": ...}}}}',
        param=where,
    )


def _image_digest(url: str, where: str) -> str:
    if url.startswith(("http://", "https://")):
        return sha256(url.encode()).hexdigest()
    head, comma, data = url.partition(",")
    if comma and head.startswith("data:image/") and head.endswith(";base64"):
        try:
            return sha256(base64.b64decode(data, validate=True)).hexdigest()
        except (binascii.Error, ValueError):
            raise RequestError(f"{where} is not valid base64", param=where) from None
    raise RequestError(f"{where} must begin with data:image/...;base64, or http:// or https://", param=where)


def _empty(where: str) -> RequestError:
    return RequestError(f"{where} must not be empty; give an empty result a stable text such as (empty)", param=where)
