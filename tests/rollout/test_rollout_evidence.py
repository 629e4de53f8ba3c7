"""From the conversations of a real Session to the files that people take away."""

import json
from datetime import UTC, datetime

import atif
from rollout_parts import SEARCH, HeardEngine, ask, new_session, run, says, user

from relaxforge.core.evidence import StoredRollout, Verdict
from relaxforge.core.messages import Message
from relaxforge.core.sessions import Failure, FailureCategory
from relaxforge.export.atif import atif_document
from relaxforge.export.evidence import evidence_of
from relaxforge.export.log import Log
from relaxforge.export.trainers import sft_line
from relaxforge.export.trajectory import steps_in
from relaxforge.forest.select import Context
from relaxforge.rollout.outcome import Outcome
from relaxforge.rollout.record import dump_line

CALL = '<think>hm</think>\n\nI look.\n<tool_call>\n{"name": "search", "arguments": {"command": "mugs"}}\n</tool_call>'


def searched(renderer, **fate):
    """The line of a Session that searched, and answered; ``fate`` is that of its outcome."""

    async def main():
        session = new_session(renderer, HeardEngine(renderer, says(CALL, "Found one.")))
        first = await ask(session, user("Find a mug."), tools=(SEARCH,))
        found = Message("tool", "a mug, secret-number-1", tool_call_id=first.message.tool_calls[0].id)
        await ask(session, user("Find a mug."), first.message, found, tools=(SEARCH,))
        last = list(session.forest.responses)[-1]
        outcome = Outcome(session, contexts=() if fate.get("failure") else (Context("", last),), **fate)
        return dump_line(outcome, run_id="run", incarnation=0, rollout_id=0)

    return run(main())


def stored(kept):
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return StoredRollout(
        "rollout", "trial", 0, kept.verdict.reward, at, trajectory=kept.trajectory, session=kept.session,
        trajectory_status="present", agent_name="agent", agent_version="1",
    )  # fmt: skip


def test_a_session_becomes_steps_a_document_and_a_training_row(renderer):
    kept = evidence_of(searched(renderer, reward=0.5, reward_detail=0.5), Log.of("log"))
    assert [(step.tool, step.command, step.observation) for step in steps_in(kept.trajectory)] == [
        ("search", "mugs", "a mug, secret-number-1"), ("message", "", "Found one."),
    ]  # fmt: skip
    assert (kept.verdict.reward, kept.verdict.raw_reward, kept.turns) == (0.5, "0.5", 2)
    document = atif_document(stored(kept), tokens=True)
    atif.Trajectory.model_validate(document, strict=True)
    assert [step["source"] for step in document["steps"]] == ["user", "agent", "agent"]
    assert document["steps"][1]["reasoning_content"] == "hm"
    states = json.loads(kept.session)["forest"]
    metrics = [step["metrics"] for step in document["steps"][1:]]
    assert [step["completion_token_ids"] for step in metrics] == [states[1]["tokens"], states[3]["tokens"]]
    assert metrics[1]["prompt_token_ids"] == [token for state in states[:3] for token in state["tokens"]]
    assert [step["prompt_tokens"] for step in metrics] == [len(step["prompt_token_ids"]) for step in metrics]
    (tool,) = document["agent"]["tool_definitions"]
    row = json.loads(sft_line(stored(kept)))
    assert json.loads(row["tools"]) == [tool]
    assert tool["function"] == {"name": "search", "description": "Finds pages", "parameters": {"type": "object"}}
    assert [message["role"] for message in row["messages"]] == ["user", "assistant", "tool", "assistant"]


def test_a_failed_session_keeps_its_steps_its_tokens_and_its_reason(renderer):
    failure = Failure(FailureCategory.AGENT_ERROR, "the agent exited with 1", "Traceback")
    kept = evidence_of(searched(renderer, failure=failure), Log.of("log"))
    assert (kept.status, kept.step_count, kept.failure_message) == ("failed", 2, "the agent exited with 1")
    assert kept.verdict == Verdict(None, "not_scored", failure_category="agent_error")
    assert kept.completion_tokens == sum(
        len(state["tokens"]) for state in json.loads(kept.session)["forest"] if state["kind"] == "response"
    )


def test_a_secret_that_a_tool_showed_is_in_no_file_neither_as_text_nor_as_tokens(renderer):
    kept = evidence_of(searched(renderer, reward=1.0), Log.of("secret-number-1"), secrets=["secret-number-1"])
    stored_bytes = kept.trajectory + kept.session
    assert b"secret-number-1" not in stored_bytes
    for state in json.loads(kept.session)["forest"]:
        assert "secret-number" not in renderer.tokenizer.decode(state["tokens"])
    assert kept.sanitised["secret"] >= 2
