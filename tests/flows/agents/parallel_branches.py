"""Two conversations at the same time, like a main agent and a searcher; exports the main one by name."""

import threading

from chat import ask, export, task

main = list(task()["messages"])
searcher = [{"role": "system", "content": "You search."}, {"role": "user", "content": "Find it."}]


def converse(messages, turns):
    for turn in range(turns):
        messages.append(ask(messages))
        if turn + 1 < turns:
            messages.append({"role": "user", "content": f"go on {turn}"})


other = threading.Thread(target=converse, args=(searcher, 2))
other.start()
converse(main, 3)
other.join()
export({"name": "main", "messages": main, "metadata": {"turns": 3}, "reward": 1.0})
