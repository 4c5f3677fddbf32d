// One service: figures with their history, replicas and why, conditions and what to do, pods.

import { bars, line } from "./charts.js";
import { age, factor, h, number, percent, pill, seconds } from "./dom.js";
import { replicas } from "./list.js";

const card = (title, value, note, ...more) =>
  h("div", { class: "card figure" }, h("h3", {}, title), h("p", { class: "value" }, value),
    h("p", { class: "muted small note" }, note), ...more);

function figures(s) {
  const f = s.figures;
  if (!f) return h("p", { class: "muted" }, "There are no figures: no server reports any.");
  const l = f.latency;
  const rate = (v) => number(v);
  return [
    f.live ? null : h("p", { class: "warning" }, `No server reports figures now; these are ${age(f.observedAt)} old.`),
    h("div", { class: "cards" },
      card("Tokens a second", number(f.tokensPerSecond),
        f.tokensPerSecondAlone ? `without the draft: about ${number(f.tokensPerSecondAlone)}` : "", line(s, "speed", "Tokens a second", rate)),
      card("Speed-up", factor(f.speedup), f.speedupMessage,
        f.speedup && f.live ? line(s, "speedup", "Speed-up", factor) : null),
      card("Accepted length", number(f.meanAcceptedLength, 2), `${percent(f.acceptanceRate)} of the draft tokens`,
        line(s, "length", "Accepted length", (v) => number(v, 2))),
      card("Accepted by position", percent(f.acceptedByPosition?.[0]), "of the drafts keep their first token",
        h("div", { class: "spark" }, bars(f.acceptedByPosition, 44, 22))),
      card("Draft length", number(f.draftLength, 1), `at most ${s.maxDraftLen}`,
        line(s, "draft", "Draft length", (v) => number(v, 1))),
      card("First token", seconds(l.timeToFirstTokenP95), `p95; median ${seconds(l.timeToFirstTokenP50)}`,
        line(s, "first", "First token, p95", seconds)),
      card("Between tokens", seconds(l.interTokenLatencyMean), `mean; p95 ${seconds(l.interTokenLatencyP95)}`,
        line(s, "between", "Between tokens", seconds)),
      card("Requests", number(f.running, 0, 1), `running; ${number(f.waiting, 0, 1)} waiting`,
        line(s, "running", "Requests", (v) => number(v, 0, 1)))),
  ];
}

function table(name, heads, rows) {
  return h("div", { class: "wide card", role: "region", "aria-label": name, tabindex: 0 },
    h("table", {},
      h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))),
      h("tbody", {}, rows)));
}

const condition = (c) =>
  h("tr", {},
    h("th", { scope: "row" }, c.type),
    h("td", {}, pill(c.tone, c.status)),
    h("td", {}, c.reason, h("span", { class: "muted small block" }, `for ${age(c.since)}`)),
    h("td", {}, c.message, c.action ? h("span", { class: "action block" }, `→ ${c.action}`) : null));

const pod = (p) =>
  h("tr", {},
    h("th", { scope: "row" }, p.name),
    h("td", {}, pill(p.ready ? "good" : "busy", p.ready ? "True" : "False")),
    h("td", {}, p.state),
    h("td", { class: "mono" }, p.revision),
    h("td", { class: "right" }, age(p.created)));

export function detail({ service }) {
  const s = service.summary;
  const going = service.updateRevision ? `, going to ${service.updateRevision}` : "";
  return h("section", {},
    h("p", {}, h("a", { href: "#/" }, "← Services")),
    h("h1", { tabindex: -1 }, s.name, " ", pill(s.tone, s.state)),
    h("p", { class: "muted" }, `${s.namespace} · ${s.mode} · ${s.decodingType} · profile ${s.profile}`,
      service.revision ? ` · revision ${service.revision}${going}` : ""),
    s.message ? h("p", {}, s.message) : null,
    service.url ? h("p", { class: "mono small" }, [service.url, service.openAiUrl].filter(Boolean).join("   ")) : null,
    h("h2", {}, "Figures"), figures(s),
    service.advice ? h("p", { class: "advice" }, `Advice: ${service.advice}`) : null,
    h("h2", {}, "Replicas"),
    h("p", {}, h("strong", {}, replicas(s.replicas)), " answer. ", s.replicas.message || "Their number is set by hand: there is no autoscaling."),
    h("h2", {}, "Conditions"),
    table("Conditions", ["Condition", "Status", "Reason", "Message, and what to do"], service.conditions.map(condition)),
    h("h2", {}, "Pods"),
    service.pods == null ? h("p", { class: "muted" }, "You may not list the pods of this namespace.")
      : service.pods.length ? table("Pods", ["Pod", "Ready", "State", "Revision", "Age"], service.pods.map(pod))
        : h("p", { class: "muted" }, "There are no server pods."),
    service.problems?.length ? h("ul", { class: "warning" }, service.problems.map((each) => h("li", {}, each))) : null);
}
