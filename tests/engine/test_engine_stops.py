from hypothesis import given
from hypothesis import strategies as st

from relaxforge.engine.stops import StopWatcher


def bytes_of(ids):
    """A tokenizer of single bytes: every character outside ASCII is several tokens."""
    return bytes(ids).decode(errors="replace")


class Counting:
    """Decodes like ``bytes_of`` and remembers the longest list it was given."""

    longest = 0

    def __call__(self, ids):
        self.longest = max(self.longest, len(ids))
        return bytes_of(ids)


@given(st.text(max_size=40), st.lists(st.text(min_size=1, max_size=4), min_size=1, max_size=3))
def test_a_stop_string_is_seen_with_its_last_byte_and_not_before(text, stops):
    data = text.encode()
    watcher, seen = StopWatcher(bytes_of, tuple(stops)), b""
    for byte in data:
        seen += bytes([byte])
        found = watcher.feed(byte)
        whole = seen.decode(errors="ignore")
        assert (found is not None) == any(stop in whole for stop in stops)
        if found is not None:
            assert found in whole
            return


def test_the_earliest_of_several_wins():
    watcher = StopWatcher(lambda ids: "".join(["ab", "cd"][token] for token in ids), ("d", "bc"))
    assert watcher.feed(0) is None
    assert watcher.feed(1) == "bc"


def test_bytes_that_never_become_a_character_do_not_hide_what_follows():
    watcher = StopWatcher(bytes_of, ("END",))
    found = [watcher.feed(byte) for byte in b"\xff" * 20 + b"END"]
    assert found[-1] == "END"


def test_a_token_costs_the_same_however_long_the_answer_is():
    decode = Counting()
    watcher = StopWatcher(decode, ("never",))
    for byte in "lang ä漢 🎉".encode() * 50:
        watcher.feed(byte)
    assert decode.longest <= 16


def test_a_space_that_a_tokenizer_drops_at_the_start_is_not_lost():
    words = ["Hello", " world", "!"]

    def decode(ids):
        return "".join(words[token] for token in ids).removeprefix(" ")

    watcher = StopWatcher(decode, ("o w",))
    assert [watcher.feed(0), watcher.feed(1)] == [None, "o w"]
