// Elements, and how figures are written. Text always goes in as text: nothing that a pod or a model wrote is markup.

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "path", "line", "rect", "circle", "title"]);

/** An element. `attributes`: by name, false and null are left out; children: nodes, text, lists of them, or null. */
export function h(tag, attributes = {}, ...children) {
  const made = SVG_TAGS.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== false && value != null) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat(Infinity).filter((child) => child != null && child !== ""));
  return made;
}

/** Make `old` look as `wanted`, and keep what is the same: focus and selection stay through a refresh. */
export function morph(old, wanted) {
  if (old.nodeType !== wanted.nodeType || old.nodeName !== wanted.nodeName) return old.replaceWith(wanted);
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== wanted.data) old.data = wanted.data;
    return;
  }
  for (const { name } of [...old.attributes]) if (!wanted.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of wanted.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  const [before, after] = [[...old.childNodes], [...wanted.childNodes]];
  after.forEach((node, i) => (before[i] ? morph(before[i], node) : old.append(node)));
  before.slice(after.length).forEach((node) => node.remove());
}

export const NONE = "–";

/** A number with `digits` after the point, up to `most` where it has them. */
export const number = (value, digits = 0, most = digits) =>
  value == null ? NONE : value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: most });
export const percent = (value) => (value == null ? NONE : `${Math.round(100 * value)}%`);
export const factor = (value) => (value == null ? NONE : `${number(value, 2)}×`);

/** A latency: milliseconds below a second. */
export function seconds(value) {
  if (value == null) return NONE;
  return value < 1 ? `${number(1000 * value, value < 0.01 ? 1 : 0)} ms` : `${number(value, 1)} s`;
}

/** Time since an RFC 3339 moment, or of so many seconds, in one unit. */
export function age(since) {
  const passed = typeof since === "number" ? since : Math.max(0, (Date.now() - Date.parse(since)) / 1000);
  for (const [unit, length] of [["d", 86400], ["h", 3600], ["min", 60]])
    if (passed >= 2 * length) return `${Math.floor(passed / length)} ${unit}`;
  return `${Math.floor(passed)} s`;
}

/** A state with its colour; the word says it all. */
export const pill = (tone, text) => h("span", { class: `pill ${tone}` }, text);
