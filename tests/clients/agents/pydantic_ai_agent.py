"""One Pydantic AI agent with one tool; the argument is ``openai-chat`` or ``openai-responses``."""

import sys

import sums
from pydantic_ai import Agent

agent = Agent(f"{sys.argv[1]}:policy", instructions="Add with the tool.", tools=[sums.add])
sums.finish(agent.run_sync(sums.question()).output)
