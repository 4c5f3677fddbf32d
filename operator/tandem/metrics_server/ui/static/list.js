// All services that the user may read.

import { bars } from "./charts.js";
import { NONE, factor, h, number, pill, seconds as time } from "./dom.js";

const COLUMNS = [
  ["Service"], ["State"], ["Mode"], ["Replicas", true], ["Accepted length", true], ["by position"], ["Draft length", true],
  ["First token, p95", true], ["Between tokens", true], ["Tokens a second", true], ["Speed-up", true],
];

export const address = (s) => `#/${encodeURIComponent(s.namespace)}/${encodeURIComponent(s.name)}`;

export function replicas(r) {
  const going = r.desired != null && r.desired !== r.wanted ? ` → ${r.desired}` : "";
  return `${r.ready} of ${r.wanted}${going}`;
}

function row(s) {
  const f = s.figures ?? { latency: {} };
  const right = (...children) => h("td", { class: "right" }, ...children);
  return h("tr", {},
    h("th", { scope: "row" }, h("a", { href: address(s) }, s.name), h("span", { class: "muted small block" }, s.namespace)),
    h("td", {}, pill(s.tone, s.state), s.warnings.filter((reason) => reason !== s.state).map((reason) => h("span", { class: "warning small block" }, reason))),
    h("td", {}, s.mode, h("span", { class: "muted small block" }, s.decodingType)),
    right(replicas(s.replicas)),
    right(number(f.meanAcceptedLength, 2)),
    h("td", {}, bars(f.acceptedByPosition) ?? NONE),
    right(number(f.draftLength, 1), h("span", { class: "muted" }, s.maxDraftLen ? ` of ${s.maxDraftLen}` : "")),
    right(time(f.latency.timeToFirstTokenP95)),
    right(time(f.latency.interTokenLatencyMean)),
    right(number(f.tokensPerSecond),
      f.tokensPerSecondAlone ? h("span", { class: "muted small block" }, `without draft ≈ ${number(f.tokensPerSecondAlone)}`) : null),
    right(factor(f.speedup)));
}

export function list({ items }) {
  const seconds = items.find((s) => s.figures?.windowSeconds)?.figures.windowSeconds;
  if (!items.length) {
    return h("section", {}, h("h1", { tabindex: -1 }, "Services"),
      h("p", {}, "There are no services that you may read. A role with ", h("code", {}, "list"), " on ",
        h("code", {}, "speculativeinferenceservices"), " shows them: the built-in role ", h("code", {}, "view"), " has it."));
  }
  return h("section", {}, h("h1", { tabindex: -1 }, "Services"),
    h("div", { class: "wide card", role: "region", "aria-label": "Services", tabindex: 0 },
      h("table", {},
        h("thead", {}, h("tr", {}, COLUMNS.map(([name, right]) => h("th", { scope: "col", class: right && "right" }, name)))),
        h("tbody", {}, items.map(row)))),
    h("p", { class: "muted small" }, seconds ? `Figures are of the last ${seconds} s. ` : "", "Accepted length: tokens that a step of the target gives, its own included. "
      + "Alone: an estimate of what the target does without drafts at this load."));
}
