// A tool loop over Responses with OpenAI's client for Node; `stream` as argument uses its streaming helper.
const OpenAI = require("openai");
const { add, finish, parameters, question } = require("./sums.cjs");

const client = new OpenAI({ timeout: 9999000 });
const tools = [{ type: "function", name: "add", description: "Add two numbers.", parameters, strict: true }];

async function ask(input) {
  const given = { model: "policy", instructions: "Add with the tool.", input, tools, store: false };
  return process.argv.includes("stream")
    ? await client.responses.stream(given).finalResponse()
    : await client.responses.create(given);
}

async function main() {
  const items = [{ role: "user", content: question() }];
  for (;;) {
    const response = await ask(items);
    items.push(...response.output);
    const calls = response.output.filter((item) => item.type === "function_call");
    if (!calls.length) return finish(response.output_text);
    for (const call of calls) {
      const output = add(JSON.parse(call.arguments));
      items.push({ type: "function_call_output", call_id: call.call_id, output });
    }
  }
}

main();
