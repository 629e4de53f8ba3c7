"""What an evaluator wrote, read as a ``Verdict``.

One JSON object: ``reward`` (a number), ``stage_*`` (numbers), ``failure_category`` (a short text of the evaluator's
own) and any other numbers. Stages that the manifest does not declare are kept like the others; other keys that hold
something else than a number are left out. A boolean is no number: 1 and 0 say the same and cannot be misread.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from relaxforge.core.errors import EvaluatorError
from relaxforge.core.evidence import Verdict
from relaxforge.core.sessions import INFRASTRUCTURE
from relaxforge.core.strict_json import loads

MOST_BYTES = 1 << 20
MOST_KEYS = 500
LONGEST_NAME = 100
LONGEST_CATEGORY = 100
STAGE = "stage_"
OUTPUT = "RELAX_EVALUATION_OUTPUT"


def read_verdict(data: bytes | None) -> Verdict:
    """The verdict in ``data``, the content of ``RELAX_EVALUATION_OUTPUT``; ``None`` where there is no file.

    A reward outside [0, 1] is no error: it is ``out_of_range``, and what stood there is kept. Errors:
    ``EvaluatorError`` naming what is wrong and with which key.
    """
    given = _object(data)
    raw = json.dumps(given.get("reward"))[:LONGEST_NAME]
    reward = _number(given.get("reward"), "reward")
    sound = 0 <= reward <= 1
    numbers = {key: value for key, value in given.items() if key not in ("reward", "failure_category")}
    return Verdict(
        reward=abs(float(reward)) if sound else None,
        reward_status="scored" if sound else "out_of_range",
        raw_reward=raw,
        stages={key: _number(value, key) for key, value in numbers.items() if key.startswith(STAGE)},
        metrics={
            key: _number(value, key)
            for key, value in numbers.items()
            if not key.startswith(STAGE) and isinstance(value, int | float) and not isinstance(value, bool)
        },
        failure_category=_category(given.get("failure_category")),
    )


def _object(data: bytes | None) -> Mapping[str, Any]:
    if data is None:
        raise EvaluatorError(f"the evaluator wrote no file to {OUTPUT}")
    if len(data) > MOST_BYTES:
        raise EvaluatorError(f"the evaluator wrote more than {MOST_BYTES >> 20} MiB to {OUTPUT}; write numbers only")
    if not data.strip():
        raise EvaluatorError(f"the evaluator wrote an empty file to {OUTPUT}")
    try:
        given = loads(data)
    except ValueError as error:  # UnicodeDecodeError and JSONDecodeError are kinds of it
        raise EvaluatorError(f"what the evaluator wrote to {OUTPUT} is not valid JSON: {error}") from None
    if not isinstance(given, dict):
        raise EvaluatorError(
            f'the evaluator must write an object like {{"reward": 0.5}} to {OUTPUT}, not {_shown(given)}'
        )
    if len(given) > MOST_KEYS:
        raise EvaluatorError(f"the evaluator wrote {len(given)} keys to {OUTPUT}; at most {MOST_KEYS} are kept")
    if too_long := next((key for key in given if len(key) > LONGEST_NAME), None):
        raise EvaluatorError(f"the key {too_long[:40]!r}... has more than {LONGEST_NAME} characters")
    return given


def _number(value: Any, key: str) -> int | float:
    if value is None:
        raise EvaluatorError(f"the evaluator wrote no {key!r}; it must be a number")
    if isinstance(value, bool):
        raise EvaluatorError(f"the evaluator wrote {_shown(value)} as {key!r}; write {int(value)}")
    if not isinstance(value, int | float):
        raise EvaluatorError(f"the evaluator wrote {_shown(value)} as {key!r}; it must be a number")
    if (isinstance(value, int) and value.bit_length() > 1000) or not math.isfinite(value):
        raise EvaluatorError(f"the {key!r} of the evaluator is beyond the range of a number")
    return value


def _category(value: Any) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip() or len(value) > LONGEST_CATEGORY:
        raise EvaluatorError(
            f"the evaluator wrote {_shown(value)} as 'failure_category'; it must be a text of 1 to {LONGEST_CATEGORY} "
            "characters, or null"
        )
    if value in set(INFRASTRUCTURE):
        raise EvaluatorError(
            f"the evaluator wrote {value!r} as 'failure_category', which is the name of a fault of ours; choose "
            "another word"
        )
    return value


def _shown(value: Any) -> str:
    if isinstance(value, list | dict):
        return "an array" if isinstance(value, list) else "an object"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:60]}..."
