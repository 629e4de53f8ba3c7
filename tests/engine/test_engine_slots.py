"""The slot table against a model of the cache that knows which tokens were really computed where."""

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from relaxforge.core.turns import token_ids
from relaxforge.engine.local.slots import WORTH_WAITING, Placement, SlotTable

prompts = st.lists(st.integers(0, 1), min_size=1, max_size=8)


class SlotsMachine(RuleBasedStateMachine):
    """Requests come, are computed in pieces, end, and see new weights, in any order."""

    @initialize(count=st.integers(1, 4))
    def begin(self, count):
        self.table = SlotTable(count)
        self.held = [[] for _ in range(count)]  # the tokens whose keys and values are really in each slot
        self.busy = {}  # slot -> the request's ids

    @rule(prompt=prompts)
    def place(self, prompt):
        ids = token_ids(prompt)
        placement = self.table.place(ids)
        if placement is None:
            return
        assert placement.slot not in self.busy
        assert placement.reused < len(prompt)
        source = placement.slot if placement.copy_from is None else placement.copy_from
        assert self.held[source][: placement.reused] == prompt[: placement.reused], "stale or foreign tokens reused"
        self.held[placement.slot] = prompt[: placement.reused]
        self.busy[placement.slot] = ids

    @precondition(lambda self: self.busy)
    @rule(data=st.data())
    def compute(self, data):
        slot = data.draw(st.sampled_from(sorted(self.busy)))
        ids, have = self.busy[slot], len(self.held[slot])
        upto = data.draw(st.integers(have, len(ids)))
        self.held[slot] = list(ids[:upto])
        self.table.computed(slot, upto)
        if upto == len(ids):
            ids.append(data.draw(st.integers(0, 1)))

    @precondition(lambda self: self.busy)
    @rule(data=st.data())
    def end(self, data):
        slot = data.draw(st.sampled_from(sorted(self.busy)))
        self.table.release(slot)
        del self.busy[slot]

    @rule()
    def new_weights(self):
        self.table.forget()
        self.held = [[] for _ in self.held]

    @invariant()
    def counts(self):
        if hasattr(self, "table"):
            assert self.table.tokens <= sum(len(tokens) for tokens in self.held)
            assert self.table.has_free == (len(self.busy) < len(self.held))


TestSlots = SlotsMachine.TestCase
TestSlots.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def place(table, tokens):
    return table.place(token_ids(tokens))


def finish(table, tokens):
    """A request that was computed to its end."""
    placement = place(table, tokens)
    table.computed(placement.slot, len(tokens))
    table.release(placement.slot)
    return placement.slot


def test_a_turn_goes_on_in_the_slot_of_the_one_before():
    table = SlotTable(3)
    slot = finish(table, [1, 2, 3])
    assert place(table, [1, 2, 3, 4, 5]) == Placement(slot, 3, None)


def test_a_slot_that_is_only_shared_in_part_is_copied_not_cut():
    table = SlotTable(3)
    slot = finish(table, [1, 2, 3, 4])
    other = place(table, [1, 2, 9])
    assert (other.reused, other.copy_from) == (2, slot)
    table.release(other.slot)
    assert place(table, [1, 2, 3, 4, 5]) == Placement(slot, 4, None)


def test_a_group_waits_for_its_prompt_to_be_computed_once():
    table, prompt = SlotTable(4), list(range(WORTH_WAITING + 5))
    first = place(table, prompt)
    assert place(table, prompt) is None
    table.computed(first.slot, len(prompt))
    second = place(table, prompt)
    assert (second.reused, second.copy_from) == (len(prompt) - 1, first.slot)


def test_the_slot_that_was_idle_longest_is_given_away():
    table = SlotTable(2)
    old, new = finish(table, [1, 1]), finish(table, [2, 2])
    assert place(table, [3, 3]).slot == old != new


@given(prompts)
def test_nothing_survives_new_weights(prompt):
    table = SlotTable(2)
    finish(table, prompt)
    table.forget()
    assert place(table, [*prompt, 1]).reused == 0
