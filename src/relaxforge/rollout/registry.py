"""Who may talk to the model right now: the door that the gateway knocks on."""

from __future__ import annotations

from relaxforge.core.errors import RequestError
from relaxforge.core.ids import Credential
from relaxforge.rollout.session import Session, discarded


class SessionRegistry:
    """Live Sessions by id, and the ids of ended ones, which get a clear answer instead of a riddle."""

    def __init__(self) -> None:
        self.live: dict[str, Session] = {}
        self._ended: set[str] = set()

    def add(self, session: Session) -> None:
        self.live[session.session_id] = session

    def remove(self, session: Session) -> None:
        self.live.pop(session.session_id, None)
        self._ended.add(session.session_id)

    def open(self, credential: str) -> Session:
        """The Session that ``credential`` opens. Errors: ``RequestError`` 404, see ``core.ports.TurnHandler``."""
        presented = Credential.parse(credential)
        session = self.live.get(presented.session_id) if presented else None
        if presented and session and session.identity.credential.opens(presented):
            return session
        if presented and presented.session_id in self._ended:
            raise discarded(presented.session_id)
        raise RequestError(
            "no running Session has this key; send the value of RELAX_SESSION_ID as bearer token",
            status=404,
            code="session_not_found",
        )
