"""Writes tasks.jsonl and heldout.jsonl from a reasoning-gym generator. Deterministic; no question is in both files.

Any other generator of reasoning-gym works the same way: change NAME and SETTINGS.
"""

import json
from pathlib import Path

import reasoning_gym

HERE = Path(__file__).parent
NAME, SETTINGS = "chain_sum", {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}
HELD_OUT, TRAIN = 20, 80


def main() -> None:
    entries = reasoning_gym.create_dataset(NAME, seed=1, size=1000, **SETTINGS)
    unique = list({entry["question"]: entry for entry in entries}.values())
    write("heldout.jsonl", unique[:HELD_OUT])
    write("tasks.jsonl", unique[HELD_OUT : HELD_OUT + TRAIN])


def write(name: str, entries: list[dict]) -> None:
    rows = [{"input": entry["question"], "entry": entry} for entry in entries]
    (HERE / name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    main()
