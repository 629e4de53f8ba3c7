// A tool loop over Chat Completions with OpenAI's client for Node; `stream` as argument uses its streaming helper.
const OpenAI = require("openai");
const { add, finish, parameters, question } = require("./sums.cjs");

const client = new OpenAI({ timeout: 9999000 });
const tools = [{ type: "function", function: { name: "add", description: "Add two numbers.", parameters } }];

async function ask(messages) {
  const given = { model: "policy", messages, tools };
  const completion = process.argv.includes("stream")
    ? await client.chat.completions.stream(given).finalChatCompletion()
    : await client.chat.completions.create(given);
  return completion.choices[0].message;
}

async function main() {
  const messages = [{ role: "user", content: question() }];
  for (;;) {
    const answer = await ask(messages);
    messages.push(answer);
    if (!answer.tool_calls?.length) return finish(answer.content);
    for (const call of answer.tool_calls) {
      const content = add(JSON.parse(call.function.arguments));
      messages.push({ role: "tool", tool_call_id: call.id, content });
    }
  }
}

main();
