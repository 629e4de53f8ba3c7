// A tool loop over Messages with Anthropic's client for Node; `stream` as argument uses its streaming helper.
const Anthropic = require("@anthropic-ai/sdk");
const { add, finish, parameters, question } = require("./sums.cjs");

const client = new Anthropic({ timeout: 9999000 });
const tools = [{ name: "add", description: "Add two numbers.", input_schema: parameters }];

async function ask(messages) {
  const thinking = { type: "enabled", budget_tokens: 1024 };
  const given = { model: "policy", max_tokens: 500, system: "Add with the tool.", messages, tools, thinking };
  return process.argv.includes("stream")
    ? await client.messages.stream(given).finalMessage()
    : await client.messages.create(given);
}

async function main() {
  const messages = [{ role: "user", content: question() }];
  for (;;) {
    const answer = await ask(messages);
    messages.push({ role: "assistant", content: answer.content });
    if (answer.stop_reason !== "tool_use") return finish(answer.content.at(-1).text);
    const content = answer.content
      .filter((block) => block.type === "tool_use")
      .map((block) => ({ type: "tool_result", tool_use_id: block.id, content: add(block.input) }));
    messages.push({ role: "user", content });
  }
}

main();
