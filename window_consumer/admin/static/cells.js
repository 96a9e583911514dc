// A window as a strip of cells on a canvas: a colour and a sign for each state.
export const STATES = {
  d: { name: "done", colour: "--done" },
  w: { name: "waiting", colour: "--waiting" },
  r: { name: "running", colour: "--running" },
  y: { name: "retrying", colour: "--retrying" },
  H: { name: "hovering", colour: "--hovering" },
};
const HEIGHT = 22;
const GAP = 2;

let palette = null;

export function readColours() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(name).trim();
  palette = { free: read("--free"), mark: read("--mark"), cursor: read("--accent"), sign: read("--on-state"), faint: read("--on-waiting") };
  for (const [letter, state] of Object.entries(STATES)) palette[letter] = read(state.colour);
}

function drawSign(context, letter, x, width) {
  const size = Math.min(width - 4, HEIGHT - 10, 10);
  if (size < 3) return;
  const cx = x + width / 2;
  const cy = HEIGHT / 2;
  const half = size / 2;
  context.fillStyle = context.strokeStyle = letter === "w" ? palette.faint : palette.sign;
  context.lineWidth = 1.6;
  context.beginPath();
  if (letter === "d") {
    context.moveTo(cx - half, cy);
    context.lineTo(cx - half / 4, cy + half * 0.7);
    context.lineTo(cx + half, cy - half * 0.7);
    context.stroke();
  } else if (letter === "w") {
    context.arc(cx, cy, Math.max(1, size / 5), 0, 2 * Math.PI);
    context.fill();
  } else if (letter === "r") {
    context.moveTo(cx - half * 0.7, cy - half);
    context.lineTo(cx + half, cy);
    context.lineTo(cx - half * 0.7, cy + half);
    context.fill();
  } else if (letter === "y") {
    context.arc(cx, cy, half * 0.8, 0.6, 2 * Math.PI - 0.3);
    context.stroke();
    context.beginPath();
    context.moveTo(cx + half * 0.2, cy - half * 0.1);
    context.lineTo(cx + half * 1.2, cy - half * 0.1);
    context.lineTo(cx + half * 0.8, cy + half * 0.7);
    context.fill();
  } else {
    context.fillRect(cx - 1.2, cy - half - 1, 2.4, size * 0.65);
    context.fillRect(cx - 1.2, cy + half - 1, 2.4, 2.4);
  }
}

export function drawCell(context, letter, x, width) {
  context.fillStyle = palette[letter] ?? palette.free;
  context.fillRect(x, 0, width, HEIGHT);
  if (STATES[letter]) drawSign(context, letter, x, width);
}

export class Strip {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.width = 0;
    this.drawn = "";
    this.slid = null;
    this.cell = 0;
  }

  // Draws a window; animates cells that have left it since the last call.
  draw(row, slid, capacity, width, cursor, theme) {
    const all = Math.max(capacity, row.length, 1);
    const key = `${row} ${slid} ${all} ${width} ${cursor} ${theme} ${devicePixelRatio}`;
    if (key === this.drawn) return;
    const gone = this.slid === null ? 0 : slid - this.slid;
    this.drawn = key;
    this.slid = slid;
    this.fit(width);
    const cell = (this.cell = Math.min(26, width / all));
    const gap = cell > 6 ? GAP : 1;
    const context = this.context;
    context.clearRect(0, 0, width, HEIGHT);
    for (let index = 0; index < all; index++) {
      drawCell(context, row[index], index * cell, cell - gap);
    }
    if (row.length) {
      context.fillStyle = palette.mark;
      context.fillRect(0, 0, 3, HEIGHT); // the start cell
      context.fillRect(row.length * cell - gap - 3, 0, 3, HEIGHT); // the end cell
      context.fillRect((row.length - 1) * cell + cell / 2, HEIGHT - 2, cell / 2 - gap, 2);
      context.fillRect(0, HEIGHT - 2, cell / 2, 2);
    }
    if (cursor !== null && cursor < all) {
      context.strokeStyle = palette.cursor;
      context.lineWidth = 3;
      context.strokeRect(cursor * cell + 1.5, 1.5, cell - gap - 3, HEIGHT - 3);
    }
    if (gone > 0 && gone <= 8 && row.length && !matchMedia("(prefers-reduced-motion: reduce)").matches) {
      const from = { transform: `translateX(${gone * cell}px)` };
      this.canvas.animate([from, { transform: "none" }], { duration: 170, easing: "ease-out" });
    }
  }

  fit(width) {
    const pixels = Math.round(width * devicePixelRatio);
    if (this.canvas.width !== pixels) {
      this.canvas.width = pixels;
      this.canvas.height = Math.round(HEIGHT * devicePixelRatio);
      this.canvas.style.width = `${width}px`;
      this.canvas.style.height = `${HEIGHT}px`;
    }
    this.context.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
  }

  cellAt(x) {
    return this.cell ? Math.floor(x / this.cell) : 0;
  }
}
