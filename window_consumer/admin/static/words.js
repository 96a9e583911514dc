// Formats numbers for people.
const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const PLAIN = new Intl.NumberFormat("en");

export function count(value) {
  if (value === null || value === undefined) return "–";
  return value < 10000 ? PLAIN.format(Math.round(value)) : SHORT.format(value);
}

export function rate(value) {
  if (value === null || value === undefined) return "–";
  if (value > 0 && value < 10) return value.toFixed(1);
  return count(value);
}

export function share(value) {
  return `${Number((100 * value).toPrecision(2))} %`;
}

export function nameOf({ topic, partition }) {
  return `${topic}[${partition}]`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds === 0) return "0 s";
  if (seconds < 0.001) return `${Math.round(seconds * 1e6)} µs`;
  if (seconds < 1) return `${Number((seconds * 1e3).toPrecision(3))} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h ${Math.round((seconds % 3600) / 60)} min`;
  return `${Math.round(seconds / 86400)} d`;
}
