"""An organization has a few exports under way at a time; others do not notice."""

import pytest

from relaxforge.export.errors import BusyError
from relaxforge.export.gate import Gate


def test_a_third_export_of_one_organization_is_told_when_to_try_again():
    gate = Gate(most=2)
    with gate.enter("a"), gate.enter("a"), gate.enter("b"):
        with pytest.raises(BusyError, match="2 exports are under way already; try again in 2 seconds") as caught:
            gate.enter("a").__enter__()
        assert caught.value.retry_after_s == 2
    with gate.enter("a"), gate.enter("a"):
        pass


def test_an_export_that_fails_makes_room_again():
    gate = Gate(most=1)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError), gate.enter("a"):
            raise ZeroDivisionError
