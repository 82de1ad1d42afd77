// The worker that searches logs. The page ends it if an expression takes too long.
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
  const found = [];
  if (data.text !== undefined) {
    for (const line of data.text.split("\n")) {
      if (matches(line)) found.push(count);
      count++;
    }
  }
  const again = (data.again || []).filter(([, text]) => matches(text)).map(([index]) => index);
  self.postMessage({ found, again, number: data.number });
};
