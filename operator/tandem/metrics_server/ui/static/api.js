// Requests to this server. The token stays in this tab, and goes nowhere else.

const KEY = "tandem-token";

export const token = {
  get: () => sessionStorage.getItem(KEY),
  set: (value) => sessionStorage.setItem(KEY, value),
  clear: () => sessionStorage.removeItem(KEY),
};

/** An answer that is none of the 200s: `status`, and the message for people. */
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function ask(path, options = {}) {
  const headers = { ...options.headers, Authorization: `Bearer ${token.get()}` };
  const answer = await fetch(`api/${path}`, { ...options, headers });
  if (answer.ok) return answer;
  const body = await answer.json().catch(() => ({}));
  throw new Refused(answer.status, body.message ?? `the server answers ${answer.status}`);
}

const place = (namespace, name) => `services/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;

export const services = async () => (await ask("services", { signal: AbortSignal.timeout(15000) })).json();
export const service = async (namespace, name) =>
  (await ask(place(namespace, name), { signal: AbortSignal.timeout(15000) })).json();

/** Yield the lines of a completion as they come. */
export async function* complete(namespace, name, body, signal) {
  const headers = { "Content-Type": "application/json" };
  const options = { method: "POST", body: JSON.stringify(body), headers, signal };
  const answer = await ask(`${place(namespace, name)}/completions`, options);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) yield JSON.parse(line);
  }
}
