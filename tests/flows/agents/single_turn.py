"""Asks once; the reward is the length of the answer, so that Sessions differ."""

from chat import ask, finish, task

answer = ask(task()["messages"])
finish(reward=float(len(answer["content"])), metadata={"characters": len(answer["content"]), "note": "kept"})
