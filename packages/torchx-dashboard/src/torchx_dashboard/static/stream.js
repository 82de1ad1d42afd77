// One stream of events from the server, with automatic reconnection. Pages and the SharedWorker
// use it. Subscriptions are not kept here: after each reconnection, `opened` tells the pages to
// subscribe again, with the parameters that continue where they were.

const SILENCE = 40000; // The server sends something each 15 s.

export class EventSourceWithToken {
  constructor(base, token, { opened, message, state }) {
    this.base = base;
    this.token = token;
    this.opened = opened;
    this.message = message;
    this.state = state;
    this.id = null;
    this.changes = null;
    this.run();
  }

  request(path, body, options, accept = "application/json") {
    return fetch(new URL(path, this.base), {
      method: "POST",
      headers: { "X-TorchX-Token": this.token, "Content-Type": "application/json", Accept: accept },
      body: JSON.stringify(body),
      cache: "no-store",
      ...options,
    });
  }

  async run() {
    let pause = 250;
    for (;;) {
      const abort = new AbortController();
      this.abort = abort;
      try {
        // jupyter-server-proxy passes on each part at once only if the request accepts nothing else.
        const options = { signal: abort.signal };
        const response = await this.request("api/stream", {}, options, "text/event-stream");
        if (response.status === 401 || response.status === 403 || response.status === 421) {
          this.state("refused", (await response.json()).error);
          return;
        }
        if (!response.ok) throw new Error(String(response.status));
        pause = 250;
        await this.read(response.body.getReader());
      } catch {
        // Try again below.
      }
      clearTimeout(this.timer);
      this.id = null;
      this.state("connecting");
      await new Promise((resolve) => {
        this.retry = resolve;
        setTimeout(resolve, pause);
      });
      pause = Math.min(pause * 2, 5000);
    }
  }

  // A laptop that wakes up has a connection that is dead without an error.
  wake() {
    if (this.retry) this.retry();
  }

  async read(reader) {
    const decoder = new TextDecoder();
    let rest = "";
    for (;;) {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.abort.abort(), SILENCE);
      const { done, value } = await reader.read();
      if (done) return;
      const events = (rest + decoder.decode(value, { stream: true })).split("\n\n");
      rest = events.pop();
      for (const event of events) {
        if (!event.startsWith("data: ")) continue;
        const data = JSON.parse(event.slice(6));
        if (data.stream) {
          this.id = data.stream;
          this.changes = null;
          this.state("connected");
          this.opened();
        } else {
          this.message(data);
        }
      }
    }
  }

  change(add, remove) {
    if (!this.id) return; // `opened` follows.
    if (!this.changes) {
      this.changes = { add: [], remove: [] };
      queueMicrotask(() => this.send());
    }
    this.changes.add.push(...add);
    this.changes.remove.push(...remove);
  }

  async send() {
    const changes = this.changes;
    this.changes = null;
    if (!changes || !this.id) return;
    try {
      const response = await this.request("api/subscribe", { stream: this.id, ...changes });
      if (!response.ok) this.abort.abort();
    } catch {
      this.abort.abort();
    }
  }
}
