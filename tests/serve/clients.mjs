// OpenAI's client for JavaScript and Vercel's AI SDK against an endpoint: node clients.mjs NODE_MODULES URL MODEL
// Prints what they saw as JSON.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [folder, url, model] = process.argv.slice(2);
const find = createRequire(pathToFileURL(`${folder}/`));
const load = (name) => import(pathToFileURL(find.resolve(name)));
const seen = {};

const { default: OpenAI } = await load("openai");
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });
const asked = { model, messages: [{ role: "user", content: "abc" }], max_tokens: 9, temperature: 0 };
seen.models = (await client.models.list()).data.map((entry) => entry.id);
const whole = await client.chat.completions.create({ ...asked, logprobs: true, top_logprobs: 2 });
seen.text = whole.choices[0].message.content;
seen.usage = whole.usage;
seen.tokens = whole.choices[0].logprobs.content.map((entry) => entry.token).join("");
let streamed = "", last = null;
for await (const chunk of await client.chat.completions.create({
  ...asked, stream: true, stream_options: { include_usage: true },
})) {
  streamed += chunk.choices[0]?.delta.content ?? "";
  last = chunk;
}
seen.streamed = streamed;
seen.streamed_usage = last.usage;
const stopped = await client.chat.completions.create({ ...asked, stop: [seen.text.slice(-1)] });
seen.stopped = [stopped.choices[0].message.content, stopped.choices[0].finish_reason];
try {
  await client.chat.completions.create({ ...asked, model: "another" });
} catch (error) {
  seen.error = [error.constructor.name, error.status, error.code, error.param];
}
const controller = new AbortController();
const long = await client.chat.completions.create(
  { ...asked, max_tokens: 850, stream: true }, { signal: controller.signal },
);
for await (const chunk of long) {
  if (chunk.choices[0].delta.content) break;
}
controller.abort();

const { generateText, streamText } = await load("ai");
const { createOpenAICompatible } = await load("@ai-sdk/openai-compatible");
const provider = createOpenAICompatible({ name: "partc", baseURL: `${url}/v1`, includeUsage: true });
const options = { model: provider(model), prompt: "abc", maxOutputTokens: 9, temperature: 0, maxRetries: 0 };
const generated = await generateText(options);
seen.ai = [generated.text, generated.finishReason, generated.usage.outputTokens];
const stream = streamText(options);
let pieces = "";
for await (const piece of stream.textStream) pieces += piece;
seen.ai_streamed = [pieces, (await stream.usage).outputTokens];
console.log(JSON.stringify(seen));
