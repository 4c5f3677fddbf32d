// The page: sign-in, which view is shown, and its refresh.

import * as api from "./api.js";
import { record } from "./charts.js";
import { age, h, morph } from "./dom.js";
import { list } from "./list.js";
import { playground } from "./playground.js";
import { detail } from "./service.js";

const REFRESH_SECONDS = 10;
const OLD_SECONDS = 45; // three rounds of the metrics server
const AUDIENCE = "metrics.serving.tandem.dev";
const $ = (id) => document.getElementById(id);
const main = $("main");

const state = { route: null, answer: null, at: 0, problem: "", timer: 0, reading: 0 };

function route() {
  const [namespace, name] = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  return name ? { namespace, name } : {};
}

/** Say whether what is shown is live, old, or cut off; announced when that changes, not each second. */
function freshness() {
  const shown = $("freshness");
  shown.hidden = !api.token.get() || !state.at;
  const since = (performance.now() - state.at) / 1000;
  const figures = state.answer?.age == null ? null : state.answer.age + since;
  let [tone, text, detail] = ["good", "Live", figures == null ? "no figures yet" : `figures ${age(figures)} old`];
  if (state.problem) [tone, text, detail] = ["bad", "Connection lost", `trying again; last answer ${age(since)} ago`];
  else if (figures > OLD_SECONDS) [tone, text] = ["busy", "Figures are old"];
  if (shown.dataset.state !== text) $("announcement").textContent = text === "Live" ? "" : text;
  shown.dataset.state = text;
  shown.className = `pill ${tone}`;
  shown.title = state.problem;
  shown.textContent = `${text}: ${detail}`;
}

async function read() {
  const { namespace, name } = state.route;
  const number = ++state.reading;
  clearTimeout(state.timer);
  try {
    const [all, one] = await Promise.all([api.services(), name && api.service(namespace, name)]);
    if (number !== state.reading) return; // another view is shown by now
    all.items.forEach(record);
    Object.assign(state, { answer: all, at: performance.now(), problem: "" });
    $("user").textContent = all.user;
    show(one ? detail(one) : list(all), one);
  } catch (error) {
    if (number !== state.reading) return;
    if (error.status === 401) return signIn(`The token is not valid, or has expired: ${error.message}`);
    if (error.status === 403 || error.status === 404) show(refused(error.message));
    else state.problem = error.message;
  }
  freshness();
  state.timer = setTimeout(read, 1000 * REFRESH_SECONDS);
}

const refused = (message) =>
  h("section", {}, h("p", {}, h("a", { href: "#/" }, "← Services")), h("h1", { tabindex: -1 }, "Not shown"), h("p", { class: "error" }, message));

/** Show a view; one that is there already is changed in place, and keeps its playground. */
function show(view, one) {
  const key = location.hash;
  document.title = one ? `${one.service.summary.name} · Tandem` : "Tandem";
  if (main.dataset.view === key && main.firstElementChild) return morph(main.firstElementChild, view);
  main.dataset.view = key;
  const tried = one && (one.service.playground
    ? h("section", {}, h("h2", {}, "Playground"), h("p", { class: "muted" }, `Not here: ${one.service.playground}.`))
    : playground(one.service));
  main.replaceChildren(...[view, tried].filter(Boolean));
  main.querySelector("h1").focus();
}

/** Read no more for the view that is shown, and end its completion. */
function leave() {
  clearTimeout(state.timer);
  state.reading += 1;
  $("stop")?.click();
}

function signIn(message = "") {
  leave();
  api.token.clear();
  Object.assign(state, { answer: null, at: 0, problem: "" });
  $("sign-out").hidden = true;
  $("user").textContent = "";
  freshness();
  main.dataset.view = "sign-in";
  const token = h("input", { id: "token", type: "password", autocomplete: "off", required: true, "aria-describedby": "how" });
  const submit = (event) => {
    event.preventDefault();
    api.token.set(token.value.trim());
    start();
  };
  main.replaceChildren(h("section", { class: "sign-in card" },
    h("h1", {}, "Sign in"),
    message ? h("p", { class: "error", role: "alert" }, message) : null,
    h("form", { onsubmit: submit }, h("label", { for: "token" }, "Token", token), h("button", { type: "submit" }, "Sign in")),
    h("p", { id: "how", class: "muted" }, "A token of a ServiceAccount, only for this server:"),
    h("pre", {}, `kubectl create token ACCOUNT -n NAMESPACE \\\n  --audience ${AUDIENCE}`),
    h("p", { class: "muted small" }, "It stays in this tab until you sign out or close it. You see the services that it may read.")));
  token.focus();
}

function start() {
  leave();
  state.route = route();
  main.dataset.view = "";
  main.replaceChildren(h("p", { class: "muted" }, "reading …"));
  $("sign-out").hidden = false;
  read();
}

addEventListener("hashchange", () => api.token.get() && start());
document.addEventListener("visibilitychange", () => {
  if (!api.token.get()) return;
  if (document.hidden) clearTimeout(state.timer);
  else read();
});
$("sign-out").addEventListener("click", () => signIn());
setInterval(freshness, 1000);
if (api.token.get()) start();
else signIn();
