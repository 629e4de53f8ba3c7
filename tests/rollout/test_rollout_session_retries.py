"""Retries attach or are replayed; equal bodies otherwise sample again."""

import asyncio

from rollout_parts import HeardEngine, ask, new_session, refusal, run, says, user

from relaxforge.engine.scripted.rules import Rule
from relaxforge.forest.lineage import account


def test_a_lost_answer_is_replayed_and_a_read_one_is_not(renderer):
    async def main():
        engine = HeardEngine(renderer, says("a", "b"))
        session = new_session(renderer, engine)
        lost = await ask(session, user("q"), read=False)
        again = await ask(session, user("q"))
        assert (again.message, again.replayed, again.request_id != lost.request_id) == (lost.message, True, True)
        assert (session.records[1].retry_of, session.records[1].http_status) == (lost.request_id, 200)
        assert session.records[1].state is session.records[0].state
        fresh = await ask(session, user("q"))
        assert (fresh.message.text, fresh.replayed) == ("b", False)
        assert [record.delivered for record in session.records] == [False, True, True]
        assert account(session.forest, [], None).undelivered == 0

    run(main())


def test_a_marked_retry_attaches_to_the_generation_in_flight(renderer):
    async def main():
        engine = HeardEngine(renderer, says("a", "b"))
        await engine.pause()
        session = new_session(renderer, engine)
        first = asyncio.create_task(ask(session, user("q")))
        await engine.busy.wait()
        second = asyncio.create_task(ask(session, user("q"), retry=1))
        await asyncio.sleep(0)
        await engine.resume()
        one, two = await asyncio.gather(first, second)
        assert (one.message, len(engine.asked)) == (two.message, 1)
        assert len(list(session.forest.responses)) == 1

    run(main())


def test_a_retry_that_is_given_up_takes_nothing_from_the_request_it_attached_to(renderer):
    async def main():
        engine = HeardEngine(renderer, says("a"))
        await engine.pause()
        session = new_session(renderer, engine)
        first = asyncio.create_task(ask(session, user("q")))
        await engine.busy.wait()
        second = asyncio.create_task(ask(session, user("q"), retry=1))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.wait([second])
        await engine.resume()
        assert (await first).message.text == "a"

    run(main())


def test_repeated_sampling_in_the_middle_of_a_history_renders_nothing_anew(renderer):
    async def main():
        engine = HeardEngine(renderer, says("a", "b", "c"))
        session = new_session(renderer, engine)
        first = await ask(session, user("q"))
        for _ in range(2):
            await ask(session, user("q"), first.message, user("r"))
        assert engine.asked[1].prompt_ids == engine.asked[2].prompt_ids
        assert [record.new_messages for record in session.records] == [1, 1, 0]

    run(main())


def test_equal_bodies_are_repeated_sampling_and_share_one_observation(renderer):
    async def main():
        engine = HeardEngine(renderer, says("a", "b", "b", "c"))
        session = new_session(renderer, engine)
        turns = await asyncio.gather(*(ask(session, user("q")) for _ in range(4)))
        assert [turn.message.text for turn in turns] == ["a", "b", "b", "c"]
        states = list(session.forest.responses)
        assert (len(states), len({state.parent for state in states}), len(session.forest.roots)) == (4, 1, 1)

    run(main())


def test_a_failed_request_is_tried_again_not_replayed(renderer):
    async def main():
        engine = HeardEngine(renderer, Rule("down", match=None, error="out of memory"))
        session = new_session(renderer, engine)
        await refusal(session, user("q"))
        await refusal(session, user("q"), retry=1)
        assert len(engine.asked) == 2

    run(main())
