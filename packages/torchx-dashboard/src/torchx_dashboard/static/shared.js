// The SharedWorker: one stream for all tabs of a browser, because a browser opens at most six
// connections to a server.
import { EventSourceWithToken } from "./stream.js";

const ports = new Map();
let stream = null;
let lastState = ["connecting"];
let count = 0;

function start({ base, token }) {
  stream = new EventSourceWithToken(base, token, {
    opened: () => ports.forEach((port) => port.postMessage({ opened: true })),
    message: (data) => {
      const [number, key] = data.key.split(/:(.*)/s);
      ports.get(Number(number))?.postMessage({ ...data, key });
    },
    state: (...state) => {
      lastState = state;
      ports.forEach((port) => port.postMessage({ state }));
    },
  });
}

self.onconnect = (event) => {
  const port = event.ports[0];
  const number = ++count;
  const keys = new Set();
  ports.set(number, port);
  port.onmessage = ({ data }) => {
    if (data.start) {
      if (stream) port.postMessage({ state: lastState, opened: Boolean(stream.id) });
      else start(data.start);
    } else if (data.add) {
      keys.add(data.add.key);
      stream.change([{ ...data.add, key: `${number}:${data.add.key}` }], []);
    } else if (data.remove) {
      keys.delete(data.remove);
      stream.change([], [`${number}:${data.remove}`]);
    } else if (data.wake) {
      stream?.wake();
    } else if (data.close) {
      stream?.change([], [...keys].map((key) => `${number}:${key}`));
      ports.delete(number);
    }
  };
};
