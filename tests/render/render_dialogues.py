"""Canned conversations, and a model that says exactly what the template would have shown."""

from dataclasses import replace

from relaxforge.core.messages import Message, ModelRequest, RetryHint, Tool, ToolCall
from relaxforge.core.turns import token_ids

LOOKUP = Tool("lookup", "look something up", '{"properties":{"city":{"type":"string"}},"type":"object"}')


def system(text):
    return Message("system", text)


def user(text):
    return Message("user", text)


def says(text, reasoning=""):
    return Message("assistant", text, reasoning=reasoning)


def calls(*cities):
    made = (ToolCall(f"call_{city}", "lookup", f'{{"city":"{city}"}}') for city in cities)
    return Message("assistant", tool_calls=tuple(made))


def result(city, text):
    return Message("tool", text, tool_call_id=f"call_{city}")


def ask(*messages, tools=(), **fields):
    return ModelRequest("chat", "model", tuple(messages), RetryHint(b""), tuple(tools), **fields)


TALK = ask(user("hello"), says("world"), user("the quick"), says("brown fox"), user("jumps"))
BRIEFED = ask(system("be brief"), user("hello"), says("world"), user("the quick"), says("brown fox"), user("jumps"))
SPACES = ask(user(" hello \n"), says("  world "), user("the\n\nquick "), says("brown\n\n"), user("jumps"))
THINKING = ask(user("hello"), says("world", "because"), user("the quick"), says("brown fox", "well"), user("jumps"))
FOREIGN = ask(user("hello"), says("world"), says("not mine"), user("the quick"))
TOOLS = ask(
    user("weather?"),
    calls("Paris"),
    result("Paris", "rain"),
    says("it rains"),
    user("and elsewhere?"),
    calls("Rome"),
    result("Rome", "sun"),
    tools=[LOOKUP],
)
PARALLEL = ask(
    system("be brief"),
    user("weather?"),
    calls("Paris", "Rome"),
    result("Paris", "rain"),
    result("Rome", "sun"),
    says("it depends"),
    user("thanks"),
    tools=[LOOKUP],
)
DIALOGUES = {
    "talk": TALK,
    "briefed": BRIEFED,
    "spaces": SPACES,
    "thinking": THINKING,
    "foreign": FOREIGN,
    "tools": TOOLS,
    "parallel": PARALLEL,
}


def said(renderer, request, index):
    """Ids of the answer ``messages[index]`` as the template shows it, end token included.

    An answer that thinks is taken as the template shows the last one, others as it shows past ones.
    """
    before = list(renderer.open(upto(request, index)).ids)
    shown = upto(request, index + 1) if request.messages[index].reasoning else request
    whole = list(renderer.open(shown).ids)
    end = renderer.stop_token_ids[0]
    answer = whole[len(before) :]
    if whole[: len(before)] != before or end not in answer:
        return token_ids([*renderer.tokenizer.encode(request.messages[index].text or "no idea"), end])
    return token_ids(answer[: answer.index(end) + 1])


def upto(request, index):
    return replace(request, messages=request.messages[:index])


def turns(request):
    """Lengths of the histories that end in something the model has to answer."""
    roles = [message.role for message in request.messages]
    return [
        at
        for at in range(1, len(roles) + 1)
        if roles[at - 1] in ("user", "tool") and roles[at : at + 1] != ["tool"] and roles[at : at + 1] != ["user"]
    ]


def play(renderer, request, answer=said):
    """Every Turn of ``request`` as (request, split, served, observation); the first has split 0."""
    served, split = token_ids(), 0
    for length in turns(request):
        now = upto(request, length)
        observation = renderer.extend(now, split, served) if split else renderer.open(now)
        yield now, split, served, observation
        if length < len(request.messages):
            served, split = answer(renderer, request, length), length + 1


def lineage(played):
    """All ids of a played conversation, as the engine sees them before its last answer."""
    ids = token_ids()
    for _, _, served, observation in played:
        ids += served + observation.ids
    return ids
