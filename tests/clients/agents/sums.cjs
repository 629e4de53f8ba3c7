// What the Node agents here share: the question, a tool that really adds, and the reward.
const fs = require("node:fs");

exports.parameters = {
  type: "object",
  properties: { a: { type: "integer" }, b: { type: "integer" } },
  required: ["a", "b"],
  additionalProperties: false,
};

exports.question = () => JSON.parse(fs.readFileSync(process.env.RELAX_INPUT_JSON, "utf8")).messages.at(-1).content;

exports.add = ({ a, b }) => String(a + b);

exports.finish = (answer) => {
  const output = { reward: answer.trim().endsWith("5.") ? 1 : 0, metadata: { answer } };
  fs.writeFileSync(process.env.RELAX_OUTPUT_JSON, JSON.stringify(output));
};
