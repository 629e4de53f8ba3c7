"""ATIF documents: valid for other people's readers and for stricter rules than theirs."""

import json
import math

import agentpile
import atif
import pytest
from export_parts import Forest, call, dump, result, said, shop, stored, user

from relaxforge.export.atif import atif_document, atif_line
from relaxforge.export.evidence import evidence_of
from relaxforge.export.log import Log

TOOLS = [[{"type": "function", "function": {"name": "mcp", "parameters": {"type": "object", "properties": {}}}}]]


def shop_line(**changes):
    forest, last = shop()
    forest.states[0]["tools"] = 0
    return dump(forest, exported=last, tools=TOOLS, **changes)


def side_line():
    """A main conversation, a fork of it, and one on the side."""
    forest = Forest()
    first = forest.turn(None, [user("go")], said(None, call("a", "f", "{}")))
    last = forest.turn(first, [result("a", "x")], said("main"))
    forest.turn(first, [result("a", "y")], said("fork"))
    forest.turn(None, [user("title?")], said("a title"))
    return dump(forest, exported=last)


def odd_line():
    """Everything that a careless agent does: equal ids, arguments that are no object, an answer it wrote itself."""
    forest = Forest()
    calls = [call("a", "f", "not json"), call("a", "g", "[1]"), call("", "h", "{}")]
    first = forest.turn(None, [user("go")], said(None, *calls, reasoning="hm"))
    results = [result("a", "1"), result("a", "2"), result("zzz", "3"), result("more", "4")]
    forest.turn(first, [*results, said("I said this myself"), user([{"type": "text", "text": "ok"}])], said("end"))
    return dump(forest, steps=[{"tool": "browser", "command": "open", "observation": "page"}])


def check(document):
    """Rules that the public validators do not enforce."""
    assert document["schema_version"] == "ATIF-v1.7"
    assert document["steps"]
    assert [step["step_id"] for step in document["steps"]] == list(range(1, len(document["steps"]) + 1))
    for step in document["steps"]:
        ids = [one["tool_call_id"] for one in step.get("tool_calls", ())]
        assert len(set(ids)) == len(ids)
        sources = [one["source_call_id"] for one in step.get("observation", {"results": []})["results"]]
        assert len(set(sources)) == len(sources)
        assert set(sources) <= set(ids)
        metrics = step.get("metrics", {})
        if "logprobs" in metrics:
            assert len(metrics["logprobs"]) == len(metrics["completion_token_ids"]) == metrics["completion_tokens"]
            assert len(metrics["prompt_token_ids"]) == metrics["prompt_tokens"]
    text = json.dumps(document, ensure_ascii=False, allow_nan=False)
    assert "\\u0000" not in text
    text.encode()
    names = [one["trajectory_id"] for one in (document, *document.get("subagent_trajectories", ()))]
    assert len(set(names)) == len(names)
    for other in document.get("subagent_trajectories", ()):
        check(other)


@pytest.mark.parametrize("tokens", [False, True])
@pytest.mark.parametrize("line", [shop_line(), side_line(), odd_line()], ids=["shop", "side", "odd"])
def test_documents_are_valid_for_atif_agentpile_and_stricter_rules(line, tokens, tmp_path):
    data = atif_line(stored(line), tokens=tokens)
    document = json.loads(data)
    check(document)
    atif.Trajectory.model_validate(document, strict=True)
    (tmp_path / "one.json").write_bytes(data)
    runs = list(agentpile.load(str(tmp_path / "one.json")))
    assert [agentpile.validate(run) for run in runs] == [[] for _ in runs]
    assert agentpile.to_chat(runs)


def test_the_task_comes_first_and_calls_carry_their_results():
    document = atif_document(stored(shop_line(), model_name="tiny", stages={"stage_inventory": 1}))
    assert [(step["source"], step["message"]) for step in document["steps"]] == [
        ("system", "You run errands."), ("user", "Buy two blue mugs."), ("agent", "Let me look."), ("agent", ""),
        ("agent", "Done."),
    ]  # fmt: skip
    order = document["steps"][3]
    assert order["tool_calls"] == [
        {"tool_call_id": "c2", "function_name": "order", "arguments": {"item": "mug", "n": 2}}
    ]
    assert order["observation"]["results"] == [{"source_call_id": "c2", "content": "placed ORD-8841"}]
    agent = {"name": "shopper", "version": "1.2", "model_name": "tiny", "tool_definitions": TOOLS[0]}
    assert document["agent"] == agent
    assert document["final_metrics"] == {
        "total_prompt_tokens": 3 + 8 + 13, "total_completion_tokens": 6, "total_steps": 5,
    }  # fmt: skip
    assert document["extra"]["reward"] == 0.15
    assert document["extra"]["stages"] == {"stage_inventory": 1}
    assert "subagent_trajectories" not in document


def test_tokens_are_left_out_unless_asked_for():
    rollout = stored(shop_line())
    assert "token_ids" not in json.dumps(atif_document(rollout))
    steps = atif_document(rollout, tokens=True)["steps"]
    assert steps[3]["metrics"] == {
        "prompt_tokens": 8, "completion_tokens": 2, "prompt_token_ids": [1, 2, 3, 7, 8, 1, 2, 3],
        "completion_token_ids": [7, 8], "logprobs": [-0.5, -0.25],
    }  # fmt: skip
    assert all(math.isfinite(value) for value in steps[3]["metrics"]["logprobs"])


def test_no_token_is_shown_after_one_that_spelled_a_secret():
    kept = evidence_of(shop_line(), Log.of(""), secrets=["placed ORD-8841"])
    steps = atif_document(stored(session=kept.session), tokens=True)["steps"]
    assert ["completion_token_ids" in step.get("metrics", {}) for step in steps] == [False, False, True, True, False]
    assert steps[3]["observation"]["results"][0]["content"] == "[redacted]"


def test_forks_and_side_conversations_are_embedded_and_what_they_share_is_marked_as_copied():
    document = atif_document(stored(side_line()))
    assert document["steps"][-1]["message"] == "main"
    fork, side = document["subagent_trajectories"]
    assert [step.get("is_copied_context", False) for step in fork["steps"]] == [True, True, False]
    assert fork["steps"][1]["observation"]["results"][0]["content"] == "y"
    assert [step["message"] for step in side["steps"]] == ["title?", "a title"]


def test_only_answers_that_a_model_gave_count_as_its_own():
    steps = atif_document(stored(odd_line()))["steps"]
    assert [step.get("llm_call_count") for step in steps] == [None, 1, 0, None, 1, None]
    assert steps[1]["tool_calls"][0]["arguments"] == {"command": "not json"}
    assert steps[-1]["tool_calls"][0]["arguments"] == {"command": "open"}
    assert steps[-1]["extra"] == {"worker_step": 2 + 3}


def test_a_rollout_whose_session_is_gone_is_told_by_its_steps():
    document = atif_document(stored(shop_line(), session=None))
    check(document)
    atif.Trajectory.model_validate(document, strict=True)
    assert [step["source"] for step in document["steps"]] == ["user", "agent", "agent", "agent"]
    assert document["steps"][1]["tool_calls"][0]["arguments"] == {"command": "initialize"}
    assert document["steps"][3]["message"] == "Done."
    assert document["extra"]["conversationKept"] is False


def test_a_rollout_without_steps_is_no_document():
    assert atif_line(stored()) is None
    assert atif_line(stored(dump())) is None


def test_usage_of_a_hosted_model_is_kept_per_step():
    forest = Forest()
    forest.turn(None, [user("go")], said("ok"))
    for state in forest.states:
        state["tokens"] = []
    usage = {"prompt_tokens": 100, "completion_tokens": 20, "cached_tokens": None}
    document = atif_document(stored(dump(forest, requests=[{"state": "s2", "usage": usage}])), tokens=True)
    assert document["steps"][1]["metrics"] == {"prompt_tokens": 100, "completion_tokens": 20}
