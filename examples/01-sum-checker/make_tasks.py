"""Writes tasks.jsonl and heldout.jsonl: all sums of two one-digit numbers, a fifth of the pairs held out.

A pair is held out in both orders, so that 3 + 4 cannot be learned from 4 + 3. Deterministic; run it again to check.
"""

import json
import random
from pathlib import Path

HERE = Path(__file__).parent
PAIRS = [(a, b) for a in range(10) for b in range(a, 10)]


def main() -> None:
    shuffle = random.Random(1)
    held_out = set(shuffle.sample(PAIRS, len(PAIRS) // 5))
    rows = [(a, b) for a in range(10) for b in range(10)]
    shuffle.shuffle(rows)
    write("tasks.jsonl", [row for row in rows if tuple(sorted(row)) not in held_out])
    write("heldout.jsonl", [row for row in rows if tuple(sorted(row)) in held_out])


def write(name: str, rows: list[tuple[int, int]]) -> None:
    lines = [json.dumps({"metadata": {"a": a, "b": b}}) + "\n" for a, b in rows]
    (HERE / name).write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
