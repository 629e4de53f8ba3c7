"""Sends the same body four times, keeps the longest answer, goes on from it, and exports that branch."""

from chat import ask, export, task

messages = task()["messages"]
answers = [ask(messages) for _ in range(4)]
best = max(answers, key=lambda answer: len(answer["content"]))
messages += [best, {"role": "user", "content": "Why?"}]
messages.append(ask(messages))
export({"name": "best", "messages": messages, "reward": float(len({answer["content"] for answer in answers}))})
