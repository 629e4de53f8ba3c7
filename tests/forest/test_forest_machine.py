"""Any interleaving of requests, commits, aborts and deliveries, against a slow forest that compares whole histories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from forest_parts import SEARCH, assistant, generation, render, request, system, tool, user
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, precondition, rule

from relaxforge.core.messages import Message, ModelRequest, ToolCall
from relaxforge.core.turns import FinishReason
from relaxforge.forest.forest import PendingTurn, SessionForest
from relaxforge.forest.integrity import check_integrity
from relaxforge.forest.lineage import account, sample
from relaxforge.forest.select import Context
from relaxforge.forest.state import Kind, State

Name = tuple[bytes, ...]
SEEDS = (((), "{}"), ((SEARCH,), "{}"), ((), '{"thinking":true}'))
NEW = (user("a"), user("b"), tool("found", "call-1"), system("be brief"), user(" a "))
ANSWERS = (
    assistant("yes"),
    assistant("no"),
    assistant(""),
    assistant("yes", reasoning="because"),
    assistant("", call="call-1"),
    assistant(" yes\n"),
)
REASONS = (None, "session_failed", "group_dropped", "group_filtered", "surplus")


@dataclass(frozen=True)
class Sent:
    """A begun request with what an engine would be sent for it, token for token."""

    pending: PendingTurn
    prompt: list[int]


class SlowForest:
    """Remembers for every State all conversations that name it, and finds prefixes by comparing them in full."""

    def __init__(self) -> None:
        self.exact: dict[State, set[Name]] = {}
        self.lenient: dict[State, Name] = {}

    def begin(self, asked: ModelRequest) -> tuple[State | None, int]:
        exact = spelled(asked, "exact")
        found, split = self._longest(asked, lambda state, count: exact[: count + 1] in self.exact[state])
        if any(message.role == "assistant" for message in asked.messages[split:]):
            loose = spelled(asked, "lenient")
            other, reach = self._longest(asked, lambda state, count: loose[: count + 1] == self.lenient[state])
            if reach > split:
                return other, reach
        return found, split

    def _longest(self, asked, names) -> tuple[State | None, int]:
        for count in range(len(asked.messages), -1, -1):
            named = [state for state in self.exact if names(state, count)]
            whole = [state for state in named if state.kind is Kind.OBSERVATION and state.messages]
            if whole and count == len(asked.messages):
                return whole[-1], count
            if open_ended := [state for state in named if state.kind is not Kind.OBSERVATION]:
                return max(open_ended, key=lambda state: (state.delivered, state.index)), count
        return None, 0

    def commit(self, sent: Sent, response: State) -> None:
        observed = response.parent
        asked = sent.pending.request
        if sent.pending.leniency.keys() - {"tied_siblings"}:
            matched = sent.pending.observation or sent.pending.parent
            self.exact[matched].add(spelled(asked, "exact")[: sent.pending.split + 1])
        for state in (observed.lineage()[0].parent, observed):
            if state not in self.exact:
                self.exact[state] = {canonical(state, asked, "exact")}
                self.lenient[state] = canonical(state, asked, "lenient")
                if state is observed:
                    self.exact[state].add(spelled(asked, "exact"))
        end = response.messages[0].exact
        self.exact[response] = {canonical(response, asked, "exact"), (*spelled(asked, "exact"), end)}
        self.lenient[response] = canonical(response, asked, "lenient")


def spelled(asked: ModelRequest, digest: str) -> Name:
    return (asked.seed_digest, *(getattr(message, digest) for message in asked.messages))


def canonical(state: State, asked: ModelRequest, digest: str) -> Name:
    return (asked.seed_digest, *(getattr(message, digest) for message in state.conversation()))


def echo(message: Message, how: str) -> Message:
    """An answer as some client sends it back."""
    if message.role not in ("assistant", "tool"):
        return message
    if how == "reasoning":
        return replace(message, reasoning="")
    if how == "stripped":
        return replace(message, content=message.text.strip())
    if how == "ids":
        calls = tuple(ToolCall(f"new-{call.id}", call.name, call.arguments) for call in message.tool_calls)
        return replace(message, tool_calls=calls, tool_call_id=message.tool_call_id and f"new-{message.tool_call_id}")
    return message


class AnyInterleaving(RuleBasedStateMachine):
    answers = Bundle("answers")
    begun = Bundle("begun")

    def __init__(self) -> None:
        super().__init__()
        self.forest = SessionForest()
        self.slow = SlowForest()
        self.asked: list[ModelRequest] = []
        self.lineages: dict[State, list[int]] = {}
        self.requests: dict[State, ModelRequest] = {}
        self.sampled = 0

    # What agents do

    @rule(target=begun, seed=st.sampled_from(SEEDS), messages=st.lists(st.sampled_from(NEW + ANSWERS[:2]), max_size=1))
    def open_a_conversation(self, seed, messages):
        return self._ask(request(*messages, user("q"), tools=seed[0], kwargs=seed[1]))

    @rule(
        target=begun,
        answer=answers,
        new=st.lists(st.sampled_from(NEW), max_size=2),
        how=st.sampled_from(["as it was", "reasoning", "stripped", "ids"]),
    )
    def continue_a_conversation(self, answer, new, how):
        history = [echo(message, how) for message in answer.conversation()]
        return self._ask(replace(self.requests[answer], messages=(*history, *new)))

    @rule(
        target=begun, answer=answers, at=st.integers(0, 6), instead=st.sampled_from(NEW + ANSWERS), rest=st.booleans()
    )
    def rewrite_a_message(self, answer, at, instead, rest):
        history = answer.conversation()
        at = min(at, len(history) - 1)
        kept = history[at + 1 :] if rest else ()
        return self._ask(replace(self.requests[answer], messages=(*history[:at], instead, *kept)))

    @precondition(lambda self: self.asked)
    @rule(target=begun, data=st.data())
    def repeat_a_request(self, data):
        return self._ask(data.draw(st.sampled_from(self.asked)))

    @rule(target=begun, answer=answers, seed=st.sampled_from(SEEDS))
    def move_a_history_to_other_tools(self, answer, seed):
        return self._ask(request(*answer.conversation(), user("on"), tools=seed[0], kwargs=seed[1]))

    def _ask(self, asked: ModelRequest) -> Sent:
        before = self._everything()
        pending = self.forest.begin(asked)
        assert self._everything() == before, "begin changed the forest"
        found, split = self.slow.begin(asked)
        assert pending.split == split
        assert (pending.observation or self._known(pending.parent)) is found
        self.asked.append(asked)
        return Sent(pending, [*pending.parent.lineage_ids(), *render(pending).ids])

    def _known(self, parent: State) -> State | None:
        return parent if parent in self.slow.exact else None

    # What comes of their requests

    @rule(
        target=answers,
        sent=begun,
        answer=st.sampled_from(ANSWERS),
        ids=st.lists(st.integers(0, 3), min_size=1, max_size=3),
        versions=st.integers(1, 3),
        finish=st.sampled_from(FinishReason),
    )
    def commit(self, sent, answer, ids, versions, finish):
        sampled = generation(ids, versions=range(min(versions, len(ids))), finish=finish)
        known = set(self.forest.states)
        response = self.forest.commit(sent.pending, render(sent.pending), sampled, answer, f"r{len(self.lineages)}")
        assert response not in known, "an answer was merged with another"
        assert len(self.forest.states) <= len(known) + 3
        self.slow.commit(sent, response)
        self.lineages[response] = [*sent.prompt, *ids]
        self.requests[response] = sent.pending.request
        self.sampled += len(ids)
        return response

    @rule(sent=begun)
    def abort_before_the_first_token(self, sent):
        """Nothing to commit; and the request can be begun again as if it had never been."""
        self._ask(sent.pending.request)

    @rule(answer=answers)
    def deliver(self, answer):
        self.forest.deliver(answer)
        assert answer.delivered == max(state.delivered for state in self.forest.states)

    # What must hold whatever happens

    @invariant()
    def every_state_is_sound(self):
        check_integrity(self.forest)

    @invariant()
    def equal_observations_are_one(self):
        for state in self.forest.states:
            ways = [(child.digest, child.tokens.tobytes()) for child in state.children if not child.is_response]
            assert len(set(ways)) == len(ways)

    @invariant()
    def a_lineage_is_what_the_engine_saw(self):
        for response, seen in self.lineages.items():
            assert response.lineage_ids().tolist() == seen
            assert response.length == len(seen)
            whole = response.conversation()
            assert [response.conversation(start) for start in range(len(whole) + 1)] == [
                whole[start:] for start in range(len(whole) + 1)
            ]

    @invariant()
    def no_sampled_token_is_lost(self):
        assert self.forest.sampled_tokens == self.sampled
        exported = [Context(None, state) for state in list(self.lineages)[::2]]
        for reason in REASONS:
            tokens = account(self.forest, exported, reason)
            assert tokens.balanced
            assert tokens.sampled == self.sampled
            assert (reason is None) or not (tokens.trained or tokens.repeats)

    @invariant()
    def a_sample_aligns_with_its_lineage(self):
        for response in list(self.lineages)[-2:]:
            row = sample(Context(None, response))
            answers = [state for state in response.lineage() if state.is_response]
            assert sum(row.loss_mask) == sum(len(state.tokens) for state in answers)
            assert row.tokens == response.lineage_ids()
            assert len(row.loss_mask) == len(row.logprobs) == row.response_length
            masked = [value for value, mask in zip(row.logprobs, row.loss_mask, strict=True) if mask]
            assert masked == [value for state in answers for value in state.logprobs]
            covered = [place for span in row.versions for place in range(span.start, span.end)]
            assert covered == [place for place, mask in enumerate(row.loss_mask) if mask]

    def _everything(self) -> Sequence[object]:
        return [(state, state.digest, state.delivered, list(state.children)) for state in self.forest.states]


TestAnyInterleaving = AnyInterleaving.TestCase
TestAnyInterleaving.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
