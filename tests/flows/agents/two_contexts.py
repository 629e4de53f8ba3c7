"""A main conversation and a searcher's, both exported; the reward is the main one's."""

from chat import ask, export, task

main = list(task()["messages"])
searcher = [{"role": "system", "content": "You search."}, {"role": "user", "content": "Find it."}]
searcher.append(ask(searcher))
main.append(ask(main))
main += [{"role": "user", "content": "Sure?"}]
main.append(ask(main))
export(
    {"name": "searcher", "messages": searcher, "metadata": {"useful": 0.5}},
    {"name": "main", "messages": main[:2], "metadata": {"outcome": 1}, "reward": 1.0},
)
