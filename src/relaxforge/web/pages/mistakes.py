"""What a person did wrong in a form, in a sentence."""

from __future__ import annotations

from pydantic import ValidationError

from relaxforge.core.errors import RelaxForgeError


def sentence(error: RelaxForgeError | ValidationError) -> str:
    """Says which field and what is allowed."""
    if not isinstance(error, ValidationError):
        return str(error)
    return "; ".join(
        ": ".join(filter(None, (".".join(map(str, item["loc"])), str(item["msg"])))) for item in error.errors()
    )
