"""Which answer a request gets: rules made ready for one tokenizer."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass
from zlib import crc32

from relaxforge.core.errors import ConfigError, EngineError
from relaxforge.core.ports import Tokenizer
from relaxforge.core.turns import FinishReason, GenerateRequest, Sampling, log_probs, token_ids
from relaxforge.engine.scripted.rules import Reply, Rule
from relaxforge.engine.stops import StopWatcher


@dataclass(frozen=True, slots=True)
class Answer:
    """A reply as tokens, made once: ids, their logprobs, and why it ends."""

    ids: array[int]
    logprobs: array[float]
    finish: FinishReason
    stop_match: str | None = None


class Script:
    """Rules with their replies encoded, and a count of how often each Session has hit each of them.

    Errors: ``ConfigError`` for a reply that has no token or one outside the vocabulary.
    """

    def __init__(
        self, rules: tuple[Rule, ...], tokenizer: Tokenizer, end_of_turn_id: int, vocab_size: int, seed: int
    ) -> None:
        self._rules = rules
        self._tokenizer = tokenizer
        self._end_of_turn_id = end_of_turn_id
        self._vocab_size = vocab_size
        self._seed = seed
        self._answers = [[self._answer(rule, reply) for reply in rule.replies] for rule in rules]
        self._hits: Counter[tuple[str, int]] = Counter()

    def choose(self, request: GenerateRequest, delta: array[int]) -> tuple[Rule, Answer | None]:
        """The first rule that matches, and its next reply for this Session (``None`` where the rule is an error).

        Errors: ``EngineError`` when no rule matches.
        """
        text: str | None = None
        for number, rule in enumerate(self._rules):
            if rule.match is not None:
                text = self._tokenizer.decode(delta) if text is None else text
                if not rule.match.search(text):
                    continue
            answers = self._answers[number]
            if not answers:
                return rule, None
            hit = self._hits[request.session_id, number]
            self._hits[request.session_id, number] = hit + 1
            hit += crc32(f"{self._seed} {request.session_id}".encode()) if rule.spread else 0
            return rule, answers[hit % len(answers) if rule.cycle else min(hit, len(answers) - 1)]
        raise EngineError(
            f"request {request.request_id} of session {request.session_id}: no rule matches {text!r:.200}"
        )

    def cut(self, answer: Answer, limit: int, sampling: Sampling) -> Answer:
        """The part of ``answer`` that an engine would have sampled under ``limit`` tokens and these stops."""
        watcher = StopWatcher(self._tokenizer.decode, sampling.stop) if sampling.stop else None
        stops = sampling.stop_token_ids
        if watcher or stops:
            for end, token in enumerate(answer.ids[:limit], 1):
                match = watcher.feed(token) if watcher else None
                if match or token in stops:
                    return Answer(answer.ids[:end], answer.logprobs[:end], FinishReason.STOP, match)
        if len(answer.ids) <= limit:
            return answer
        return Answer(answer.ids[:limit], answer.logprobs[:limit], FinishReason.LENGTH)

    def _answer(self, rule: Rule, reply: Reply) -> Answer:
        end = [self._end_of_turn_id] if rule.finish_reason == "stop" else []
        ids = [*self._tokenizer.encode(reply), *end] if isinstance(reply, str) else list(reply)
        if bad := [token for token in ids if not 0 <= token < self._vocab_size]:
            raise ConfigError(
                f"{rule.where}: token id {bad[0]} is outside the vocabulary (0 to {self._vocab_size - 1})"
            )
        if not ids:
            raise ConfigError(f"{rule.where}: an empty reply with finish_reason length has no token at all")
        logprobs = log_probs(self._logprob(token) for token in ids)
        return Answer(token_ids(ids), logprobs, FinishReason(rule.finish_reason))

    def _logprob(self, token: int) -> float:
        """Between -2.05 and 0, a function of seed and id only."""
        return -(crc32(f"{self._seed} {token}".encode()) % 2048) / 1000
