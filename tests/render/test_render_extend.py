"""Deltas of real templates: what is put behind sampled ids, and that nothing else ever changes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from render_dialogues import DIALOGUES, LOOKUP, TALK, ask, calls, lineage, play, result, says, system, upto, user

from relaxforge.core.errors import ConfigError, RenderError
from relaxforge.core.messages import ImagePart, Message, TextPart
from relaxforge.core.turns import token_ids
from relaxforge.render.config import RenderConfig

# Conversations whose past the template itself shows differently from how it was served: past reasoning goes, tools and
# system text move to the last user message, parallel calls become two messages.
REWRITTEN = (
    {("qwen3", "thinking"), ("llama3_1", "parallel"), ("llama3_2", "parallel")}
    | {("deepseek_r1_distill", name) for name in DIALOGUES}
    | {("mistral_v3", name) for name in ("briefed", "tools", "parallel")}
    | {("mistral_v7", name) for name in ("tools", "parallel")}
)


def text(renderer, ids):
    return renderer.tokenizer.decode(list(ids))


def finished(renderer, words="brown fox"):
    """A sampled answer with its end token."""
    return token_ids([*renderer.tokenizer.encode(words), renderer.stop_token_ids[0]])


@pytest.mark.parametrize("name", DIALOGUES)
def test_a_chain_of_turns_reads_like_a_full_render_unless_the_template_rewrites_the_past(renderer, family, name):
    played = list(play(renderer, DIALOGUES[name]))
    full = renderer.open(DIALOGUES[name])
    differences = [renderer.compare(*turn) for turn in played[1:]]
    if (family, name) in REWRITTEN:
        assert any("history_rewritten" in found or "answer_rewritten" in found for found in differences)
    else:
        assert text(renderer, lineage(played)) == text(renderer, full.ids)
        assert all("history_rewritten" not in found and "answer_rewritten" not in found for found in differences)
    assert all("window" not in found for found in differences)


def test_windows_of_other_families_give_the_full_delta_too(load, other_family):
    renderer = load(other_family)
    for name in ("talk", "foreign", "tools", "parallel"):
        for turn in list(play(renderer, DIALOGUES[name]))[1:]:
            assert "window" not in renderer.compare(*turn)


@pytest.mark.parametrize("name", DIALOGUES)
def test_every_prompt_ends_as_the_template_ends_it(renderer, name):
    for request, _, _, observation in play(renderer, DIALOGUES[name]):
        end = renderer.properties.generation_prompt
        if request.messages[-1].role == "tool" and not text(renderer, renderer.open(request).ids).endswith(end):
            end = ""  # DeepSeek-R1 goes on without a prompt behind tool results
        assert text(renderer, observation.ids).endswith(end)


@pytest.mark.parametrize("family", ["smollm2", "qwen2_5", "qwen3"])
@pytest.mark.parametrize("new", [user("jumps"), result("Paris", "rain")])
def test_the_separator_newline_behind_the_end_token_is_put_once(load, family, new):
    renderer = load(family)
    before = calls("Paris") if new.role == "tool" else says("brown fox")
    request = ask(user("hello"), before, new, tools=[LOOKUP])
    added = renderer.extend(request, 2, finished(renderer))
    assert text(renderer, added.ids).startswith("\n<|im_start|>")
    already = renderer.extend(request, 2, token_ids([*finished(renderer), *renderer.tokenizer.encode("\n")]))
    assert text(renderer, already.ids) == text(renderer, added.ids)[1:]


def test_a_finished_answer_is_not_ended_again(renderer):
    added = renderer.extend(upto(TALK, 3), 2, finished(renderer))
    assert renderer.stop_token_ids[0] not in added.ids[: len(renderer.end_of_turn)]
    assert added.normalised == {}


def test_a_truncated_answer_gets_its_missing_end_of_turn(renderer):
    cut = renderer.extend(upto(TALK, 3), 2, token_ids(renderer.tokenizer.encode("brown")))
    whole = renderer.extend(upto(TALK, 3), 2, finished(renderer))
    assert cut.ids[: len(renderer.end_of_turn)] == renderer.end_of_turn
    assert cut.ids[-len(whole.ids) :] == whole.ids
    assert cut.normalised == {"end_of_turn_added": 1}


def test_an_empty_answer_and_a_lone_end_token_can_be_continued(renderer):
    nothing = renderer.extend(upto(TALK, 3), 2, token_ids())
    lone = renderer.extend(upto(TALK, 3), 2, token_ids([renderer.stop_token_ids[0]]))
    assert nothing.ids[0] == renderer.end_of_turn[0]
    assert text(renderer, nothing.ids).endswith(text(renderer, lone.ids))


def test_an_answer_that_stops_at_another_end_token_still_gets_the_template_s_own(load):
    gemma = load("gemma")
    eos = gemma.tokenizer.special["<eos>"]
    added = gemma.extend(upto(TALK, 3), 2, token_ids([*gemma.tokenizer.encode("brown"), eos]))
    assert text(gemma, added.ids).startswith("<end_of_turn>\n<start_of_turn>user")


def test_no_new_message_gives_the_closing_and_the_generation_prompt(renderer):
    added = renderer.extend(upto(TALK, 2), 2, token_ids())
    expected = renderer.properties.closing + renderer.properties.generation_prompt
    assert list(added.ids) == renderer.tokenizer.encode(expected)


def test_an_answer_of_somebody_else_behind_ours_is_rendered(renderer):
    request = ask(user("hello"), says("world"), says("not mine"), user("the quick"))
    added = text(renderer, renderer.extend(request, 2, finished(renderer)).ids)
    assert added.index("not mine") < added.index("the quick")


def test_reasoning_that_a_client_dropped_changes_nothing(renderer):
    with_it = ask(user("hello"), says("world", "because"), user("jumps"))
    without = ask(user("hello"), says("world"), user("jumps"))
    served = finished(renderer, "<think>\nbecause\n</think>\n\nworld")
    assert renderer.extend(with_it, 2, served) == renderer.extend(without, 2, served)


@pytest.mark.parametrize("echo", ["world ", " world", "world\n\n", "", "something else"])
def test_what_the_client_echoes_never_reaches_the_lineage(renderer, echo):
    served = finished(renderer, "world ")
    told = renderer.extend(ask(user("hello"), says(echo), user("jumps")), 2, served)
    assert told == renderer.extend(ask(user("hello"), says("world "), user("jumps")), 2, served)


class Watched(tuple):
    """Messages that remember the lowest position that was read."""

    lowest = 10**9

    def __getitem__(self, key):
        start = key.indices(len(self))[0] if isinstance(key, slice) else key % len(self)
        self.lowest = min(self.lowest, start)
        return super().__getitem__(key)

    def __iter__(self):
        self.lowest = 0
        return super().__iter__()


@pytest.mark.parametrize("family", ["smollm2", "qwen2_5", "qwen3", "llama3_1", "gemma"])
def test_extending_does_not_look_at_the_history(load, family):
    messages = Watched([user("hello"), says("world")] * 20 + [user("jumps")])
    request = ask()
    object.__setattr__(request, "messages", messages)
    load(family).extend(request, 40, finished(load(family)))
    assert messages.lowest == 39


def test_template_arguments_of_the_request_win_over_the_run_s(load):
    off = load("qwen3", apply_chat_template_kwargs='{"enable_thinking": false}')
    quiet, loud = "<think>\n\n</think>\n\n", "<|im_start|>assistant\n"
    asked_again = ask(*TALK.messages, template_kwargs='{"enable_thinking":true}')
    for request, expected in ((TALK, quiet), (asked_again, loud)):
        assert text(off, off.open(request).ids).endswith(expected)
        assert text(off, off.extend(request, 2, finished(off)).ids).endswith(expected)


@pytest.mark.parametrize("name", ["continue_final_message", "tools", "messages"])
def test_template_arguments_cannot_replace_what_is_rendered(load, name):
    request = ask(*TALK.messages, template_kwargs=f'{{"{name}":true}}')
    with pytest.raises(RenderError, match=f"chat_template_kwargs may not set {name}"):
        load("qwen2_5").open(request)
    with pytest.raises(ConfigError, match=f"--apply-chat-template-kwargs may not set {name}"):
        RenderConfig(apply_chat_template_kwargs=request.template_kwargs)


def test_images_are_refused_with_words(load):
    picture = Message("user", (TextPart("look"), ImagePart("data:image/png;base64,", "0" * 64)))
    with pytest.raises(RenderError, match="text only"):
        load("qwen2_5").open(ask(picture))


def test_a_refusal_quotes_the_template(load):
    with pytest.raises(RenderError, match="Unexpected role 'tool' after role 'user'"):
        load("mistral_v7").open(ask(user("hello"), result("Paris", "rain")))


def test_opening_is_what_transformers_renders(load, model_folder, family):
    from transformers import PreTrainedTokenizerFast

    reference = PreTrainedTokenizerFast.from_pretrained(str(model_folder(family)))
    messages = [{"role": message.role, "content": message.text} for message in TALK.messages]
    ids = reference.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    assert list(load(family).open(TALK).ids) == ids


def test_compare_counts_ids_that_are_not_the_tokenizer_s_own(load):
    renderer = load("qwen2_5")
    own = renderer.tokenizer.encode("hello world")
    spelled = [renderer.tokenizer.encode(char)[0] for char in "hello world"]
    assert own != spelled
    served = token_ids([*spelled, renderer.stop_token_ids[0]])
    request = ask(user("hi"), says("hello world"), user("jumps"))
    assert renderer.compare(request, 2, served, renderer.extend(request, 2, served)) == {"answer_retokenised": 1}


def test_compare_counts_a_delta_that_is_not_the_full_one(load):
    renderer = load("qwen2_5")
    served = finished(renderer)
    given = renderer.extend(upto(TALK, 3), 2, served)
    assert "window" in renderer.compare(upto(TALK, 3), 2, served, renderer.extend(upto(TALK, 2), 2, served))
    assert "window" not in renderer.compare(upto(TALK, 3), 2, served, given)


def test_compare_counts_a_full_render_that_is_refused(load):
    renderer = load("mistral_v7")
    request = ask(user("hello"), result("Paris", "rain"), user("the quick"), says("brown fox"), user("jumps"))
    served = finished(renderer)
    assert renderer.compare(request, 4, served, renderer.extend(request, 4, served)) == {"full_render_refused": 1}


words = st.text(st.characters(codec="utf-8", exclude_characters="<[\uff5c"), min_size=1, max_size=20).filter(
    lambda drawn: drawn.strip() == drawn and drawn
)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_sampled_ids_stand_untouched_between_deltas_that_show_every_new_message(load, data):
    renderer = load(data.draw(st.sampled_from(["smollm2", "qwen3", "llama3_1", "mistral_v13"])))
    some_ids = st.lists(st.integers(0, 300), max_size=8)
    request = ask(system("be brief"), user(data.draw(words)))
    whole = token_ids(renderer.open(request).ids)
    positions = []
    for _ in range(data.draw(st.integers(1, 4))):
        served = token_ids([*data.draw(some_ids), *data.draw(st.sampled_from([[], [renderer.stop_token_ids[0]]]))])
        positions.append((len(whole), served))
        new = data.draw(st.lists(words, min_size=1, max_size=2))
        split = len(request.messages) + 1
        request = ask(*request.messages, says(text(renderer, served)), *map(user, new))
        added = renderer.extend(request, split, served)
        whole += served + added.ids
        shown = text(renderer, added.ids)
        assert all(message in shown for message in new)
        assert shown.endswith(renderer.properties.generation_prompt)
        assert set(renderer.compare(request, split, served, added)) <= {"answer_retokenised", "answer_rewritten"}
    for start, served in positions:
        assert whole[start : start + len(served)] == served
