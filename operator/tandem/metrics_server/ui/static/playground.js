// A prompt, and its completion as it comes, each piece coloured by where it came from.

import { complete } from "./api.js";
import { h, number, percent, seconds } from "./dom.js";

const field = (name, label, input) => h("label", { for: name }, label, input);

const LEGEND = [h("span", { class: "draft" }, "proposed by the draft and accepted"),
  " · ", h("del", { class: "refused" }, "proposed and refused"), " · the target's own"];
const NO_ORIGINS = "The engine of this service does not report which tokens came from a draft.";

/** The form for one service; `draftByRequest`: a prompt may name its draft length. */
export function playground({ summary, draftByRequest }) {
  const most = summary.maxDraftLen;
  const parts = {
    prompt: h("textarea", { id: "prompt", rows: 3, required: true, maxlength: 32768, spellcheck: "false" }, "def fibonacci(n):"),
    tokens: h("input", { id: "tokens", type: "number", min: 1, max: 2048, value: 128, required: true }),
    drafts: draftByRequest ? h("input", { id: "drafts", type: "number", min: 0, max: most, placeholder: "as the service" }) : null,
    start: h("button", { type: "submit" }, "Complete"),
    stop: h("button", { id: "stop", type: "button", class: "plain", disabled: true, onclick: () => parts.running?.abort() }, "Stop"),
    output: h("output", { class: "completion", for: "prompt tokens", "aria-live": "polite", "aria-label": "Completion", tabindex: 0 }),
    result: h("p", { role: "status", class: "small" }),
    running: null,
  };
  const submit = (event) => {
    event.preventDefault();
    run(parts, summary);
  };
  return h("section", { "aria-labelledby": "playground" },
    h("h2", { id: "playground" }, "Playground"),
    h("form", { class: "card", onsubmit: submit },
      field("prompt", "Prompt", parts.prompt),
      h("div", { class: "fields" }, field("tokens", "Most tokens", parts.tokens),
        parts.drafts && field("drafts", `Draft length, 0 to ${most}`, parts.drafts), parts.start, parts.stop),
      parts.output, parts.result, h("p", { class: "muted small" }, draftByRequest ? LEGEND : NO_ORIGINS)));
}

/** Send what the form holds, and show what comes. */
async function run(parts, { namespace, name }) {
  const { prompt, tokens, drafts, start, stop, output, result } = parts;
  const body = { prompt: prompt.value, maxTokens: tokens.valueAsNumber };
  if (drafts && drafts.value !== "") body.draftTokens = drafts.valueAsNumber;
  parts.running = new AbortController();
  [start.disabled, stop.disabled] = [true, false];
  output.setAttribute("aria-busy", "true"); // read aloud when it is whole
  output.replaceChildren();
  result.className = "small";
  result.textContent = "waiting for the first token";
  try {
    result.textContent = await show(complete(namespace, name, body, parts.running.signal), output, Boolean(drafts));
  } catch (error) {
    const stopped = error.name === "AbortError";
    result.textContent = stopped ? "stopped" : error.message;
    result.classList.toggle("error", !stopped);
  } finally {
    [start.disabled, stop.disabled] = [false, true];
    output.setAttribute("aria-busy", "false");
  }
}

/** Show the lines as they come; returns a line about all of them. Raises what the server reports. */
async function show(lines, output, origins) {
  const began = performance.now();
  let [first, tokens, passes, last] = [null, 0, 0, null];
  for await (const line of lines) {
    if (line.error) throw new Error(line.error);
    if (line.draft) output.append(h("span", { class: "draft", title: `${line.accepted} draft tokens, accepted` }, line.draft));
    if (line.refused) output.append(refusedText(line.refused));
    if (line.target) output.append(line.target);
    if (line.tokens) {
      first ??= performance.now();
      tokens += line.tokens;
      passes += 1;
    }
    last = line;
  }
  if (!last?.totals) throw new Error("the stream ended before the completion did: see the pod's log");
  return about({ tokens, passes, took: (performance.now() - began) / 1000, first: (first - began) / 1000 }, last, origins);
}

/** Draft tokens that the target refused: no part of the completion, and not copied with it. A line stays a line. */
const refusedText = (text) =>
  h("del", { class: "refused", title: "draft tokens, refused" },
    h("span", { class: "unseen" }, " [refused: "), text.replaceAll("\n", "↵"), h("span", { class: "unseen" }, "] "));

/** A completion in a line. */
function about({ tokens, passes, took, first }, { totals, finish }, origins) {
  const { drafted, accepted } = totals;
  const parts = [`${tokens} tokens in ${seconds(took)}, ${number(tokens / took, 1)} a second`, `first after ${seconds(first)}`];
  if (drafted) parts.push(`${accepted} of ${drafted} draft tokens accepted (${percent(accepted / drafted)}), ${drafted - accepted} refused`);
  else if (origins) parts.push("no draft tokens");
  if (origins && passes) parts.push(`${number(tokens / passes, 2)} tokens a step of the target`);
  return `${parts.join(" · ")} · ended by ${finish}`;
}
