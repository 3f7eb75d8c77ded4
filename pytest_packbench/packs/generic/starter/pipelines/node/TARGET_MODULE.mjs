import { createInterface } from "node:readline";

const { OPENAI_BASE_URL = "https://api.openai.com/v1", OPENAI_API_KEY } = process.env;
const PROMPT = `Sort the message of a customer. Answer with JSON only:
{"queue": "refunds" or "other", "order": the number of the order, or null}`;

async function answer(message) {
  const messages = [{ role: "system", content: PROMPT }, { role: "user", content: message }];
  const response = await fetch(`${OPENAI_BASE_URL}/chat/completions`, {
    method: "POST",
    headers: { "Content-Type": "application/json", Authorization: `Bearer ${OPENAI_API_KEY}` },
    body: JSON.stringify({ model: "gpt-4.1-mini", messages, response_format: { type: "json_object" } }),
  });
  if (!response.ok) throw new Error(`${response.status}: ${await response.text()}`);
  return JSON.parse((await response.json()).choices[0].message.content);
}

for await (const line of createInterface({ input: process.stdin })) {
  const { id, params } = JSON.parse(line);
  let reply;
  try {
    reply = { result: await answer(params.input) };
  } catch (error) {
    reply = { error: { code: -32000, message: String(error) } };
  }
  console.log(JSON.stringify({ jsonrpc: "2.0", id, ...reply }));
}
