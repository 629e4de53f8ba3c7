"""Gives up on a slow answer after a moment, and sends the same request again, marked as a retry."""

from chat import ask, finish, task

messages = task()["messages"]
try:
    ask(messages, timeout=0.3)
    raise SystemExit("the first request was not slow")
except TimeoutError:
    answer = ask(messages, headers={"x-stainless-retry-count": "1"})
messages += [answer, {"role": "user", "content": "Go on."}]
ask(messages)
finish(reward=1.0)
