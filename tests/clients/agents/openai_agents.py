"""One agent of the OpenAI Agents SDK with one tool; the argument is ``responses`` or ``chat_completions``."""

import sys

import sums

from agents import Agent, Runner, function_tool, set_default_openai_api

set_default_openai_api(sys.argv[1])
agent = Agent(name="adder", instructions="Add with the tool.", model="policy", tools=[function_tool(sums.add)])
sums.finish(Runner.run_sync(agent, sums.question()).final_output)
