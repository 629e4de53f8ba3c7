"""The minimal agent of the integration guide, in behaviour: one call through the official client, history kept."""

import asyncio
import json
import os
from pathlib import Path

from openai import AsyncOpenAI


async def main() -> None:
    messages = json.loads(Path(os.environ["RELAX_INPUT_JSON"]).read_text(encoding="utf-8"))["messages"]  # noqa: ASYNC240
    client = AsyncOpenAI(base_url=os.environ["RELAX_BASE_URL"], api_key=os.environ["RELAX_SESSION_ID"], timeout=9999)
    response = await client.chat.completions.create(model="model", messages=messages)
    messages.append(response.choices[0].message.model_dump())
    again = [*messages, {"role": "user", "content": "And now?"}]
    second = await client.chat.completions.create(model="model", messages=again)
    output = {"metadata": {"task_success": 1.0, "model": second.model}, "reward": 1.0}
    text = json.dumps(output, ensure_ascii=False)
    Path(os.environ["RELAX_OUTPUT_JSON"]).write_text(text, encoding="utf-8")  # noqa: ASYNC240


asyncio.run(main())
