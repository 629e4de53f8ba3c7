"""What every engine keeps: one suite over all of them."""

import asyncio

import pytest
from engine_parts import CONTEXT, VOCABULARY

from relaxforge.core.errors import EngineError
from relaxforge.core.turns import FinishReason, WeightUpdate


def covered(generation):
    """The version spans lie end to end over the answer."""
    ends = [span.end for span in generation.versions]
    return [span.start for span in generation.versions] == [0, *ends[:-1]] and ends[-1] == len(generation.ids)


def test_every_token_has_a_logprob_and_a_weight_version(rig):
    generation = rig.answer()
    assert len(generation.ids) == len(generation.logprobs) > 0
    assert all(0 <= token < VOCABULARY for token in generation.ids)
    assert all(logprob <= 0 for logprob in generation.logprobs)
    assert covered(generation)


def test_chunks_add_up_to_the_answer(rig):
    chunks = []
    generation = rig.run(rig.engine.generate(rig.request(request_id="mine"), chunks.append))
    assert [token for chunk in chunks for token in chunk.ids] == list(generation.ids)
    assert [value for chunk in chunks for value in chunk.logprobs] == list(generation.logprobs)
    assert {chunk.request_id for chunk in chunks} == {"mine"}


def test_an_answer_ends_with_its_budget(rig):
    generation = rig.answer(max_tokens=3)
    assert (len(generation.ids), generation.finish) == (3, FinishReason.LENGTH)


def test_a_stop_token_ends_the_answer_and_is_part_of_it(rig):
    free = list(rig.answer(max_tokens=8).ids)
    stopped = rig.answer(max_tokens=8, stop_token_ids=(free[3],))
    assert list(stopped.ids) == free[: free.index(free[3]) + 1]
    assert stopped.finish is FinishReason.STOP


def test_a_stop_string_is_found_across_tokens_and_its_tokens_stay(rig):
    free = list(rig.answer(max_tokens=8).ids)
    texts = [rig.tokenizer.decode(free[:end]) for end in range(len(free) + 1)]
    seam = next(end for end in range(3, 7) if "\ufffd" not in texts[end - 1][-1:] + texts[end + 1][-1:])
    stop = texts[seam + 1][len(texts[seam - 1]) - 1 :]
    first = next(end for end, text in enumerate(texts) if stop in text)
    stopped = rig.answer(max_tokens=8, stop=("never in there", stop))
    assert list(stopped.ids) == free[:first]
    assert (stopped.finish, stopped.stop_match) == (FinishReason.STOP, stop)


def test_aborting_returns_what_was_sampled(rig):
    async def scenario():
        begun, chunks = asyncio.Event(), []

        def listen(chunk):
            chunks.append(chunk)
            begun.set()

        request = rig.request(rig.slow_prompt, max_tokens=400)
        answering = asyncio.create_task(rig.engine.generate(request, listen))
        await begun.wait()
        await rig.engine.abort(request.request_id)
        return await answering, chunks

    generation, chunks = rig.run(scenario())
    assert generation.finish is FinishReason.ABORT
    assert 0 < len(generation.ids) < 400
    assert [token for chunk in chunks for token in chunk.ids] == list(generation.ids)
    assert covered(generation)


def test_aborting_a_waiting_request_returns_nothing_sampled(rig):
    async def scenario():
        await rig.engine.pause()
        request = rig.request()
        answering = asyncio.create_task(rig.engine.generate(request))
        await rig.until_waiting()
        await rig.engine.abort(request.request_id)
        generation = await answering
        await rig.engine.resume()
        return generation

    generation = rig.run(scenario())
    assert (generation.finish, len(generation.ids), generation.versions) == (FinishReason.ABORT, 0, ())


def test_aborting_an_unknown_request_changes_nothing(rig):
    rig.run(rig.engine.abort("nobody"))
    assert rig.answer().ids


def test_a_pause_keeps_requests_and_samples_nothing(rig):
    unpaused = rig.answer(rig.slow_prompt, max_tokens=30)

    async def scenario():
        chunks, begun = [], asyncio.Event()

        def listen(chunk):
            chunks.append(chunk)
            begun.set()

        request = rig.request(rig.slow_prompt, max_tokens=30)
        answering = asyncio.create_task(rig.engine.generate(request, listen))
        await begun.wait()
        await rig.engine.pause()
        held = len(chunks)
        late = asyncio.create_task(rig.engine.generate(rig.request()))
        await rig.until_waiting()
        still = len(chunks)
        await rig.engine.resume()
        return held, still, await answering, await late

    held, still, generation, late = rig.run(scenario())
    assert held == still
    assert list(generation.ids) == list(unpaused.ids)
    assert late.ids


def test_new_weights_in_the_middle_of_an_answer_split_its_versions(rig, tiny_folder):
    async def scenario():
        begun = asyncio.Event()
        request = rig.request(rig.slow_prompt, max_tokens=200)
        answering = asyncio.create_task(rig.engine.generate(request, lambda _: begun.set()))
        await begun.wait()
        await rig.engine.load(WeightUpdate(41, tiny_folder))
        return await answering

    generation = rig.run(scenario())
    assert len(generation.versions) == 2
    assert generation.versions[-1].version == 41
    assert covered(generation)
    assert [span.version for span in rig.answer().versions] == [41]


def test_many_requests_at_once_are_all_answered(rig):
    async def scenario():
        requests = [rig.request(session=f"s{index}", seed=index, max_tokens=6) for index in range(64)]
        return await asyncio.gather(*(rig.engine.generate(request) for request in requests))

    together = rig.run(scenario())
    assert len(together) == 64
    assert all(0 < len(generation.ids) <= 6 for generation in together)
    if rig.engine.capabilities.per_request_seed:
        for seed in (0, 31, 63):
            assert list(rig.answer(seed=seed, max_tokens=6).ids) == list(together[seed].ids)


def test_capacity_returns_to_nothing(rig):
    rig.answer()
    capacity = rig.run(rig.engine.capacity())
    assert (capacity.running, capacity.waiting) == (0, 0)
    assert (capacity.cache_tokens_total is None) == (capacity.cache_tokens_used is None)


@pytest.mark.parametrize(
    "sampling", [{"temperature": -1.0}, {"temperature": float("nan")}, {"top_p": 0.0}, {"top_p": 2.0}]
)
def test_a_distribution_that_means_nothing_is_refused(rig, sampling):
    with pytest.raises(EngineError, match=str(next(iter(sampling.values())))):
        rig.answer(**sampling)


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "named"),
    [
        ([], 4, "no tokens"),
        ([1, VOCABULARY, 3], 4, str(VOCABULARY)),
        ([1, -1, 3], 4, "-1"),
        ([1, 2, 3], 0, "max_tokens"),
        ([5] * CONTEXT, 4, str(CONTEXT)),
    ],
    ids=["empty", "above the vocabulary", "negative", "no budget", "context full"],
)
def test_what_cannot_be_sampled_is_refused_by_name(rig, prompt, max_tokens, named):
    with pytest.raises(EngineError, match=named) as raised:
        rig.answer(prompt, max_tokens=max_tokens, request_id="refused", session="sess")
    assert "refused" in str(raised.value)
    assert "sess" in str(raised.value)
    assert rig.answer().ids, "the engine goes on"


def test_the_budget_is_clipped_to_the_context(rig):
    assert rig.engine.capabilities.max_context == CONTEXT
    generation = rig.answer([5] * (CONTEXT - 2), max_tokens=100, seed=3)
    assert (len(generation.ids), generation.finish) == (2, FinishReason.LENGTH)


def test_two_requests_of_one_id_are_not_mixed_up(rig):
    async def scenario():
        request = rig.request(rig.slow_prompt, max_tokens=20, request_id="twice")
        answering = asyncio.create_task(rig.engine.generate(request))
        await asyncio.sleep(0)
        with pytest.raises(EngineError, match="twice"):
            await rig.engine.generate(request)
        return await answering

    assert rig.run(scenario()).ids


def test_a_cancelled_caller_leaves_nothing_running(rig):
    async def scenario():
        begun = asyncio.Event()
        request = rig.request(rig.slow_prompt, max_tokens=400)
        answering = asyncio.create_task(rig.engine.generate(request, lambda _: begun.set()))
        await begun.wait()
        answering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await answering
        return await rig.engine.capacity()

    capacity = rig.run(scenario())
    assert (capacity.running, capacity.waiting) == (0, 0)
