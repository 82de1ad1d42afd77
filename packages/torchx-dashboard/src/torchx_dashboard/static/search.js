// The worker that searches logs. It reports its progress, and the page ends it if an expression
// takes too long for a part of the lines.
const PART = 5000;
const sequence = /\u001b(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[ -/]*[0-~])/g;
let expression = null;
let count = 0;

function matches(line) {
  let text = line;
  if (text.includes("\r")) text = text.slice(text.lastIndexOf("\r", text.length - 2) + 1);
  return expression.test(text.includes("\u001b") ? text.replace(sequence, "") : text);
}

self.onmessage = ({ data }) => {
  if (data.pattern !== undefined) expression = new RegExp(data.pattern, data.flags);
  const progress = (found, again) => self.postMessage({ found, again, isPart: !again });
  progress([]);
  const lines = data.text === undefined ? [] : data.text.split("\n");
  for (let first = 0; first < lines.length; first += PART) {
    const found = [];
    for (const line of lines.slice(first, first + PART)) {
      if (matches(line)) found.push(count);
      count++;
    }
    progress(found);
  }
  const again = (data.again || []).filter(([, text]) => matches(text)).map(([index]) => index);
  progress([], again);
};
