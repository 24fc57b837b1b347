// A loop of one's own over the npm package `openai`.
import OpenAI from "openai";

const task = JSON.parse(process.env.STARPO_TASK!);
const prices: Record<string, number> = { tea: 3, milk: 2 };
const client = new OpenAI();
const parameters = { type: "object", properties: { item: { type: "string" } }, required: ["item"] };
const tools: OpenAI.ChatCompletionTool[] = [{ type: "function", function: { name: "price", parameters } }];

async function converse(isStreamed: boolean): Promise<string> {
  const messages: OpenAI.ChatCompletionMessageParam[] = [{ role: "user", content: "What does tea cost?" }];
  for (;;) {
    const request = { model: "policy", messages, tools };
    const completion = isStreamed
      ? await client.chat.completions.stream(request).finalChatCompletion()
      : await client.chat.completions.create(request);
    const said = completion.choices[0].message;
    messages.push(said);
    if (!said.tool_calls?.length) return said.content ?? "";
    for (const call of said.tool_calls) {
      if (call.type !== "function") continue;
      const content = String(prices[JSON.parse(call.function.arguments).item]);
      messages.push({ role: "tool", tool_call_id: call.id, content });
    }
  }
}

async function structured(): Promise<string> {
  const schema = { type: "object", properties: { price: { type: "integer" } } };
  const completion = await client.chat.completions.create({
    model: "policy",
    messages: [{ role: "user", content: "What does tea cost?" }],
    response_format: { type: "json_schema", json_schema: { name: "quote", strict: true, schema } },
  });
  return String(JSON.parse(completion.choices[0].message.content!).price);
}

async function responses(): Promise<string> {
  const answer = await client.responses.create({ model: "policy", input: "What does tea cost?" });
  return answer.output_text;
}

const features: Record<string, () => Promise<string>> = {
  tools: () => converse(false),
  parallel: () => converse(false),
  streaming: () => converse(true),
  structured,
  responses,
};
const answer = await features[task.feature]();
console.log(JSON.stringify({ reward: 1.0, success: answer.includes(task.expected) }));
