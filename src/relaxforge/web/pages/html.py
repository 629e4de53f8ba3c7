"""Jinja's environment, and the two ways to answer: a whole page, or a part of one for htmx."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from fastapi import Request
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.responses import HTMLResponse

from relaxforge.web.caller import Caller
from relaxforge.web.pages import agent_text
from relaxforge.web.pages.outcome import EXPLANATIONS, number

PLACES = (
    ("environments", "/environments", "Environments", "read"),
    ("runs", "/runs", "Runs", "read"),
    ("trials", "/trials", "Trials", "read"),
    ("capability-gap", "/capability-gap", "Capability gap", "read"),
    ("partial-rewards", "/partial-rewards", "Partial rewards", "read"),
    ("training-runs", "/training-runs", "Training runs", "read"),
    ("members", "/members", "Members", "manage"),
    ("tokens", "/tokens", "Tokens", "manage"),
    ("audit-log", "/audit-log", "Audit log", "manage"),
)
KEYS = (("j", "next"), ("k", "previous"), ("Enter", "open"))

Crumbs = Sequence[tuple[str, str | None]]
Keys = Sequence[tuple[str, str]]


def page(
    request: Request,
    template: str,
    *,
    title: str,
    here: str = "",
    crumbs: Crumbs = (),
    keys: Keys = KEYS,
    code: int = 200,
    **values: Any,
) -> HTMLResponse:
    """A whole page; ``here`` is the place in the navigation, ``crumbs`` are (title, url), the last one without url."""
    caller: Caller | None = getattr(request.state, "caller", None)
    context = {
        "title": title,
        "here": here,
        "places": [_place(*place) for place in PLACES if caller and caller.may(place[3])],  # type: ignore[arg-type]
        "crumbs": [{"title": text, "url": url} for text, url in crumbs],
        "keys": keys,
        "notice": None,
        "bare": False,
        **values,
    }
    return fragment(request, template, code=code, **context)


def fragment(request: Request, template: str, *, code: int = 200, **values: Any) -> HTMLResponse:
    """A part of a page."""
    caller: Caller | None = getattr(request.state, "caller", None)
    context = {"caller": caller, "csrf_field": lambda: _csrf_field(caller), **values}
    return HTMLResponse(_TEMPLATES.get_template(template).render(context), code)


def address(path: str, **query: object) -> str:
    """``path`` with the parameters that say something."""
    given = {name: value for name, value in query.items() if value not in (None, "")}
    return f"{path}?{urlencode(given)}" if given else path


def _place(name: str, url: str, title: str, _: str) -> Mapping[str, str]:
    return {"name": name, "url": url, "title": title}


def _csrf_field(caller: Caller | None) -> Markup:
    token = caller.csrf_token if caller else None
    return Markup('<input type="hidden" name="csrf_token" value="{}">').format(token or "")


def _utc(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M")


def _percent(value: float) -> str:
    return f"{100 * value:.3g} %"


def _whole(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _short(identity: UUID | str) -> str:
    return str(identity)[:8]


def _words(name: str) -> str:
    return name.replace("_", " ")


def _model_name(model: Mapping[str, Any]) -> str:
    """What a configuration calls its model, in a few words."""
    known = [model.get(key) for key in ("engine", "upstream", "model", "name", "hf_checkpoint")]
    return agent_text.first_line(", ".join(str(value) for value in known if value) or json.dumps(model), 80)


def _pretty(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _hex(digest: bytes) -> str:
    return bytes(digest).hex()


def _hex16(digest: bytes) -> str:
    return _hex(digest)[:16]


def _static(name: str) -> str:
    return f"/static/{name}"


def _templates() -> Environment:
    templates = Environment(
        loader=PackageLoader("relaxforge.web"),
        autoescape=True,
        auto_reload=False,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: Iterable[tuple[str, Any]] = (
        ("visible", agent_text.visible), ("fold", agent_text.fold), ("first_line", agent_text.first_line),
        ("short_line", agent_text.short_line),
        ("utc", _utc), ("percent", _percent), ("num", number), ("whole", _whole), ("seconds", _seconds),
        ("short", _short), ("words", _words), ("model_name", _model_name), ("pretty", _pretty), ("compact", _compact),
        ("hex", _hex), ("hex16", _hex16),
    )  # fmt: skip
    templates.filters.update(filters)
    templates.globals.update(static=_static, explanations=EXPLANATIONS, whole=False)
    return templates


_TEMPLATES = _templates()
