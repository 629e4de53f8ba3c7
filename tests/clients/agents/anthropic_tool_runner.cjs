// The tool loop of Anthropic's client for Node, over Messages.
const Anthropic = require("@anthropic-ai/sdk");
const { betaTool } = require("@anthropic-ai/sdk/helpers/beta/json-schema");
const { add, finish, parameters, question } = require("./sums.cjs");

async function main() {
  const runner = new Anthropic({ timeout: 9999000 }).beta.messages.toolRunner({
    model: "policy",
    max_tokens: 500,
    messages: [{ role: "user", content: question() }],
    tools: [betaTool({ name: "add", description: "Add two numbers.", inputSchema: parameters, run: add })],
  });
  finish((await runner.runUntilDone()).content.at(-1).text);
}

main();
