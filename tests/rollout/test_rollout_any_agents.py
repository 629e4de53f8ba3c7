"""A step with any mixture of agents: nothing is lost, nobody is left behind."""

from agents_inside import Stage, crash, good, leave, silent
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rollout_parts import HeardEngine, ask, run, says, user

from relaxforge.rollout.scheduler import Plan


async def nonsense(session, launch):
    await ask(session, user("q"))
    leave(launch, '{"reward": ')


async def fork(session, launch):
    for text in "qr":
        await ask(session, user(text))
    leave(launch, {"reward": 1.0})


FATES = {"good": good, "crash": crash, "silent": silent, "nonsense": nonsense, "fork": fork}


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    fates=st.lists(st.sampled_from(sorted(FATES)), max_size=12),
    quota=st.integers(1, 3),
    surplus=st.integers(0, 2),
    capacity=st.integers(1, 3),
    size=st.integers(1, 3),
    mode=st.sampled_from(["train", "eval"]),
)
def test_whatever_agents_do_every_session_is_written_down_once(
    tmp_path_factory, renderer, fates, quota, surplus, capacity, size, mode
):
    async def main():
        todo = list(fates)

        async def agent(session, launch):
            return await FATES[todo.pop() if todo else "good"](session, launch)

        engine = HeardEngine(renderer, says("a", "", cycle=True))
        here = Stage(tmp_path_factory.mktemp("step"), renderer, engine, agent)
        surplus_here = surplus if mode == "train" else 0
        plan = Plan(quota, quota + surplus_here, capacity, replace_lost=mode == "train", max_failures=20)
        summary = await here.run(plan, size, mode=mode)
        here.check_end()
        assert len(here.lines) == len(here.taken) * size
        assert summary.tokens["sampled"] == sum(len(generation.ids) for generation in engine.sampled.values())
        assert sum(summary.statuses.values()) == len(here.lines)
        if mode == "train":
            assert len(here.transferred) == quota

    run(main())
