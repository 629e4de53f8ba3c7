"""The script: every field, every mistake, and what the engine does not pay for."""

import asyncio
import json
import time

import pytest
from engine_parts import END_OF_TURN, TextTokenizer

from relaxforge.core.errors import ConfigError, EngineError
from relaxforge.core.turns import FinishReason, GenerateRequest, Sampling, token_ids
from relaxforge.engine.scripted.engine import ScriptedEngine
from relaxforge.engine.scripted.rules import BUILT_IN, read_rules


@pytest.fixture
def tokenizer(tiny_folder):
    return TextTokenizer(tiny_folder)


@pytest.fixture
def script(tmp_path, tokenizer):
    """An engine that follows the given rules."""

    def build(*rules, **options):
        path = tmp_path / "replies.jsonl"
        path.write_text("".join((rule if isinstance(rule, str) else json.dumps(rule)) + "\n" for rule in rules))
        return ScriptedEngine(read_rules(str(path)), tokenizer, END_OF_TURN, vocab_size=512, **options)

    return build


def ask(engine, ids=(5, 6, 7), *, session="s", delta_start=0, max_tokens=100, **sampling):
    request = GenerateRequest(session, "r", token_ids(ids), delta_start, Sampling(max_tokens, **sampling))
    return asyncio.run(engine.generate(request))


def texts(engine, tokenizer, count, **kwargs):
    return [tokenizer.decode(ask(engine, **kwargs).ids).removesuffix("<|im_end|>") for _ in range(count)]


def test_replies_come_in_order_and_the_last_one_repeats(script, tokenizer):
    assert texts(script({"replies": ["a", "b"]}), tokenizer, 4) == ["a", "b", "b", "b"]


def test_cycle_starts_again(script, tokenizer):
    assert texts(script({"replies": ["a", "b"], "cycle": True}), tokenizer, 4) == ["a", "b", "a", "b"]


def test_each_session_counts_for_itself(script, tokenizer):
    engine = script({"replies": ["a", "b"]})
    assert texts(engine, tokenizer, 2, session="one") == ["a", "b"]
    assert texts(engine, tokenizer, 2, session="two") == ["a", "b"]


def test_spread_starts_each_session_at_a_reply_of_its_own(script, tokenizer):
    engine = script({"replies": ["a", "b", "c"], "cycle": True, "spread": True})
    first = {session: texts(engine, tokenizer, 1, session=session)[0] for session in map(str, range(20))}
    assert set(first.values()) == {"a", "b", "c"}
    assert first == {session: texts(script({"replies": ["a", "b", "c"], "cycle": True, "spread": True}), tokenizer, 1,
                                    session=session)[0] for session in first}  # fmt: skip


def test_the_first_rule_that_matches_answers_and_only_it_counts(script, tokenizer):
    engine = script({"match": "sum|plus", "replies": ["42", "43"]}, {"replies": ["what?"]})
    plus, other = tokenizer.encode("2 plus 2"), tokenizer.encode("hello")
    assert texts(engine, tokenizer, 1, ids=plus) == ["42"]
    assert texts(engine, tokenizer, 2, ids=other) == ["what?", "what?"]
    assert texts(engine, tokenizer, 1, ids=plus) == ["43"]


def test_only_what_the_turn_added_is_matched(script, tokenizer):
    engine = script({"match": "plus", "replies": ["old"]}, {"replies": ["new"]})
    old = tokenizer.encode("2 plus 2")
    assert texts(engine, tokenizer, 1, ids=[*old, *tokenizer.encode("hello")], delta_start=len(old)) == ["new"]


def test_a_request_that_no_rule_matches_is_an_error_that_quotes_it(script, tokenizer):
    with pytest.raises(EngineError, match="hello there"):
        ask(script({"match": "plus", "replies": ["x"]}), tokenizer.encode("hello there"))


def test_a_text_ends_with_the_end_of_turn_token_as_sampled(script, tokenizer):
    generation = ask(script({"replies": ["Yes."]}))
    assert list(generation.ids) == [*tokenizer.encode("Yes."), END_OF_TURN]
    assert generation.finish is FinishReason.STOP


def test_an_empty_text_is_the_end_of_turn_token_alone(script):
    assert list(ask(script({"replies": [""]})).ids) == [END_OF_TURN]


def test_a_text_of_finish_reason_length_has_no_end(script, tokenizer):
    generation = ask(script({"replies": ["Yes."], "finish_reason": "length"}))
    assert list(generation.ids) == tokenizer.encode("Yes.")
    assert generation.finish is FinishReason.LENGTH


def test_tokens_are_taken_literally(script):
    generation = ask(script({"tokens": [[7, 2, 300], [9]]}))
    assert (list(generation.ids), generation.finish) == ([7, 2, 300], FinishReason.STOP)


def test_logprobs_are_a_function_of_seed_and_id(script):
    rule = {"tokens": [[7, 8, 7]]}
    first, again, other = ask(script(rule)), ask(script(rule)), ask(script(rule, seed=1))
    assert first.logprobs == again.logprobs != other.logprobs
    assert first.logprobs[0] == first.logprobs[2] != first.logprobs[1]


def test_an_error_is_raised_as_the_engines(script):
    with pytest.raises(EngineError, match=r"out of memory .*replies\.jsonl:1"):
        ask(script({"error": "out of memory"}))


def test_delay_and_pace_take_the_time_they_say(script):
    engine = script({"tokens": [[7] * 5], "delay_s": 0.05, "tokens_per_s": 100})
    began = time.monotonic()
    assert len(ask(engine).ids) == 5
    assert 0.1 <= time.monotonic() - began < 5


def test_requests_answer_in_the_order_in_which_they_arrive(script, tokenizer):
    engine = script({"replies": ["a", "b", "c"]})

    async def scenario():
        requests = [GenerateRequest("s", f"r{number}", token_ids([5]), 0, Sampling(9)) for number in range(3)]
        return await asyncio.gather(*(engine.generate(request) for request in requests))

    answers = [tokenizer.decode(generation.ids[:-1]) for generation in asyncio.run(scenario())]
    assert answers == ["a", "b", "c"]


def test_without_a_script_the_built_in_one_answers(tokenizer):
    assert read_rules(None) == BUILT_IN
    engine = ScriptedEngine(BUILT_IN, tokenizer, END_OF_TURN, vocab_size=512)
    assert set(texts(engine, tokenizer, 4)) == set(BUILT_IN[0].replies)


def test_blank_lines_are_skipped_and_counted(script):
    with pytest.raises(ConfigError, match=r"replies\.jsonl:3"):
        script({"replies": ["a"]}, "", "nonsense")


@pytest.mark.parametrize(
    ("rule", "named"),
    [
        ("[1]", "object"),
        ({"reply": ["a"]}, "did you mean replies"),
        ({"zzz": 1}, "a rule has match"),
        ({}, "one of replies, tokens and error"),
        ({"replies": ["a"], "tokens": [[1]]}, "one of replies, tokens and error"),
        ({"replies": []}, "replies is empty"),
        ({"replies": ["a", 1]}, "list of texts"),
        ({"replies": "a"}, "replies must be list"),
        ({"tokens": [1, 2]}, "lists of token ids"),
        ({"tokens": [[]]}, "lists of token ids"),
        ({"tokens": [[True]]}, "lists of token ids"),
        ({"tokens": [[512]]}, "token id 512 is outside"),
        ({"tokens": [[2**40]]}, "outside the vocabulary"),
        ({"replies": ["a"], "match": "("}, "regular expression"),
        ({"replies": ["a"], "finish_reason": "abort"}, "stop or length"),
        ({"replies": ["a"], "delay_s": -1}, "delay_s must be >= 0"),
        ({"replies": ["a"], "tokens_per_s": 0}, "tokens_per_s > 0"),
        ({"replies": ["a"], "delay_s": True}, "delay_s must be int or float"),
        ({"replies": ["a"], "cycle": 1}, "cycle must be bool"),
        ({"replies": [""], "finish_reason": "length"}, "no token"),
    ],
    ids=str,
)  # fmt: skip
def test_a_mistake_in_the_script_names_line_and_field(script, rule, named):
    with pytest.raises(ConfigError, match=named) as raised:
        script(rule)
    assert "replies.jsonl:1" in str(raised.value)


def test_a_script_that_is_missing_or_empty_is_a_mistake_too(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        read_rules(str(tmp_path / "none.jsonl"))
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(ConfigError, match="no rule"):
        read_rules(str(tmp_path / "empty.jsonl"))


def test_the_prompt_is_not_paid_for(script):
    """A prompt a thousand times as long costs the same: only the delta is looked at."""
    engine = script({"match": "never", "replies": ["x"]}, {"replies": ["a"]})

    async def cost(prompt):
        request = GenerateRequest("s", "r", prompt, len(prompt) - 10, Sampling(9))
        took = []
        for _ in range(200):
            began = time.perf_counter()
            await engine.generate(request)
            took.append(time.perf_counter() - began)
        return min(took)

    short, long = token_ids([5]) * 1_000, token_ids([5]) * 1_000_000
    assert asyncio.run(cost(long)) < 5 * asyncio.run(cost(short))
