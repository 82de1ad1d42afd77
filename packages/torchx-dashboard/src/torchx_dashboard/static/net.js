// Requests with the token, and subscriptions to the stream of events.
import { EventSourceWithToken } from "./stream.js";

// A page that `torchx dashboard --export` wrote contains its data.
const embedded = document.getElementById("export");
export const exported = embedded ? JSON.parse(embedded.textContent) : null;

const base = new URL(".", document.baseURI).href;
const token = takeToken();
const subscriptions = new Map();
const listeners = new Set();
let connection = null;
let nextKey = 1;

// The token arrives in the fragment, which browsers do not send. It is removed from the address,
// and kept for this tab and this port.
function takeToken() {
  if (exported) return "";
  const found = /^#token=([\w-]+)$/.exec(location.hash);
  if (found) {
    sessionStorage.setItem("token", found[1]);
    history.replaceState(null, "", "#/jobs");
  }
  return sessionStorage.getItem("token") || "";
}

export function onConnection(listener) {
  listeners.add(listener);
}

async function fetched(path, parameters, options) {
  const url = new URL(path, base);
  for (const [name, value] of Object.entries(parameters || {})) url.searchParams.set(name, value);
  let response;
  // A request that only reads is repeated: a browser ends requests when the machine's network changes.
  for (let attempt = 1; !response; attempt++) {
    try {
      response = await fetch(url, { cache: "no-store", ...options, headers: { "X-TorchX-Token": token } });
    } catch {
      if (attempt === 3 || options?.method) {
        throw new Error("The dashboard does not answer: is 'torchx dashboard' still running?");
      }
      await new Promise((resolve) => setTimeout(resolve, 300));
    }
  }
  if (!response.ok) {
    const text = await response.json().then((data) => data.error, () => response.statusText);
    throw new Error(text);
  }
  return response;
}

export async function get(path, parameters) {
  if (exported) {
    const found = exported.get[`${path}?${new URLSearchParams(parameters || {})}`];
    if (found === undefined) throw new Error("This page was exported without this part.");
    return found;
  }
  return (await fetched(path, parameters)).json();
}

export async function post(path, body) {
  return (await fetched(path, {}, { method: "POST", body: JSON.stringify(body) })).json();
}

export async function getBlob(path, parameters) {
  return (await fetched(path, parameters)).blob();
}

// Subscribe to a topic; return a function that ends the subscription. `parameters` is a function,
// because a log continues after a reconnection where it was. `restart` is called before the
// messages of each connection.
export function subscribe(topic, parameters, { message, error, end, restart }) {
  const key = String(nextKey++);
  if (exported) {
    const messages = exported.topics[`${topic} ${parameters().handle || ""}`.trim()] || [];
    let live = true;
    queueMicrotask(() => {
      restart?.();
      for (const data of messages) if (live) message(data);
      if (live) end?.();
    });
    return () => { live = false; };
  }
  subscriptions.set(key, { topic, parameters, message, error, end, restart });
  if (connection.isOpen) add(key);
  return () => {
    subscriptions.delete(key);
    connection.send({ remove: key });
  };
}

function add(key) {
  const subscription = subscriptions.get(key);
  subscription.restart?.();
  connection.send({ add: { key, topic: subscription.topic, parameters: subscription.parameters() } });
}

function received(data) {
  if (data.state) {
    connection.isOpen = data.state[0] === "connected";
    for (const listener of listeners) listener(...data.state);
  }
  if (data.opened) {
    connection.isOpen = true;
    for (const key of subscriptions.keys()) add(key);
  }
  const subscription = data.key && subscriptions.get(data.key);
  if (!subscription) return;
  if (data.error) subscription.error?.(data.error);
  if (data.end) subscription.end?.(data.error);
  else subscription.message(data.data);
}

// Open the stream, before the page knows what it shows.
export function connect() {
  connection = typeof SharedWorker === "undefined" ? ownStream() : sharedStream();
  addEventListener("online", () => connection.send({ wake: true }));
  document.addEventListener("visibilitychange", () => connection.send({ wake: true }));
}

function sharedStream() {
  // The name separates the workers of two servers that used the same port one after the other.
  const worker = new SharedWorker(new URL("worker.js", base), { name: token.slice(0, 8) });
  worker.port.onmessage = (event) => received(event.data);
  worker.port.postMessage({ start: { base, token } });
  addEventListener("pagehide", () => worker.port.postMessage({ close: true }));
  addEventListener("pageshow", (event) => event.persisted && location.reload());
  return { isOpen: false, send: (data) => worker.port.postMessage(data) };
}

function ownStream() {
  const stream = new EventSourceWithToken(base, token, {
    opened: () => received({ opened: true }),
    message: received,
    state: (...state) => connection && received({ state }),
  });
  return {
    isOpen: false,
    send: ({ add: added, remove, wake }) => {
      if (wake) stream.wake();
      else stream.change(added ? [added] : [], remove ? [remove] : []);
    },
  };
}
