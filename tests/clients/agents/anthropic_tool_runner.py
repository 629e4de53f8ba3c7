"""The official client's own tool loop, over Messages."""

import sums
from anthropic import Anthropic, beta_tool


@beta_tool
def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(sums.add(a, b))


runner = Anthropic(timeout=sums.TIMEOUT_S).beta.messages.tool_runner(
    model="policy", max_tokens=500, tools=[add], messages=[{"role": "user", "content": sums.question()}]
)
sums.finish(runner.until_done().content[-1].text)
