// A prompt, and its completion as it comes, each piece coloured by where it came from.

import { complete } from "./api.js";
import { h, number, percent, seconds } from "./dom.js";

const field = (name, label, input) => h("label", { for: name }, label, input);

/** The form for one service; `draftByRequest`: a prompt may name its draft length. */
export function playground({ summary, draftByRequest }) {
  const prompt = h("textarea", { id: "prompt", rows: 3, required: true, maxlength: 32768, spellcheck: "false" }, "def fibonacci(n):");
  const tokens = h("input", { id: "tokens", type: "number", min: 1, max: 2048, value: 128, required: true });
  const drafts = h("input", { id: "drafts", type: "number", min: 0, max: summary.maxDraftLen, placeholder: "as the service" });
  const start = h("button", { type: "submit" }, "Complete");
  const stop = h("button", { type: "button", class: "plain", disabled: true, onclick: () => running?.abort() }, "Stop");
  const output = h("output", { class: "completion", for: "prompt tokens drafts", "aria-live": "polite", "aria-label": "Completion", tabindex: 0 });
  const result = h("p", { role: "status", class: "small" });
  let running = null;

  async function run(event) {
    event.preventDefault();
    running = new AbortController();
    [start.disabled, stop.disabled] = [true, false];
    output.setAttribute("aria-busy", "true"); // read aloud when it is whole
    output.replaceChildren();
    result.className = "small";
    result.textContent = "waiting for the first token";
    const body = { prompt: prompt.value, maxTokens: tokens.valueAsNumber };
    if (draftByRequest && drafts.value !== "") body.draftTokens = drafts.valueAsNumber;
    try {
      const lines = complete(summary.namespace, summary.name, body, running.signal);
      result.textContent = await show(lines, output, draftByRequest);
    } catch (error) {
      const stopped = error.name === "AbortError";
      result.textContent = stopped ? "stopped" : error.message;
      result.classList.toggle("error", !stopped);
    } finally {
      running = null;
      [start.disabled, stop.disabled] = [false, true];
      output.setAttribute("aria-busy", "false");
    }
  }

  return h("section", { "aria-labelledby": "playground" },
    h("h2", { id: "playground" }, "Playground"),
    h("form", { class: "card", onsubmit: run },
      field("prompt", "Prompt", prompt),
      h("div", { class: "fields" },
        field("tokens", "Most tokens", tokens),
        draftByRequest ? field("drafts", `Draft length, 0 to ${summary.maxDraftLen}`, drafts) : null,
        start, stop),
      output,
      result,
      draftByRequest
        ? h("p", { class: "muted small" }, h("span", { class: "draft" }, "proposed by the draft and accepted"), " · the target's own. "
          + "The responses do not name refused draft tokens; they are counted.")
        : h("p", { class: "muted small" }, "The engine of this service does not report which tokens came from a draft.")));
}

/** Show the lines as they come; returns a line about all of them. Raises what the server reports. */
async function show(lines, output, origins) {
  const began = performance.now();
  let [first, tokens, passes, last] = [null, 0, 0, null];
  for await (const line of lines) {
    if (line.error) throw new Error(line.error);
    if (line.draft) output.append(h("span", { class: "draft", title: `${line.accepted} draft tokens, accepted` }, line.draft));
    if (line.target) output.append(line.target);
    if (line.tokens) {
      first ??= performance.now();
      tokens += line.tokens;
      passes += 1;
    }
    last = line;
  }
  if (!last?.totals) throw new Error("the stream ended before the completion did: see the pod's log");
  const took = (performance.now() - began) / 1000;
  const { drafted, accepted } = last.totals;
  const parts = [`${tokens} tokens in ${seconds(took)}, ${number(tokens / took, 1)} a second`, `first after ${seconds((first - began) / 1000)}`];
  if (origins && !drafted) parts.push("no draft tokens");
  if (drafted) parts.push(`${accepted} of ${drafted} draft tokens accepted (${percent(accepted / drafted)}), ${drafted - accepted} refused`);
  if (origins && passes) parts.push(`${number(tokens / passes, 2)} tokens a step of the target`);
  return `${parts.join(" · ")} · ended by ${last.finish}`;
}
