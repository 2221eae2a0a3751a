// The client of the gateway benchmark. It uses Node's own fetch, as the CLI does.
// Each line of JSON on stdin is one request, {url, key, model, body}; the figures are printed as a line of JSON.
import { createInterface } from "node:readline";

for await (const line of createInterface({ input: process.stdin })) {
  const { url, key, model, body } = JSON.parse(line);
  const sent = JSON.stringify({ contents: [{ role: "user", parts: [{ text: "x".repeat(body) }] }] });
  const began = performance.now();
  const response = await fetch(`${url}/v1beta/models/${model}:streamGenerateContent?alt=sse`, {
    method: "POST",
    body: sent,
    headers: { "content-type": "application/json", "x-goog-api-key": key },
  });
  let first = 0;
  let events = 0;
  let text = "";
  const decoder = new TextDecoder();
  for await (const piece of response.body) {
    first ||= performance.now() - began;
    text += decoder.decode(piece, { stream: true });
    let end;
    while ((end = text.indexOf("\r\n\r\n")) >= 0) {
      JSON.parse(text.slice(6, end)); // as the SDK does
      text = text.slice(end + 4);
      events += 1;
    }
  }
  const all = performance.now() - began;
  process.stdout.write(JSON.stringify({ status: response.status, first, all, events }) + "\n");
}
