// Small pictures: bars by position, and lines of the minutes since the page was opened.

import { h, percent } from "./dom.js";

const KEEP_SECONDS = 15 * 60;
const [WIDTH, HEIGHT] = [240, 44];
const FIGURES = {
  speedup: (f) => f.speedup,
  speed: (f) => f.tokensPerSecond,
  length: (f) => f.meanAcceptedLength,
  draft: (f) => f.draftLength,
  first: (f) => f.latency.timeToFirstTokenP95,
  between: (f) => f.latency.interTokenLatencyMean,
  running: (f) => f.running,
};
const seen = new Map();

/** Keep the figures of a service: the server keeps a window, the page its history. */
export function record(summary) {
  const figures = summary.figures;
  if (!figures?.live) return;
  const key = `${summary.namespace}/${summary.name}`;
  const points = seen.get(key) ?? [];
  const at = Date.parse(figures.observedAt) / 1000;
  if (points.at(-1)?.at === at) return;
  const values = Object.fromEntries(Object.entries(FIGURES).map(([name, read]) => [name, read(figures)]));
  seen.set(key, [...points.filter((point) => point.at > at - KEEP_SECONDS), { at, ...values }]);
}

/** A line of one of `FIGURES`, from 0 to its highest; nothing before there are two points. */
export function line(summary, figure, name, write) {
  const points = (seen.get(`${summary.namespace}/${summary.name}`) ?? []).filter((point) => point[figure] != null);
  if (points.length < 2) return h("p", { class: "muted small spark" }, "the line begins with the next reading");
  const values = points.map((point) => point[figure]);
  const [first, last, most] = [points[0].at, points.at(-1).at, Math.max(...values) || 1];
  const x = (point) => ((point.at - first) / (last - first || 1)) * (WIDTH - 6) + 3;
  const y = (point) => HEIGHT - 3 - (point[figure] / most) * (HEIGHT - 8);
  const path = points.map((point, i) => `${i ? "L" : "M"}${x(point).toFixed(1)} ${y(point).toFixed(1)}`).join("");
  const minutes = Math.max(1, Math.round((last - first) / 60));
  const range = `${write(Math.min(...values))} to ${write(Math.max(...values))}`;
  const label = `${name} over ${minutes} min: now ${write(values.at(-1))}, ${range}`;
  return h("svg", { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "xMinYMid", role: "img", "aria-label": label },
    h("title", {}, label),
    h("path", { class: "area", d: `${path}L${x(points.at(-1))} ${HEIGHT}L${x(points[0])} ${HEIGHT}Z` }),
    h("path", { class: "line", d: path }),
    h("circle", { class: "dot", cx: x(points.at(-1)), cy: y(points.at(-1)), r: 2.5 }));
}

/** Share of the drafts whose token at each position was accepted; `height`, and `step` from bar to bar, in pixels. */
export function bars(shares, height = 24, step = 12) {
  if (!shares?.length) return null;
  const label = `accepted by position: ${shares.map((share, i) => `${i + 1}: ${percent(share)}`).join(", ")}`;
  const width = shares.length * step;
  return h("svg", { class: "bars", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label },
    h("title", {}, label),
    shares.map((share, i) => [
      h("rect", { class: "rest", x: i * step, y: 0, width: step - 3, height, rx: 1.5 }),
      h("rect", { class: "share", x: i * step, y: height * (1 - share), width: step - 3, height: height * share, rx: 1.5 }),
    ]));
}
