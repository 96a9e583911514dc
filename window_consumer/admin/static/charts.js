// Small charts of the last minutes, as SVG.
import { make, say } from "./dom.js";
import * as words from "./words.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 200;
const HEIGHT = 64;

// The charts: title, number format, and the lines of a sample by name.
export const CHARTS = [
  { title: "lag, records", write: words.count, lines: (s) => ({ lag: s.lag }) },
  { title: "oldest", write: words.duration, lines: (s) => ({ oldest: s.lag_s }) },
  { title: "processed /s", write: words.rate, lines: (s) => ({ processed: s.rate }) },
  { title: "call duration", write: words.duration, lines: (s) => ({ p50: s.p50_s, p95: s.p95_s, p99: s.p99_s }) },
  { title: "retries /s", write: words.rate, lines: (s) => ({ local: s.retried, ...s.moved }), named: true },
  { title: "dead letters /s", write: words.rate, lines: (s) => s.dead, named: true },
  { title: "slots busy", write: words.count, lines: (s) => ({ busy: s.busy, slots: s.limit }), band: (s) => s.breaker !== "closed", banded: "breaker not closed" },
];

function shape(name, attributes) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

export class Chart {
  constructor(about) {
    this.about = about;
    this.latest = make("b");
    this.keys = make("ul", { cls: "keys" });
    this.svg = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" });
    for (const y of [0.5, HEIGHT / 2, HEIGHT - 0.5]) this.svg.append(shape("line", { class: "grid", x1: 0, x2: WIDTH, y1: y, y2: y }));
    this.band = shape("path", { class: "band" });
    this.svg.append(this.band);
    this.paths = [];
    this.top = make("span", { cls: "top-value" });
    const caption = make("figcaption", {}, make("span", { text: about.title }), this.latest);
    this.element = make("figure", { cls: "chart" }, caption, this.top, this.svg, this.keys);
  }

  draw(samples, now, span) {
    const names = [...new Set(samples.flatMap((sample) => Object.keys(this.about.lines(sample))))];
    const shown = names.slice(0, 5);
    let most = 0;
    for (const sample of samples) for (const name of shown) most = Math.max(most, this.about.lines(sample)[name] ?? 0);
    const x = (sample) => WIDTH * (1 - (now - sample.t) / span);
    const y = (value) => HEIGHT - 1 - (most ? (value / most) * (HEIGHT - 3) : 0);
    shown.forEach((name, index) => {
      if (!this.paths[index]) {
        this.paths[index] = shape("path", { class: `s${index}` });
        this.svg.append(this.paths[index]);
      }
      let pen = "M";
      let line = "";
      for (const sample of samples) {
        const value = this.about.lines(sample)[name];
        if (value === null || value === undefined) { pen = "M"; continue; }
        line += `${pen}${x(sample).toFixed(1)} ${y(value).toFixed(1)}`;
        pen = "L";
      }
      this.paths[index].setAttribute("d", line);
    });
    this.paths.slice(shown.length).forEach((path) => path.setAttribute("d", ""));
    if (this.about.band) this.drawBand(samples, x);
    this.write(samples, shown, names.length - shown.length, most);
  }

  drawBand(samples, x) {
    let area = "";
    samples.forEach((sample, index) => {
      if (!this.about.band(sample)) return;
      const from = index ? x(samples[index - 1]) : x(sample) - 1;
      area += `M${from.toFixed(1)} 0H${x(sample).toFixed(1)}V${HEIGHT}H${from.toFixed(1)}Z`;
    });
    this.band.setAttribute("d", area);
  }

  write(samples, names, more, most) {
    const last = samples.at(-1);
    const now = last ? this.about.lines(last) : {};
    const first = names[0];
    say(this.latest, first === undefined ? "none" : this.about.write(now[first]));
    say(this.top, names.length ? `max ${this.about.write(most)}` : "");
    const isNamed = names.length > 1 || more || this.about.named;
    const keys = isNamed ? names.map((name, index) => [`s${index}`, `${name} ${this.about.write(now[name])}`]) : [];
    if (more > 0) keys.push(["", `and ${more} more`]);
    if (this.about.band && samples.some(this.about.band)) keys.push(["banded", this.about.banded]);
    while (this.keys.children.length > keys.length) this.keys.lastChild.remove();
    keys.forEach(([cls, text], index) => {
      if (!this.keys.children[index]) this.keys.append(make("li"));
      this.keys.children[index].className = cls;
      say(this.keys.children[index], text);
    });
    const label = `${this.about.title}: ${names.map((name) => `${name} ${this.about.write(now[name])}`).join(", ") || "none"}`;
    if (this.svg.getAttribute("aria-label") !== label) this.svg.setAttribute("aria-label", label);
  }
}
