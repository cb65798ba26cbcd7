// Every panel's front-end: one plain ES module, no build step, no network.
//
// A panel is a picture of one state, the kernel's traits. Moving a control changes the state here and repaints in the
// same frame; the kernel follows, computes the same numbers with labkit, and the two are compared (see `checkTruth`).
// Order of this file: arithmetic, numbers in words, DOM helpers, controls, pictures, the frame around a panel, panels.

// ── arithmetic: all that is repeated from labkit; a test runs it under Node against labkit ──────────────────────────

/** Weights of one row over its allowed sources; null where nothing is allowed (labkit raises EmptyRowError). */
export function softmaxRow(scores, allowed) {
  const top = Math.max(...scores.filter((_, j) => allowed[j]));
  if (top === -Infinity) return null;
  const powers = scores.map((score, j) => (allowed[j] ? Math.exp(score - top) : 0));
  const total = sum(powers);
  return powers.map((power) => power / total);
}

export const softmaxOverSources = (scores, allowed) => scores.map((row, i) => softmaxRow(row, allowed[i]));

/** Mixture of the value vectors: (m), (m, d_v) -> (d_v). A source of weight 0 is left out, whatever it holds. */
export const mixRow = (weights, values) =>
  weights && values[0].map((_, c) => sum(values.map((value, j) => (weights[j] === 0 ? 0 : weights[j] * value[c]))));

export const mix = (weights, values) => weights.map((row) => mixRow(row, values));

/** One row times a matrix: (d), (d, e) -> (e). */
export const rowTimes = (row, matrix) => row && matrix[0].map((_, c) => sum(row.map((x, r) => x * matrix[r][c])));

/** (n, m) allowed by three rules at once; `align` says which corners of the causal triangle coincide. */
export function combineMasks({ causal, align, is_real, by_hand }) {
  const shift = align === "bottom-right" ? by_hand[0].length - by_hand.length : 0;
  return by_hand.map((row, i) => row.map((open, j) => open && is_real[j] && (!causal || j <= i + shift)));
}

const sum = (numbers) => numbers.reduce((total, x) => total + x, 0);
const plus = (a, b) => a && a.map((x, i) => x + b[i]);

// ── numbers in words ───────────────────────────────────────────────────────────────────────────────────────────────

const minus = (text) => text.replace("-", "−");

/** Fixed decimals without a negative zero. */
const fixed = (x, digits = 2) => minus(Math.abs(x) < 0.5 * 10 ** -digits ? (0).toFixed(digits) : x.toFixed(digits));

/** As few decimals as two allow: 1.5, 3, 0.67. */
const brief = (x) => fixed(x).replace(/\.?0+$/, "");

/** "1/3" where x is a fraction with a small denominator, otherwise null. */
export function fraction(x, largest = 64) {
  for (let q = 1; q <= largest; q++) {
    const p = Math.round(x * q);
    if (Math.abs(x - p / q) <= 1e-12 * Math.max(1, Math.abs(x))) return minus(q === 1 ? `${p}` : `${p}/${q}`);
  }
  return null;
}

/** "ln 2" where a score is the logarithm of a small fraction. */
export function logName(score) {
  const name = Math.abs(score) < 3.5 && fraction(Math.exp(score), 8);
  return name && name !== "0" ? `ln ${name}` : null;
}

const exactly = (x) => {
  const name = fraction(x);
  return name && name.includes("/") ? `${name} = ${fixed(x, 3)}` : name || fixed(x, 3);
};
const vector = (numbers) => (numbers ? `(${numbers.map(brief).join(", ")})` : "undefined (0/0)");
const lowered = (text) => String(text).replace(/\d/g, (digit) => "₀₁₂₃₄₅₆₇₈₉"[digit]);
const sub = (i) => lowered(i + 1);
/** The number of a position: its name where that is a number, otherwise its place counted from 1. */
const numberOf = (names) => (i) => (/^\d+$/.test(names[i]) ? names[i] : i + 1);
const list = (names) => names.join(", ");
const clamp = (x, low, high) => Math.min(high, Math.max(low, x));

/** Equal numbers, texts or nested lists; null (0/0) is the same as null only. */
function same(a, b) {
  if (Array.isArray(a) && Array.isArray(b)) return a.length === b.length && a.every((x, i) => same(x, b[i]));
  return a === b || (typeof a === "number" && typeof b === "number" && Math.abs(a - b) < 1e-12);
}

// ── DOM helpers ────────────────────────────────────────────────────────────────────────────────────────────────────

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "g", "path", "line", "circle", "polygon", "text", "rect", "tspan"]);

/** h("button", { class: "x", onclick: f }, "text", child) -> element */
function h(tag, props = {}, ...children) {
  const node = SVG_TAGS.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  set(node, props);
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

/** Write attributes, text and listeners, touching only what differs: repainting 300 cells must fit in a frame. */
function set(node, props) {
  for (const [name, value] of Object.entries(props)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "text") write(node, value);
    else if (name === "style") for (const [key, v] of Object.entries(value)) node.style.setProperty(key, v);
    else if (value === null || value === undefined || value === false) node.removeAttribute(name);
    else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value === true ? "" : value);
  }
  return node;
}

/** How strongly a weight colours its cell: where black reads better than the usual ink, and where white may. */
const heat = (weight) => (weight > 0.86 ? "full" : weight > 0.58 ? "half" : false);

/** Show one text; the text node stays the same, because a new one costs the browser a new box. */
function write(node, text) {
  const only = node.childNodes.length === 1 && node.firstChild;
  if (only?.nodeType === 3) only.data === text || (only.data = text);
  else if (node.textContent !== text) node.textContent = text;
}

/** Tell whether the arguments differ from the last ones: most cells of a large map stay as they are. */
function memory() {
  let last = [];
  return (...now) => {
    const differs = now.some((x, i) => x !== last[i]) || last.length === 0;
    last = now;
    return differs;
  };
}

/** One tab stop for a group of controls: the one at `current`. */
function roving(nodes, current) {
  nodes.forEach((node, i) => set(node, { tabindex: i === current ? 0 : -1 }));
}

// ── controls ───────────────────────────────────────────────────────────────────────────────────────────────────────

const LANDMARKS = [1, 2, 4].map((k) => ({ at: Math.log(k), name: `ln ${k}` }));
const TRAVEL = 92; // pixels of a drag from the lowest to the highest value

/**
 * A number moved up and down, by dragging inside it or by keys: a slider shaped like a filled tank.
 * Arrow and page keys halt at its `stops` and a drag snaps to one nearby, so that landmarks are easy to hit exactly.
 */
function tank({ label, low, high, step = 0.1, stops, marks = [], kind = "score", onInput, onSide }) {
  const height = (x) => `${100 * clamp((x - low) / (high - low), 0, 1)}%`;
  const { track, text, fill, ghost, big, small } = tankParts();
  const floor = kind === "score" ? low : clamp(0, low, high); // scores are levels, values are bars from zero
  const crowded = (TRAVEL * Math.LN2) / (high - low) < 11;
  track.append(
    ...marks.map((mark, k) =>
      h("i", { class: "tick", style: { bottom: height(mark.at) } }, crowded && k % 2 ? "" : mark.name),
    ),
  );
  const props = { class: `lk-tank ${kind}`, role: "slider", tabindex: -1, "aria-label": label };
  const range = { "aria-orientation": "vertical", "aria-valuemin": low, "aria-valuemax": high };
  const node = h("div", { ...props, ...range }, track, text);
  let value = low;
  const put = (x) => (x = clamp(x, low, high)) === value || onInput(x);
  const between = (a, b) => stops().filter((x) => x > Math.min(a, b) + 1e-9 && x < Math.max(a, b) - 1e-9);
  const towards = (target) => {
    const met = between(value, target).sort((a, b) => Math.abs(a - value) - Math.abs(b - value));
    put(met.length ? met[0] : target);
  };
  const grid = (x) => Math.round(x / step) * step;
  const tidy = (x) => Number(x.toFixed(10));
  onKeys(node, {
    ArrowUp: () => towards(tidy(grid(value + step))),
    ArrowDown: () => towards(tidy(grid(value - step))),
    ArrowRight: () => (onSide ? onSide(1) : towards(tidy(grid(value + step)))),
    ArrowLeft: () => (onSide ? onSide(-1) : towards(tidy(grid(value - step)))),
    PageUp: () => towards(value + 10 * step),
    PageDown: () => towards(value - 10 * step),
    Home: () => put(low),
    End: () => put(high),
  });
  onDrag(
    node,
    () => value,
    (start, dx, dy) => {
      const raw = start - (dy * (high - low)) / TRAVEL;
      const stop = stops().find((x) => Math.abs(x - raw) < (3 * (high - low)) / TRAVEL);
      put(stop ?? tidy(Math.round(raw / (step / 10)) * (step / 10)));
    },
  );
  const fresh = memory();
  const update = (x, { before = x, words = [brief(x), ""], off = false } = {}) => {
    value = x;
    if (!fresh(x, before, off)) return;
    const spoken = words.filter(Boolean).join(", ");
    set(node, {
      "aria-valuenow": x,
      "aria-valuetext": spoken,
      "data-off": off,
      "data-moved": Math.abs(before - x) > 1e-12,
    });
    set(fill, {
      style: {
        bottom: height(Math.min(floor, x)),
        height: `${(100 * Math.abs(clamp(x, low, high) - floor)) / (high - low)}%`,
      },
    });
    set(ghost, { style: { bottom: height(before) } });
    set(big, { text: words[0] });
    set(small, { text: words[1] });
  };
  return { node, update };
}

function tankParts() {
  const [fill, ghost, big, small] = [h("i", { class: "fill" }), h("i", { class: "ghost" }), h("b"), h("small")];
  return {
    fill,
    ghost,
    big,
    small,
    track: h("div", { class: "track" }, fill, ghost),
    text: h("span", { class: "text" }, big, small),
  };
}

/** A weight as a level between 0 and 1: the picture of a tank, without being a control. */
function level(kind = "weight") {
  const { track, text, fill, ghost, big, small } = tankParts();
  const node = h("div", { class: `lk-tank ${kind}` }, track, text);
  const fresh = memory();
  const update = (weight, { before = weight, open = true, hidden = false } = {}) => {
    if (!fresh(weight, before, open, hidden)) return;
    const shown = hidden || weight === null ? 0 : weight;
    const [top, below] = hidden ? ["?", ""] : weightText(weight, open);
    set(node, { "data-off": !open, "data-moved": !hidden && !same(before ?? 0, shown), "data-hot": heat(shown) });
    set(node, { style: { "--w": shown } });
    set(fill, { style: { height: `${100 * shown}%` } });
    set(ghost, { style: { bottom: `${100 * (before ?? 0)}%` } });
    set(big, { text: top });
    set(small, { text: below });
  };
  return { node, update };
}

function weightText(weight, open) {
  if (weight === null) return ["0/0", "undefined"];
  if (!open) return ["0", "blocked"];
  const name = fraction(weight);
  if (name) return [name, name.includes("/") ? fixed(weight, 3) : ""];
  return [weight < 0.0005 ? "<0.001" : fixed(weight, 3), ""]; // only a blocked weight is exactly 0
}

/** An on/off button that says its state in words. */
function toggle({ label, texts, onInput, onSide }) {
  const node = h("button", { class: "lk-toggle", type: "button", role: "switch", tabindex: -1, "aria-label": label });
  node.addEventListener("click", () => onInput(node.getAttribute("aria-checked") !== "true"));
  if (onSide) onKeys(node, { ArrowRight: () => onSide(1), ArrowLeft: () => onSide(-1) });
  return { node, update: (on) => set(node, { "aria-checked": String(on), text: texts[on ? 1 : 0] }) };
}

/** One of a few named options, as a radio group in which arrow keys move the choice. */
function choice({ label, options, onInput }) {
  const pick = (i) => (onInput(options[i][0]), nodes[i].focus());
  const nodes = options.map(([, text], i) =>
    h("button", { type: "button", role: "radio", onclick: () => pick(i) }, text),
  );
  nodes.forEach((node, i) => {
    const go = (d) => () => pick((i + d + nodes.length) % nodes.length);
    onKeys(node, { ArrowRight: go(1), ArrowDown: go(1), ArrowLeft: go(-1), ArrowUp: go(-1) });
  });
  const node = h("div", { class: "lk-choice", role: "radiogroup", "aria-label": label }, h("span", {}, label), nodes);
  return {
    node,
    update(value) {
      const current = options.findIndex(([name]) => name === value);
      nodes.forEach((button, i) => set(button, { "aria-checked": String(i === current) }));
      roving(nodes, Math.max(0, current));
    },
  };
}

/** Run one function per key; modifier keys other than Shift are left to the browser. */
function onKeys(node, actions) {
  node.addEventListener("keydown", (event) => {
    const action = !event.ctrlKey && !event.metaKey && !event.altKey && actions[event.key];
    if (!action) return;
    event.preventDefault();
    event.stopPropagation();
    action(event);
  });
}

/** Follow the pointer from press to release: move(what start() gave, dx, dy). */
function onDrag(node, start, move) {
  node.addEventListener("pointerdown", (down) => {
    if (down.button !== 0) return;
    down.preventDefault();
    node.focus({ preventScroll: true });
    node.setPointerCapture(down.pointerId);
    const origin = start();
    const follow = (event) => move(origin, event.clientX - down.clientX, event.clientY - down.clientY);
    const stop = () =>
      ["pointermove", "pointerup", "pointercancel"].forEach((name, i) =>
        node.removeEventListener(name, i ? stop : follow),
      );
    node.addEventListener("pointermove", follow);
    node.addEventListener("pointerup", stop);
    node.addEventListener("pointercancel", stop);
  });
}

/** Give a row of controls one tab stop and let left and right move along it. */
function alongside(count, make) {
  const made = [];
  const go = (j) => (d) => made[clamp(j + d, 0, count - 1)].node.focus();
  for (let j = 0; j < count; j++) made.push(make(j, go(j)));
  const nodes = made.map((control) => control.node);
  nodes.forEach((node, j) => node.addEventListener("focus", () => roving(nodes, j)));
  roving(nodes, 0);
  return made;
}

// ── pictures ───────────────────────────────────────────────────────────────────────────────────────────────────────

/** A matrix as a table with named rows and columns; `cell(i, j)` and `head(i)` give what stands in it. */
function matrix({ name, title, note, rows, columns, cell, head, kind, corner = "" }) {
  const heading = h(
    "tr",
    {},
    h("td", { class: "corner" }, corner),
    columns.map((text) => h("th", { scope: "col" }, text)),
  );
  const lines = rows.map((text, i) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, head ? head(i) : text),
      columns.map((_, j) => h("td", {}, cell(i, j))),
    ),
  );
  const caption = h("caption", {}, h("b", { class: kind }, name), ` ${title}`, note ? h("span", {}, note) : null);
  const node = h(
    "table",
    { class: `lk-matrix ${columns.length > 6 ? "dense" : ""}`, "data-name": name, style: { "--n": columns.length } },
    caption,
    h("thead", {}, heading),
    h("tbody", {}, lines),
  );
  return { node: h("div", { class: "lk-scroll" }, node), lines };
}

/** Corners of the convex hull, counter-clockwise (Andrew's monotone chain). */
export function convexHull(points) {
  const sorted = [...points].sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  const turn = (o, a, b) => (a[0] - o[0]) * (b[1] - o[1]) - (a[1] - o[1]) * (b[0] - o[0]);
  const half = (list) => {
    const chain = [];
    for (const p of list) {
      while (chain.length > 1 && turn(chain.at(-2), chain.at(-1), p) <= 0) chain.pop();
      chain.push(p);
    }
    return chain.slice(0, -1);
  };
  return sorted.length < 3 ? sorted : [...half(sorted), ...half(sorted.reverse())];
}

/**
 * A plane with value vectors as arrows whose tips can be moved, the polygon they span, and mixtures as thick arrows.
 * update({ tips: [{ name, at, open }], arrows: [{ name, at, before }] }); `at` null draws nothing.
 */
function plane({ label, range, tips = [], arrows = [], onMove }) {
  const [low, high] = range;
  const size = 300;
  const unit = (size - 40) / (high - low);
  const to = ([x, y]) => [20 + (x - low) * unit, size - 20 - (y - low) * unit];
  const origin = to([0, 0]);
  const every = high - low > 14 ? 5 : high - low > 8 ? 2 : 1;
  const grid = [];
  for (let k = Math.ceil(low / every) * every; k <= high; k += every) {
    const [x, y] = to([k, k]);
    const axis = k === 0 ? "axis" : "grid";
    grid.push(
      h("line", { class: axis, x1: x, x2: x, y1: 20, y2: size - 20 }),
      h("line", { class: axis, x1: 20, x2: size - 20, y1: y, y2: y }),
    );
    if (k !== 0)
      grid.push(
        h("text", { class: "scale", x, y: origin[1] + 17 }, brief(k)),
        h("text", { class: "scale", x: origin[0] - 13, y: y + 4 }, brief(k)),
      );
  }
  const hull = h("polygon", { class: "hull" });
  const values = tips.map((name, j) => tip({ name, low, high, unit, onMove: onMove && ((at) => onMove(j, at)) }));
  const mixtures = arrows.map(({ kind }) => ({
    ghost: arrow(`${kind} ghost`),
    line: arrow(kind),
    text: h("text", { class: `name ${kind}` }),
  }));
  const node = h(
    "svg",
    { class: "lk-plane", viewBox: `0 0 ${size} ${size}`, role: "group", "aria-label": label },
    h("g", { "aria-hidden": "true" }, grid),
    hull,
    values.map((value) => value.line.node),
    mixtures.map((mixture) => [mixture.ghost.node, mixture.line.node]).flat(),
    values.map((value) => value.node),
    mixtures.map((mixture) => mixture.text),
  );
  return {
    node,
    update({ tips: now = [], arrows: thick = [] }) {
      set(hull, {
        points: convexHull(now.filter((t) => t.open).map((t) => to(t.at)))
          .map((p) => p.join(","))
          .join(" "),
      });
      const place = beside();
      now.forEach((value, j) => values[j].update(value, to, origin, now, place));
      thick.forEach(({ name, at, before }, k) => {
        mixtures[k].line.update(origin, at && to(at));
        mixtures[k].ghost.update(origin, at && before && !same(at, before) ? to(before) : null);
        const [x, y] = at ? beyond(to(at), origin, -0.3, 0) : [0, 0];
        const words = at ? shared(thick, thick[k]) : "";
        place(mixtures[k].text, x + 4 + 4 * words.length, y + 10, words);
      });
    },
  };
}

/** The name of an arrow or tip; those that end in one place share a label, which the first of them carries. */
function shared(all, one) {
  const here = all.filter((other) => same(other.at, one.at));
  return here[0] === one ? list([...new Set(here.map((other) => other.name + (other.open === false ? " ✕" : "")))]) : "";
}

/** Write labels one after the other, each at its place or, where that is taken, at the nearest free one above or below. */
function beside() {
  const taken = [];
  return (node, x, y, text) => {
    const half = 4 * text.length + 1;
    const free = (to) => !taken.some((t) => Math.abs(t.y - to) < 15 && Math.abs(t.x - x) < t.half + half);
    const at = [0, 15, -15, 30, -30, 45, -45].map((step) => y + step).find(free) ?? y;
    if (text) taken.push({ x, y: at, half });
    set(node, { x, y: at, text });
  };
}

/** A point a little beyond `p` as seen from `o`: where a label does not sit on its arrow. */
function beyond(p, o, share, pixels) {
  const length = Math.hypot(p[0] - o[0], p[1] - o[1]) || 1;
  return p.map((x, i) => x + (x - o[i]) * share + ((x - o[i]) / length) * pixels);
}

function arrow(kind, room = 0) {
  const [line, point] = [h("line", {}), h("path", {})];
  const node = h("g", { class: `arrow ${kind}`, "aria-hidden": "true" }, line, point);
  return {
    node,
    update(from, to) {
      const long = to && Math.hypot(to[0] - from[0], to[1] - from[1]) > room + 1;
      set(node, { visibility: long ? "visible" : "hidden" });
      if (!long) return;
      const angle = (Math.atan2(to[1] - from[1], to[0] - from[0]) * 180) / Math.PI;
      const [end, head] = [beyond(to, from, 0, -room - 8), beyond(to, from, 0, -room)];
      set(line, { x1: from[0], y1: from[1], x2: end[0], y2: end[1] });
      set(point, { d: "M-11,-6 L0,0 L-11,6 Z", transform: `translate(${head[0]} ${head[1]}) rotate(${angle})` });
    },
  };
}

/** The movable tip of one value vector: a two-dimensional slider. */
function tip({ name, low, high, unit, onMove }) {
  const line = arrow("value", 6);
  const text = h("text", { class: "name value" });
  const knob = [h("circle", { class: "reach", r: 15 }), h("circle", { class: "knob", r: 6 })];
  const control = onMove
    ? { role: "slider", tabindex: -1, "aria-label": `tip of ${name}`, "aria-valuemin": low, "aria-valuemax": high }
    : {};
  const node = h("g", { class: `tip ${onMove ? "movable" : ""}`, ...control }, knob, text);
  let at = [0, 0];
  const put = (x, y) => onMove([x, y].map((c) => clamp(Math.round(c * 4) / 4, low, high)));
  if (onMove) {
    const go = (x, y) => (event) =>
      put(at[0] + x * (event.shiftKey ? 1 : 0.25), at[1] + y * (event.shiftKey ? 1 : 0.25));
    onKeys(node, { ArrowUp: go(0, 1), ArrowDown: go(0, -1), ArrowRight: go(1, 0), ArrowLeft: go(-1, 0) });
    onDrag(
      node,
      () => ({ at, scale: unit * (node.ownerSVGElement.getBoundingClientRect().width / 300) }),
      (start, dx, dy) => put(start.at[0] + dx / start.scale, start.at[1] - dy / start.scale),
    );
  }
  return {
    node,
    line,
    update(value, to, origin, all, place) {
      at = value.at;
      const [x, y] = to(at);
      line.update(origin, [x, y]);
      set(line.node, { "data-off": !value.open });
      set(node, { "data-off": !value.open });
      if (onMove)
        set(node, { "aria-valuenow": at[0], "aria-valuetext": `${vector(at)}${value.open ? "" : ", blocked"}` });
      knob.forEach((circle) => set(circle, { cx: x, cy: y }));
      const words = shared(all, value);
      const [lx, ly] = beyond([x, y], origin, 0, 15);
      const aside = ((lx - x) / 15) * (4 * Math.max(words.length, 2) - 8); // a long label starts where a short one does
      place(text, lx + aside, ly + 5, words);
    },
  };
}

// ── the frame around a panel: title, lock, reset, ledger, question, comparison with the kernel ──────────────────────

/** What a move can change, in pieces: `whole("V", x)` or `byRow("A", rows, (i) => "A row 1", "the other rows of A")`. */
const whole = (name, numbers) => ({ name, pieces: [{ name, numbers }] });
const byRow = (name, rows, label, rest) => ({
  name,
  rest,
  pieces: rows.map((numbers, i) => ({ name: label(i), numbers })),
});

/** Sort pieces into those that moved and those that did not, in the words of the ledger. */
export function ledger(now, before) {
  const [changed, unchanged] = [[], []];
  now.forEach((part, p) => {
    const moved = part.pieces.filter((piece, i) => !same(piece.numbers, before[p].pieces[i].numbers));
    if (!moved.length) return unchanged.push(part.name);
    const all = moved.length === part.pieces.length && moved.length > 1;
    const several =
      moved.length > 4
        ? [`${moved.length} of ${part.pieces.length} in ${part.name}`]
        : moved.map((piece) => piece.name);
    changed.push(...(all ? [part.name] : several));
    if (moved.length < part.pieces.length) unchanged.push(part.rest);
  });
  return { changed, unchanged };
}

/** The groups a learner is asked about: the row in focus apart from the others. */
function groups(now, before, row) {
  return now.flatMap((part, p) => {
    const moved = part.pieces.map((piece, i) => !same(piece.numbers, before[p].pieces[i].numbers));
    if (moved.length === 1 || part.asWhole) return [{ name: part.name, moved: moved.includes(true) }];
    const here = Math.min(row, moved.length - 1);
    return [
      { name: part.pieces[here].name, moved: moved[here] },
      { name: part.rest, moved: moved.some((m, i) => m && i !== here) },
    ];
  });
}

/** The row or source that a move was made in, where the panel has none in focus: the only one of its kind that moved. */
function movedIn(now, before) {
  for (const [p, part] of now.entries()) {
    const moved = part.pieces.flatMap((piece, i) => (same(piece.numbers, before[p].pieces[i].numbers) ? [] : [i]));
    if (moved.length === 1 && part.pieces.length > 1) return moved[0];
  }
  return 0;
}

// Milliseconds between two messages to the kernel. The drawing needs none, and each of them makes JupyterLab redraw
// its status line and the page's icon, which costs more than our own repaint.
const KERNEL_PAUSE = 250;

export function render({ model: kernel, el }) {
  const unsent = {}; // moves the kernel has not heard of: what arrives from it meanwhile must not undo them
  const get = (key) => (key in unsent ? unsent[key] : kernel.get(key));
  const model = { standalone: kernel.standalone, get };
  const panel = PANELS[model.get("kind")];
  const read = () => panel.derive(Object.fromEntries(panel.keys.map((key) => [key, model.get(key)])), model);
  const parts = (state) => panel.parts(state, model);
  const start = model.get("start");
  let now = read();
  let [before, control, mine, queued] = [now, null, false, false];
  let [saved, saving] = [-KERNEL_PAUSE, 0]; // when the kernel last heard of a move; the timer of the next time

  /** Write a patch to the model; `name` tells which control moved, so that one run of moves has one "before". */
  const change = (name, patch) => {
    if (model.get("locked")) return;
    if (name !== control) [control, before] = [name, now];
    send({ ...patch, revision: model.get("revision") + 1 });
  };
  const send = (patch) => {
    Object.assign(unsent, patch);
    repaint();
    save();
  };
  const save = () => {
    clearTimeout(saving);
    const wait = saved + KERNEL_PAUSE - performance.now();
    if (wait > 0) {
      saving = setTimeout(save, wait);
      return;
    }
    [saved, saving] = [performance.now(), 0];
    flush();
  };
  const flush = () => {
    const moves = Object.entries(unsent);
    moves.forEach(([key]) => delete unsent[key]);
    mine = true;
    moves.forEach(([key, value]) => kernel.set(key, value));
    mine = false;
    kernel.save_changes();
  };
  const reset = () => {
    send({ ...start, revision: model.get("revision") + 1 });
    [control, before] = [null, read()];
  };

  /** Look elsewhere (another row, another map): no move, so the ledger does not start anew. */
  const look = (patch) => Object.entries(patch).some(([key, value]) => model.get(key) !== value) && send(patch);
  const ui = { model, get, start, change, look };
  const view = panel.build(ui);
  const frame = buildFrame({ model, panel, view, reset, send });
  const paint = () => {
    queued = false;
    now = read();
    const locked = model.get("locked");
    view.update(now, before, locked);
    frame.update({ locked, now: parts(now), before: parts(before), spoken: panel.spoken(now, model) });
  };
  const follow = (key) => {
    if (!mine) {
      delete unsent[key]; // the kernel or another view moved it: the last one counts
      [control, before] = [null, now];
    }
    repaint();
  };
  const repaint = () => {
    if (queued) return;
    queued = true;
    queueMicrotask(paint); // several traits of one change, one repaint, still before the next frame
  };
  const checkTruth = () => {
    if (model.get("confirmed") !== model.get("revision")) return; // the kernel has not caught up yet
    frame.truth(disagreement(panel.truth(read()), model));
  };
  const followed = [...panel.keys, ...(panel.looks ?? []), "locked", "noticed"];
  const heard = followed.map((key) => [`change:${key}`, () => follow(key)]);
  heard.push(
    ["change:confirmed", checkTruth],
    ...Object.keys(panel.truth(now)).map((key) => [`change:${key}`, checkTruth]),
  );
  heard.forEach(([name, listener]) => kernel.on(name, listener));
  el.append(frame.node);
  paint();
  checkTruth();
  return () => {
    heard.forEach(([name, listener]) => kernel.off(name, listener));
    if (saving) {
      clearTimeout(saving);
      flush();
    }
  };
}

/** Largest difference between the numbers here and the kernel's; null on both sides (0/0) agrees. */
function disagreement(local, model) {
  const pairs = (a, b) => (Array.isArray(a) && Array.isArray(b) ? a.flatMap((x, i) => pairs(x, b[i])) : [[a, b]]);
  const gap = ([a, b]) => (a === null || b === null ? (a === b ? 0 : Infinity) : Math.abs(a - b));
  return Math.max(0, ...Object.keys(local).flatMap((key) => pairs(local[key], model.get(key)).map(gap)));
}

function buildFrame({ model, panel, view, reset, send }) {
  const title = h("h4", {}, model.get("title"));
  const again = h("button", { class: "lk-reset", type: "button", onclick: reset }, "Reset");
  const lock = h("p", { class: "lk-lock", role: "note" });
  const line = h("p", { class: "lk-ledger" });
  const live = h("p", { class: "lk-live", role: "status" });
  const notice = h("p", { class: "lk-notice", role: "status", hidden: true });
  const ask = buildAsk(model, send);
  const help = h("details", { class: "lk-help" }, h("summary", {}, "How to move things"), h("p", {}, panel.help));
  const still = panel.keys.length === 0; // nothing to move: no reset, no ledger
  const node = h(
    "section",
    {
      class: "lk",
      "data-lm-suppress-shortcuts": "true",
      "data-kind": model.get("kind"),
      "aria-label": model.get("title"),
    },
    h("header", {}, title, still ? null : again),
    lock,
    view.node,
    ask.node,
    line,
    notice,
    help,
    live,
  );
  let timer;
  const open = h(
    "button",
    { type: "button", onclick: () => send({ locked: false }) },
    "I have written my prediction down: open",
  );

  const update = ({ locked, now, before, spoken }) => {
    set(again, { disabled: locked });
    set(lock, { hidden: !locked });
    if (locked)
      lock.replaceChildren(
        h("b", {}, "Predict first. "),
        "Answer ",
        h("code", {}, model.get("locked_by") ?? ""),
        " and run its check; then this panel opens. ",
        model.standalone ? open : "",
      );
    const { changed, unchanged } = ledger(now, before);
    const asking = ask.update({ locked, now, before, moved: changed.length > 0 });
    set(node, { "data-locked": locked, "data-asking": asking });
    set(line, { hidden: locked || asking || still });
    writeLedger(line, changed, unchanged);
    clearTimeout(timer); // speak once things have come to rest
    if (!locked)
      timer = setTimeout(() => set(live, { text: asking ? spoken : `${spoken} ${inWords(changed, unchanged)}` }), 500);
  };
  const truth = (gap) => {
    set(notice, { hidden: !(gap > 1e-9) });
    set(notice, {
      text:
        gap > 1e-9
          ? `The kernel's numbers differ from the ones drawn here by ${gap.toPrecision(2)}. Trust the kernel, and please report it.`
          : "",
    });
  };
  return { node, update, truth };
}

const inWords = (changed, unchanged) =>
  changed.length ? `Changed: ${list(changed)}. Unchanged: ${list(unchanged)}.` : "";

function writeLedger(line, changed, unchanged) {
  const text = changed.length
    ? [
        h("b", { class: "moved" }, "changed: "),
        list(changed),
        h("span", {}, " · "),
        h("b", {}, "unchanged: "),
        list(unchanged) || "nothing",
      ]
    : ["Move something: this line says what changed and what did not."];
  if (line.textContent !== text.map((t) => t.textContent ?? t).join("")) line.replaceChildren(...text);
}

/** After a locked panel has opened and something has moved: "Which entries moved?", once, before the ledger tells. */
function buildAsk(model, send) {
  const chips = h("div", { class: "lk-chips" });
  const compare = h("button", { type: "button", class: "lk-compare" }, "Compare");
  const verdict = h("p", { class: "lk-verdict" });
  const node = h(
    "div",
    { class: "lk-ask", role: "group", "aria-label": "Which entries moved?", hidden: true },
    h("b", {}, "Which entries moved?"),
    chips,
    compare,
    verdict,
  );
  const said = new Set();
  let current = [];
  let told = ""; // the numbers the verdict is about
  const draw = () => {
    if (
      chips.childElementCount !== current.length ||
      current.some((group, i) => chips.children[i].textContent !== group.name)
    )
      chips.replaceChildren(
        ...current.map(({ name }) =>
          h("button", { type: "button", onclick: (event) => press(event.currentTarget, name) }, name),
        ),
      );
    current.forEach(({ name }, i) => set(chips.children[i], { "aria-pressed": String(said.has(name)) }));
  };
  const press = (button, name) => {
    said.has(name) ? said.delete(name) : said.add(name);
    set(button, { "aria-pressed": String(said.has(name)) });
  };
  compare.addEventListener("click", () => {
    const names = (keep) => current.filter(keep).map(({ name }) => name);
    send({ noticed: { said: names(({ name }) => said.has(name)), moved: names(({ moved }) => moved) } });
  });
  const tell = ({ said, moved }) => {
    const [missed, extra] = [
      moved.filter((name) => !said.includes(name)),
      said.filter((name) => !moved.includes(name)),
    ];
    if (!missed.length && !extra.length) return `Yes: ${list(moved)} moved, and nothing else.`;
    return [
      missed.length && `Also moved: ${list(missed)}.`,
      extra.length && `Did not move: ${list(extra)}.`,
      "Look at the pictures again: why?",
    ]
      .filter(Boolean)
      .join(" ");
  };
  return {
    node,
    update({ locked, now, before, moved }) {
      const noticed = model.get("noticed");
      const answered = Object.keys(noticed).length > 0;
      const asking = Boolean(model.get("locked_by")) && !locked && !answered;
      set(node, { hidden: !(answered || (asking && moved)) });
      [chips, compare].forEach((part) => set(part, { hidden: answered }));
      const numbers = JSON.stringify(now.map((part) => part.pieces.map((piece) => piece.numbers)));
      if (answered && !told) told = numbers;
      set(verdict, { text: answered && told === numbers ? tell(noticed) : "" }); // after the next move it is history
      if (asking && moved) ((current = groups(now, before, model.get("row") ?? movedIn(now, before))), draw());
      return asking;
    },
  };
}

// ── panels ─────────────────────────────────────────────────────────────────────────────────────────────────────────
// Each: keys a move can change, derive(state), truth(now) named like the kernel's traits, parts(now) for the ledger,
// spoken(now) for screen readers, build(ui) -> { node, update(now, before, locked) }.

const KEYS_HELP =
  "Mouse or finger: drag up and down inside a cell with a level; drag the tip of a vector. Keys: Tab to a control, up and down arrows change it " +
  "(Page Up and Page Down in large steps, Home and End to the ends), left and right arrows go to the neighbour. Steps stop at ln 1, ln 2, ln 4 and at the value it started from.";

const scoreText = (score) => [brief(score), logName(score) ?? ""];

/** Replace one entry of a row, or of a matrix. */
const withEntry = (row, j, x) => row.map((old, k) => (k === j ? x : old));
const withCell = (rows, i, j, x) => withEntry(rows, i, withEntry(rows[i], j, x));

/** Rows that are undefined (0/0) as the kernel sends them: one null for each entry. */
const filled = (rows, width) => rows.map((row) => row ?? Array(width).fill(null));

function scoreTank(ui, { label, start, onInput, onSide }) {
  const [low, high] = ui.get("score_range");
  const marks = LANDMARKS.filter(({ at }) => at >= low && at <= high);
  const stops = () => [...marks.map(({ at }) => at), typeof start === "function" ? start() : start];
  return tank({ label, low, high, marks, stops, onInput, onSide });
}

const softmax_row = {
  keys: ["scores", "allowed"],
  derive: (state) => ({ ...state, weights: softmaxRow(state.scores, state.allowed) }),
  truth: (now) => ({ weights: filled([now.weights], now.scores.length)[0] }),
  parts: ({ scores, allowed, weights }, model) => {
    const names = model.get("labels");
    const cells = (letter, numbers) => numbers.map((x) => [x]);
    return [
      byRow("scores", cells("s", scores), (j) => `score of ${names[j]}`, "the other scores"),
      whole("mask", allowed),
      byRow(
        "weights",
        cells("a", weights ?? scores.map(() => null)),
        (j) => `weight of ${names[j]}`,
        "the other weights",
      ),
      whole("the sum of the weights", [weights ? 1 : null]),
    ];
  },
  spoken: ({ weights }, model) =>
    weights
      ? `Weights: ${weights.map((w, j) => `${model.get("labels")[j]} ${exactly(w)}`).join(", ")}.`
      : "No source is allowed: 0/0 is undefined.",
  help: KEYS_HELP,
  build(ui) {
    const { scores, allowed } = ui.start;
    const names = ui.get("labels");
    const tanks = alongside(names.length, (j, onSide) =>
      scoreTank(ui, {
        label: `score of ${names[j]}`,
        start: scores[j],
        onSide,
        onInput: (x) => ui.change(`score ${j}`, { scores: withEntry(ui.get("scores"), j, x) }),
      }),
    );
    const gates = alongside(allowed.length, (j, onSide) =>
      toggle({
        label: `${names[j]} may be read`,
        texts: ["✕ blocked", "✓ allowed"],
        onSide,
        onInput: (on) => ui.change(`mask ${j}`, { allowed: withEntry(ui.get("allowed"), j, on) }),
      }),
    );
    const powers = names.map(() => ({ node: h("div", { class: "lk-number" }) }));
    const weights = names.map(() => level());
    const shares = names.map((name) => h("div", { class: "share" }, h("span", {}, name)));
    const ghosts = names.map(() => h("div", { class: "share" }));
    const totals = ["", "", h("div", { class: "lk-number" }), h("div", { class: "lk-number" })];
    const exponent = h("span", {}, "eˢ");
    const grid = matrix({
      name: "softmax",
      kind: "score",
      title: "of one row",
      rows: ["", "", "", ""],
      columns: [...names, "sum"],
      head: (r) =>
        [h("span", { class: "score" }, "score s"), "may read", exponent, h("span", { class: "score" }, "weight")][r],
      cell: (r, j) => (j === names.length ? totals[r] : [tanks, gates, powers, weights][r][j].node),
    });
    [0, 3].forEach((r) => set(grid.lines[r], { "data-on": true }));
    const node = h(
      "div",
      { class: "lk-one" },
      grid.node,
      h(
        "div",
        { class: "lk-shares", "aria-hidden": "true" },
        h("span", {}, "shares of 1"),
        h("div", { class: "bar" }, shares),
        h("div", { class: "bar ghost" }, ghosts),
      ),
    );
    const update = (now, before, locked) => {
      const open = now.scores.filter((_, j) => now.allowed[j]);
      const top = Math.max(...open);
      const shift = open.length && (top > 12 || top < -6) ? top : 0; // large scores: show e^(s − max), as the computation does
      const power = now.scores.map((s, j) => (now.allowed[j] ? Math.exp(s - shift) : 0));
      const [total, text] = [sum(power), (x) => fraction(x, 8) ?? fixed(x, 2)];
      set(exponent, { text: shift ? "e^(s − max)" : "eˢ" });
      now.scores.forEach((s, j) => {
        tanks[j].update(s, { before: before.scores[j], words: scoreText(s), off: !now.allowed[j] });
        gates[j].update(now.allowed[j]);
        set(powers[j].node, {
          text: locked ? "?" : now.allowed[j] ? text(power[j]) : "0",
          "data-off": !now.allowed[j],
        });
        weights[j].update(now.weights && now.weights[j], {
          before: before.weights && before.weights[j],
          open: now.allowed[j],
          hidden: locked,
        });
        const [share, old] = [now.weights, before.weights].map((w) => (w && !locked ? w[j] : 0));
        set(shares[j], { style: { "flex-grow": share }, hidden: share === 0, "data-thin": share < 0.14 });
        set(ghosts[j], { style: { "flex-grow": old } });
      });
      set(totals[2], { text: locked ? "?" : text(total) });
      set(totals[3], { text: locked ? "?" : now.weights ? "1" : "0/0" });
    };
    return { node, update };
  },
};

const scores_and_values = {
  keys: ["scores", "allowed", "values"],
  looks: ["row"],
  derive: (state) => {
    const weights = softmaxOverSources(state.scores, state.allowed);
    return { ...state, weights, output: mix(weights, state.values) };
  },
  truth: ({ weights, output, values }) => ({
    weights: filled(weights, values.length),
    output: filled(output, values[0].length),
  }),
  parts({ scores, allowed, values, weights, output }, model) {
    const [row, source] = [numberOf(model.get("destinations")), numberOf(model.get("labels"))];
    return [
      byRow("S", scores, (i) => `S row ${row(i)}`, "the other rows of S"),
      byRow("mask", allowed, (i) => `mask row ${row(i)}`, "the other rows of the mask"),
      byRow("A", weights, (i) => `A row ${row(i)}`, "the other rows of A"),
      { ...byRow("V", values, (j) => `v${lowered(source(j))}`, "the other values"), asWhole: true },
      byRow("Z", output, (i) => `z${lowered(row(i))}`, "the other rows of Z"),
    ];
  },
  spoken: ({ weights, output }, model) => {
    const i = model.get("row");
    return weights[i]
      ? `Row ${i + 1}: weights ${list(weights[i].map(exactly))}; mixture ${vector(output[i])}.`
      : `Row ${i + 1}: no source is allowed, so 0/0 is undefined.`;
  },
  help: KEYS_HELP + " The buttons left of S choose the destination row; Enter goes from the tip of one vector to the next.",
  build(ui) {
    const { scores, values } = ui.start;
    const [rows, columns] = [ui.get("destinations"), ui.get("labels")];
    const pickers = alongsideRows(rows, (i) => ui.look({ row: i }));
    const grids = scores.map((row, i) => ({
      tanks: alongside(row.length, (j, onSide) =>
        scoreTank(ui, {
          label: `score of destination ${rows[i]}, source ${columns[j]}`,
          start: row[j],
          onSide,
          onInput: (x) => (
            ui.look({ row: i }),
            ui.change(`score ${i} ${j}`, { scores: withCell(ui.get("scores"), i, j, x) })
          ),
        }),
      ),
      gates: alongside(row.length, (j, onSide) =>
        toggle({
          label: `destination ${rows[i]} may read source ${columns[j]}`,
          texts: ["✕ blocked", "✓ allowed"],
          onSide,
          onInput: (on) => ui.change(`mask ${i} ${j}`, { allowed: withCell(ui.get("allowed"), i, j, on) }),
        }),
      ),
      levels: row.map(() => level()),
    }));
    const S = matrix({
      name: "S",
      kind: "score",
      title: "scores",
      note: "drag a level",
      rows,
      columns,
      corner: "to \\ from",
      head: (i) => pickers[i],
      cell: (i, j) => [grids[i].tanks[j].node, grids[i].gates[j].node],
    });
    const A = matrix({
      name: "A",
      kind: "score",
      title: "weights",
      note: "each row sums to 1",
      rows,
      columns,
      corner: "to \\ from",
      cell: (i, j) => grids[i].levels[j].node,
    });
    const mixture = buildMixture(ui, columns, values);
    const warning = h("p", { class: "lk-empty", role: "alert" });
    A.lines.forEach((line, i) => line.addEventListener("click", () => ui.look({ row: i })));
    const maps = h(
      "div",
      { class: "lk-flow" },
      h("div", { class: "stage" }, S.node),
      then("softmax"),
      h("div", { class: "stage" }, A.node, warning),
    );
    const node = h(
      "div",
      { class: "lk-two", style: { "--columns": columns.length } },
      h("div", { class: "main" }, maps, mixture.table),
      mixture.picture,
    );
    const update = (now, before, locked) => {
      const focus = ui.get("row");
      roving(pickers, focus);
      now.scores.forEach((row, i) => {
        const on = i === focus;
        set(pickers[i], { "aria-checked": String(on) });
        [S.lines[i], A.lines[i]].forEach((line) => set(line, { "data-on": on }));
        row.forEach((s, j) => {
          const open = now.allowed[i][j];
          const weight = now.weights[i] && now.weights[i][j];
          grids[i].tanks[j].update(s, { before: before.scores[i][j], words: scoreText(s), off: !open });
          grids[i].gates[j].update(open);
          grids[i].levels[j].update(weight, {
            before: before.weights[i] && before.weights[i][j],
            open,
            hidden: locked,
          });
        });
      });
      const empty = rows.filter((_, i) => !now.weights[i]);
      set(warning, {
        text:
          empty.length && !locked
            ? `Row ${list(empty)} may read no source: softmax there is 0/0, undefined. Allow at least one.`
            : "",
      });
      mixture.update(now, before, focus, locked);
    };
    return { node, update };
  },
};

/** The step from one picture to the next. */
const then = (text) => h("div", { class: "then", "aria-hidden": "true" }, h("span", {}, text), "→");

/** Row names that are also a radio group choosing the destination in focus. */
function alongsideRows(rows, pick) {
  const choose = (i) => (pick(i), nodes[i].focus());
  const nodes = rows.map((name, i) =>
    h(
      "button",
      {
        class: "lk-row",
        type: "button",
        role: "radio",
        "aria-label": `follow destination ${name}`,
        onclick: () => choose(i),
      },
      name,
    ),
  );
  const go = (i, d) => () => choose(clamp(i + d, 0, rows.length - 1));
  nodes.forEach((node, i) =>
    onKeys(node, { ArrowDown: go(i, 1), ArrowUp: go(i, -1), ArrowRight: go(i, 1), ArrowLeft: go(i, -1) }),
  );
  return nodes;
}

/** The value path: the plane (if vectors have two coordinates) and the mixture written out, source by source. */
function buildMixture(ui, columns, values) {
  const range = ui.get("value_range");
  const width = values[0].length;
  const [source, row] = [numberOf(columns), numberOf(ui.get("destinations"))];
  const names = columns.map((_, j) => `v${lowered(source(j))}`);
  const move = (j, at) => ui.change(`value ${j}`, { values: withEntry(ui.get("values"), j, at) });
  const picture =
    width === 2
      ? plane({
          label: "value vectors and their mixture",
          range,
          tips: names,
          arrows: [{ kind: "mixture" }],
          onMove: move,
        })
      : null;
  const cells = values.map((value, j) =>
    alongside(width, (c, onSide) =>
      tank({
        label: `${names[j]}, coordinate ${c + 1}`,
        low: range[0],
        high: range[1],
        step: 0.25,
        stops: () => [value[c]],
        kind: "value",
        onSide,
        onInput: (x) => ui.change(`value ${j}`, { values: withCell(ui.get("values"), j, c, x) }),
      }),
    ),
  );
  const text = () => ({ node: h("span", { class: "lk-number" }) });
  const [shares, parts] = [names.map(text), names.map(text)];
  const [sums, decimals] = [h("b"), h("small")];
  const total = h("span", { class: "lk-number mixture" }, sums, decimals);
  const sumName = h("span", { class: "mixture" });
  const coordinates = values[0].map((_, c) => `v[${c + 1}]`);
  const table = matrix({
    name: "V",
    kind: "value",
    title: "values",
    note: "each times its weight, added up",
    rows: [...names, ""],
    columns: ["weight", ...coordinates, "weight × v"],
    head: (j) => (j < names.length ? h("span", { class: "value" }, names[j]) : sumName),
    cell: (j, c) => (j < names.length ? [shares[j], ...cells[j], parts[j]][c].node : c === width + 1 ? total : null),
  });
  if (picture) tipStops(picture.node);
  const update = (now, before, i, locked) => {
    const [weights, z] = [now.weights[i], now.output[i]];
    const share = (j) => (weights && !locked ? weights[j] : null);
    const unknown = locked ? "?" : "0/0";
    const name = `z${lowered(row(i))}`;
    set(sumName, { text: name });
    const exact = z && z.map((x) => fraction(x));
    const isFraction = exact && exact.every(Boolean) && exact.join().includes("/");
    set(sums, { text: locked || !z ? unknown : isFraction ? `(${list(exact)})` : vector(z) });
    set(decimals, { text: isFraction && !locked ? vector(z) : "" });
    now.values.forEach((value, j) => {
      value.forEach((x, c) => cells[j][c].update(x, { before: before.values[j][c], off: !now.allowed[i][j] }));
      set(shares[j].node, {
        text: share(j) === null ? unknown : (fraction(share(j)) ?? fixed(share(j), 3)),
        "data-off": !now.allowed[i][j],
      });
      set(parts[j].node, {
        text: share(j) === null ? unknown : vector(value.map((x) => x * share(j))),
        "data-off": !now.allowed[i][j],
      });
    });
    if (!picture) return;
    const tips = now.values.map((at, j) => ({ name: names[j], at, open: now.allowed[i][j] }));
    picture.update({ tips, arrows: [{ name, at: locked ? null : z, before: before.output[i] }] });
  };
  return { table: table.node, picture: picture && picture.node, update };
}

/** The movable tips of a plane share one tab stop; Enter goes to the next tip, since all four arrows move it. */
function tipStops(svg) {
  const tips = [...svg.querySelectorAll('[role="slider"]')];
  roving(tips, 0);
  tips.forEach((node, i) => {
    node.addEventListener("focus", () => roving(tips, i));
    onKeys(node, { Enter: () => tips[(i + 1) % tips.length].focus() });
  });
}

const RULES = { causal: "future", padding: "padding", hand: "by hand" };

const mask_builder = {
  keys: ["causal", "align", "is_real", "by_hand"],
  looks: ["form", "scores"],
  derive: (state, model) => {
    const allowed = combineMasks(state);
    return { ...state, allowed, weights: softmaxOverSources(model.get("scores"), allowed) };
  },
  truth: ({ allowed, weights, is_real }) => ({ allowed, weights: filled(weights, is_real.length) }),
  parts: ({ allowed, weights }) => [
    byRow("mask", allowed, (i) => `mask row ${i + 1}`, "the other rows of the mask"),
    byRow("A", weights, (i) => `A row ${i + 1}`, "the other rows of A"),
    whole("the scores", []),
  ],
  spoken: ({ weights }) => {
    const empty = weights.flatMap((row, i) => (row ? [] : [i + 1]));
    return empty.length ? `Row ${list(empty)} may read nothing: undefined.` : "Every row may read something.";
  },
  help: "Click a cell to block or allow it by hand; Tab and the arrow keys go to it, Space presses it. A cell is allowed when every rule allows it.",
  build(ui) {
    const [rows, columns] = [ui.get("destinations"), ui.get("labels")];
    const causal = toggle({
      label: "causal rule",
      texts: ["✕ causal rule off", "✓ causal rule on"],
      onInput: (on) => ui.change("causal", { causal: on }),
    });
    set(causal.node, { tabindex: 0 });
    const align =
      rows.length === columns.length
        ? null
        : choice({
            label: "align",
            options: [
              ["top-left", "top-left"],
              ["bottom-right", "bottom-right"],
            ],
            onInput: (x) => ui.change("align", { align: x }),
          });
    const form = choice({
      label: "written as",
      options: [
        ["allowed", "allowed"],
        ["blocked", "blocked"],
        ["additive", "added to scores"],
      ],
      onInput: (x) => ui.look({ form: x }),
    });
    const real = alongside(columns.length, (j, onSide) =>
      toggle({
        label: `position ${columns[j]} is real`,
        texts: ["✕ padding", "✓ real"],
        onSide,
        onInput: (on) => ui.change(`real ${j}`, { is_real: withEntry(ui.get("is_real"), j, on) }),
      }),
    );
    const cells = rows.map((row, i) =>
      columns.map((column, j) =>
        h(
          "button",
          {
            class: "lk-cell",
            type: "button",
            tabindex: -1,
            onclick: () =>
              ui.change(`cell ${i} ${j}`, { by_hand: withCell(ui.get("by_hand"), i, j, !ui.get("by_hand")[i][j]) }),
          },
          h("b"),
          h("small"),
        ),
      ),
    );
    roam(cells);
    const levels = rows.map(() => columns.map(() => level()));
    const mask = matrix({
      name: "mask",
      kind: "",
      title: "who may read whom",
      rows: [...rows, ""],
      columns,
      corner: "to \\ from",
      head: (i) => rows[i] ?? "real?",
      cell: (i, j) => (i < rows.length ? cells[i][j] : real[j].node),
    });
    const A = matrix({
      name: "A",
      kind: "score",
      title: "weights under this mask",
      rows,
      columns,
      corner: "to \\ from",
      cell: (i, j) => levels[i][j].node,
    });
    const warning = h("p", { class: "lk-empty", role: "alert" });
    const node = h(
      "div",
      { class: "lk-mask" },
      h("div", { class: "lk-bar" }, causal.node, align && align.node, form.node),
      h(
        "div",
        { class: "lk-flow", style: { "--columns": columns.length } },
        h("div", { class: "stage" }, mask.node),
        then("softmax"),
        h("div", { class: "stage" }, A.node, warning),
      ),
    );
    const update = (now, before, locked) => {
      causal.update(now.causal);
      align?.update(now.align);
      form.update(ui.get("form"));
      columns.forEach((_, j) => real[j].update(now.is_real[j]));
      const future = combineMasks({
        ...now,
        is_real: columns.map(() => true),
        by_hand: now.by_hand.map((row) => row.map(() => true)),
      });
      rows.forEach((row, i) =>
        columns.forEach((column, j) => {
          const open = now.allowed[i][j];
          const rules = [
            !future[i][j] && RULES.causal,
            !now.is_real[j] && RULES.padding,
            !now.by_hand[i][j] && RULES.hand,
          ].filter(Boolean);
          const [big, small] = [cells[i][j].firstChild, cells[i][j].lastChild];
          const text = { allowed: ["False", "True"], blocked: ["True", "False"], additive: ["−∞", "0"] }[
            ui.get("form")
          ][open ? 1 : 0];
          set(cells[i][j], {
            "data-off": !open,
            "data-moved": open !== before.allowed[i][j],
            "aria-pressed": String(open),
            "aria-label": `destination ${row} may read source ${column}: ${open ? "yes" : `no, ${list(rules)}`}`,
          });
          set(big, { text });
          set(small, { text: open ? "" : rules.join(" + ") });
          levels[i][j].update(now.weights[i] && now.weights[i][j], {
            before: before.weights[i] && before.weights[i][j],
            open,
            hidden: locked,
          });
        }),
      );
      const empty = rows.filter((_, i) => !now.weights[i]);
      set(warning, {
        text:
          empty.length && !locked
            ? `EmptyRowError: destination ${list(empty)} may read no source: softmax there is 0/0. labkit refuses it; libraries answer with NaN, zeros or equal weights.`
            : "",
      });
    };
    return { node, update };
  },
};

/** A grid of buttons with one tab stop in which the four arrow keys move. */
function roam(cells) {
  const flat = cells.flat();
  roving(flat, 0);
  cells.forEach((row, i) =>
    row.forEach((node, j) => {
      const go = (di, dj) => () => cells[clamp(i + di, 0, cells.length - 1)][clamp(j + dj, 0, row.length - 1)].focus();
      onKeys(node, { ArrowUp: go(-1, 0), ArrowDown: go(1, 0), ArrowLeft: go(0, -1), ArrowRight: go(0, 1) });
      node.addEventListener("focus", () => roving(flat, flat.indexOf(node)));
    }),
  );
}

const sup = (h) => String(h + 1).replace(/\d/g, (digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit]);
const headName = (h) => `head ${h + 1}`;

const two_heads = {
  keys: ["scores", "W_O"],
  looks: ["row"],
  derive(state, model) {
    const [allowed, values, inputs] = ["allowed", "values", "inputs"].map((key) => model.get(key));
    const weights = state.scores.map((rows) => softmaxOverSources(rows, allowed));
    const output = weights.map((rows, h) => mix(rows, values[h]));
    const concatenated = allowed.map((_, i) => (output.every((Z) => Z[i]) ? output.flatMap((Z) => Z[i]) : null));
    const update = concatenated.map((row) => rowTimes(row, state.W_O));
    return {
      ...state,
      allowed,
      values,
      weights,
      output,
      concatenated,
      update,
      result: inputs && update.map((y, i) => plus(y, inputs[i])),
    };
  },
  truth: ({ weights, output, update, allowed, values, W_O }) => ({
    weights: weights.map((rows) => filled(rows, allowed[0].length)),
    output: output.map((rows) => filled(rows, values[0][0].length)),
    update: filled(update, W_O[0].length),
  }),
  parts({ scores, weights, output, values, W_O, update }, model) {
    const row = numberOf(model.get("destinations"));
    return [
      ...scores.map((rows, h) => whole(`S of ${headName(h)}`, rows)),
      ...weights.map((rows, h) =>
        byRow(
          `A of ${headName(h)}`,
          rows,
          (i) => `A row ${row(i)} of ${headName(h)}`,
          `the other rows of A of ${headName(h)}`,
        ),
      ),
      ...output.map((rows, h) =>
        byRow(`Z of ${headName(h)}`, rows, (i) => `z${sup(h)}${lowered(row(i))}`, `the other z of ${headName(h)}`),
      ),
      whole("V", values),
      whole("W_O", W_O),
      byRow("Y", update, (i) => `y${lowered(row(i))}`, "the other rows of Y"),
    ];
  },
  spoken({ output, update, result }, model) {
    const i = model.get("row");
    const heads = output.map((Z, h) => `${headName(h)} gives ${vector(Z[i])}`).join(", ");
    return `Row ${i + 1}: ${heads}; update ${vector(update[i])}${result ? `; residual state plus update ${vector(result[i])}` : ""}.`;
  },
  help: KEYS_HELP,
  build(ui) {
    const [rows, columns, values, inputs] = ["destinations", "labels", "values", "inputs"].map(ui.get);
    const { scores, W_O } = ui.start;
    const pick = choice({
      label: "destination",
      options: rows.map((name, i) => [i, name]),
      onInput: (i) => ui.look({ row: i }),
    });
    const row = () => ui.get("row");
    const heads = scores.map((_, h) => {
      const tanks = alongside(columns.length, (j, onSide) =>
        scoreTank(ui, {
          label: `${headName(h)}: score of source ${columns[j]}`,
          start: () => scores[h][row()][j],
          onSide,
          onInput: (x) =>
            ui.change(`score ${h} ${row()} ${j}`, {
              scores: withEntry(ui.get("scores"), h, withCell(ui.get("scores")[h], row(), j, x)),
            }),
        }),
      );
      const levels = columns.map(() => level());
      const grid = matrix({
        name: headName(h),
        kind: "score",
        title: "",
        rows: ["", ""],
        columns,
        head: (r) => ["score", "weight"][r],
        cell: (r, j) => [tanks, levels][r][j].node,
      });
      set(grid.lines[0], { "data-on": true });
      return { tanks, levels, node: grid.node };
    });
    const width = values[0][0].length;
    const outputs = W_O[0].map((_, c) => `y[${c + 1}]`);
    const mixers = W_O.map((line, r) =>
      alongside(line.length, (c, onSide) =>
        tank({
          label: `W_O row ${r + 1}, column ${c + 1}`,
          low: -2,
          high: 2,
          stops: () => [0, 1, -1, line[c]],
          kind: "value output",
          onSide,
          onInput: (x) => ui.change(`W_O ${r} ${c}`, { W_O: withCell(ui.get("W_O"), r, c, x) }),
        }),
      ),
    );
    const text = (kind = "") => ({ node: h("span", { class: `lk-number ${kind}` }) });
    const concatenated = W_O.map(() => text("mixture"));
    const sums = [
      outputs.map(() => text("mixture")),
      ...(inputs ? [outputs.map(() => text()), outputs.map(() => text("mixture"))] : []),
    ];
    const sumNames = ["y", "x", "x + y"].slice(0, sums.length);
    const names = W_O.map((_, r) => `z${sup(Math.floor(r / width))}[${(r % width) + 1}]`);
    const writing = matrix({
      name: "W_O",
      kind: "",
      title: "writes the heads' outputs back",
      note: "concat × W_O",
      rows: [...names, ...sumNames],
      columns: ["concat", ...outputs],
      head: (r) => [...names, ...sumNames][r],
      cell: (r, c) =>
        r < W_O.length ? [concatenated[r], ...mixers[r]][c].node : c > 0 ? sums[r - W_O.length][c - 1].node : null,
    });
    writing.lines.forEach((line, r) =>
      set(line, { class: r < W_O.length ? (r % width === 0 && r > 0 ? "next-head" : null) : "sum" }),
    );
    const tipNames = values.flatMap((V, head) => V.map((_, j) => `v${sup(head)}${lowered(numberOf(columns)(j))}`));
    const flat = W_O[0].length === 2 && width === 2;
    const picture = flat
      ? plane({
          label: "values of all heads, their mixtures and the update",
          range: ui.get("value_range"),
          tips: tipNames,
          arrows: [...scores.map(() => ({ kind: "head" })), { kind: "mixture" }, { kind: "residual" }],
        })
      : null;
    const where = h("p", { class: "lk-where" });
    const node = h(
      "div",
      { class: "lk-heads" },
      h("div", { class: "lk-bar" }, pick.node),
      h(
        "div",
        { class: "lk-two", style: { "--columns": columns.length } },
        h(
          "div",
          { class: "main" },
          h(
            "div",
            { class: "lk-flow" },
            heads.map((head) => h("div", { class: "stage" }, head.node)),
          ),
          writing.node,
        ),
        flat ? h("div", { class: "side" }, picture.node, where) : null,
      ),
    );
    const update = (now, before, locked) => {
      const i = row();
      const number = lowered(numberOf(rows)(i));
      const shown = (x) => (locked ? "?" : x === null || x === undefined ? "0/0" : brief(x));
      pick.update(i);
      heads.forEach(({ tanks, levels }, h) =>
        columns.forEach((_, j) => {
          const open = now.allowed[i][j];
          const [s, w] = [now.scores[h][i][j], now.weights[h][i]?.[j] ?? null];
          tanks[j].update(s, { before: before.scores[h][i][j], words: scoreText(s), off: !open });
          levels[j].update(w, { before: before.weights[h][i]?.[j], open, hidden: locked });
        }),
      );
      W_O.forEach((line, r) => {
        set(concatenated[r].node, { text: shown(now.concatenated[i]?.[r]) });
        line.forEach((_, c) => mixers[r][c].update(now.W_O[r][c], { before: before.W_O[r][c] }));
      });
      [now.update[i], inputs?.[i], now.result?.[i]]
        .slice(0, sums.length)
        .forEach((numbers, k) =>
          sums[k].forEach(({ node: cell }, c) =>
            set(cell, { text: k === 1 ? brief(numbers[c]) : shown(numbers?.[c]) }),
          ),
        );
      if (!flat) return;
      const tips = values.flatMap((V, h) =>
        V.map((at, j) => ({
          name: values.every((other) => same(other[j], at)) ? `v${lowered(numberOf(columns)(j))}` : tipNames[h * V.length + j],
          at,
          open: now.allowed[i][j],
        })),
      );
      const drawn = (at) => (locked ? null : at);
      picture.update({
        tips,
        arrows: [
          ...now.output.map((Z, h) => ({ name: `z${sup(h)}${number}`, at: drawn(Z[i]), before: before.output[h][i] })),
          { name: `y${number}`, at: drawn(now.update[i]), before: before.update[i] },
          { name: "x + y", at: drawn(now.result?.[i] ?? null), before: before.result?.[i] },
        ],
      });
      set(where, {
        text:
          locked || !now.update[i]
            ? ""
            : `y${number} lies ${
                isOutside(
                  now.update[i],
                  tips.filter((tip) => tip.open).map((tip) => tip.at),
                )
                  ? "outside"
                  : "inside"
              } the polygon of the allowed values.`,
      });
    };
    return { node, update };
  },
};

/** A point is outside a polygon when adding it makes it a corner of the hull. */
export function isOutside(point, points) {
  const corners = convexHull([...points, point]);
  return !points.some((p) => same(p, point)) && corners.some((p) => same(p, point));
}

const DIVISORS = [
  ["none", "1"],
  ["root", "√d_k"],
  ["full", "d_k"],
];
const divisorOf = (name, width) => ({ none: 1, root: Math.sqrt(width), full: width })[name];

const scale = {
  keys: ["step", "divisor"],
  derive({ step, divisor }, model) {
    const [width, dots] = [model.get("widths")[step], model.get("dots")[step]];
    const scores = dots.map((dot) => dot / divisorOf(divisor, width));
    return {
      step,
      divisor,
      width,
      dots,
      scores,
      weights: softmaxRow(
        scores,
        scores.map(() => true),
      ),
    };
  },
  truth: ({ scores, weights }) => ({ scores, weights }),
  parts: ({ width, divisor, dots, scores, weights }) => [
    whole("d_k", width),
    whole("divisor", divisor),
    whole("the products q·k", dots),
    whole("scores", scores),
    whole("weights", weights),
  ],
  spoken: ({ width, weights }) => `d_k = ${width}: the largest weight is ${fixed(Math.max(...weights), 3)}.`,
  help: "Move the d_k slider with the mouse or the arrow keys. The products are random: coordinates are independent with mean 0 and variance 1.",
  build(ui) {
    const [widths, dots, spread, peaks] = ["widths", "dots", "spread", "peaks"].map(ui.get);
    const columns = dots[0].map((_, j) => `k${sub(j)}`);
    const slider = h("input", {
      type: "range",
      min: 0,
      max: widths.length - 1,
      step: 1,
      "aria-label": "d_k, the width of queries and keys",
    });
    const go = (step) => ui.change("d_k", { step: clamp(step, 0, widths.length - 1) });
    const by = (d) => () => go(ui.get("step") + d);
    slider.addEventListener("input", () => go(Number(slider.value)));
    // JupyterLab keeps arrow keys from native sliders, so this one answers them itself.
    onKeys(slider, {
      ArrowUp: by(1),
      ArrowRight: by(1),
      ArrowDown: by(-1),
      ArrowLeft: by(-1),
      PageUp: by(3),
      PageDown: by(-3),
      Home: by(-99),
      End: by(99),
    });
    const width = h("output", {});
    const divisor = choice({
      label: "divide by",
      options: DIVISORS,
      onInput: (x) => ui.change("divisor", { divisor: x }),
    });
    const numbers = [0, 1].map(() => columns.map(() => ({ node: h("span", { class: "lk-number" }) })));
    const levels = columns.map(() => level());
    const grid = matrix({
      name: "one row",
      kind: "score",
      title: "of a random head",
      rows: ["", "", ""],
      columns,
      head: (r) => ["q·k", "score", "weight"][r],
      cell: (r, j) => [...numbers, levels][r][j].node,
    });
    const curves = DIVISORS.map(([name]) => ({
      name,
      path: h("path", { class: `curve ${name}` }),
      dot: h("circle", { class: `curve ${name}`, r: 5 }),
    }));
    const [x, y] = [(k) => 44 + (k * 300) / (widths.length - 1), (w) => 170 - 150 * w];
    curves.forEach(({ name, path }) =>
      set(path, { d: widths.map((_, k) => `${k ? "L" : "M"}${x(k)},${y(peaks[name][k])}`).join("") }),
    );
    const ends = DIVISORS.map(([name, text]) =>
      h("text", { class: "curve-name", x: x(widths.length - 1) + 8, y: y(peaks[name].at(-1)) + 4 }, `÷ ${text}`),
    );
    const cursor = h("line", { class: "cursor", y1: y(1), y2: y(0) });
    const chart = h(
      "svg",
      {
        class: "lk-chart",
        viewBox: "0 0 400 210",
        role: "img",
        "aria-label":
          "Largest weight of the row against d_k, for three divisors: it goes to 1 without a divisor, stays moderate with the root, and falls to equal weights with d_k itself.",
      },
      [0, 0.5, 1].flatMap((w) => [
        h("line", { class: "grid", x1: x(0), x2: x(widths.length - 1), y1: y(w), y2: y(w) }),
        h("text", { class: "scale", x: 26, y: y(w) + 4 }, String(w)),
      ]),
      widths.map((d, k) => h("text", { class: "scale", x: x(k), y: 186 }, String(d))),
      h("text", { class: "scale", x: 190, y: 204 }, "d_k"),
      h(
        "text",
        { class: "scale", x: 40, y: 11, style: { "text-anchor": "start" } },
        "largest weight of a row, on average",
      ),
      cursor,
      curves.map(({ path, dot }) => [path, dot]).flat(),
      ends,
    );
    const typical = h("p", { class: "lk-where" });
    const node = h(
      "div",
      {},
      h(
        "div",
        { class: "lk-bar" },
        h("label", { class: "lk-range" }, h("span", {}, "d_k"), slider, width),
        divisor.node,
      ),
      h(
        "div",
        { class: "lk-two", style: { "--columns": columns.length } },
        h("div", { class: "main" }, grid.node, typical),
        h("div", { class: "side" }, chart),
      ),
    );
    const update = (now, before, locked) => {
      set(width, { text: String(now.width) });
      slider.value = now.step;
      set(slider, { "aria-valuetext": `d_k = ${now.width}`, disabled: locked });
      divisor.update(now.divisor);
      columns.forEach((_, j) => {
        set(numbers[0][j].node, { text: fixed(now.dots[j]) });
        set(numbers[1][j].node, { text: locked ? "?" : fixed(now.scores[j]) });
        levels[j].update(now.weights[j], { before: before.weights[j], hidden: locked });
      });
      set(cursor, { x1: x(now.step), x2: x(now.step) });
      set(chart, { visibility: locked ? "hidden" : "visible" });
      curves.forEach(({ name, path, dot }) => {
        [path, dot].forEach((part) => set(part, { "data-on": name === now.divisor }));
        set(dot, { cx: x(now.step), cy: y(peaks[name][now.step]) });
      });
      set(typical, {
        text: locked
          ? ""
          : `Over many draws the products q·k have standard deviation ${fixed(spread[now.step])}; √d_k is ${fixed(Math.sqrt(now.width))}.`,
      });
    };
    return { node, update };
  },
};

const map_gallery = {
  keys: [],
  looks: ["row", "column", "shown"],
  derive(_, model) {
    const map = model.get("maps")[model.get("shown")];
    return { ...map, weights: softmaxOverSources(map.scores, map.allowed) };
  },
  truth: ({ weights, scores }) => ({ weights: filled(weights, scores[0].length) }),
  parts: () => [],
  spoken({ weights }, model) {
    const [i, j] = [model.get("row"), model.get("column")];
    return weights[i]
      ? `Destination ${i + 1} reads source ${j + 1} with weight ${exactly(weights[i][j])}.`
      : `Destination ${i + 1} may read nothing.`;
  },
  help: "Point at a cell, or Tab into the map and use the four arrow keys: the right side takes that cell apart.",
  build(ui) {
    const maps = ui.get("maps");
    const pick = choice({
      label: "map",
      options: maps.map(({ name }, k) => [k, name]),
      onInput: (k) => ui.look({ shown: k, row: 0, column: 0 }),
    });
    const place = h("div", { class: "lk-two" });
    const node = h("div", {}, maps.length > 1 ? h("div", { class: "lk-bar" }, pick.node) : null, place);
    let [drawn, current] = [null, null];
    const update = (now, _, locked) => {
      if (drawn !== now.name) [drawn, current] = [now.name, buildMap(ui, now)];
      if (current.parts[0].parentNode !== place) place.replaceChildren(...current.parts);
      pick.update(ui.get("shown"));
      current.update(now, locked);
    };
    return { node, update };
  },
};

function buildMap(ui, map) {
  const { rows, columns } = map;
  const look = (i, j) => ui.look({ row: i, column: j });
  const cells = rows.map((row, i) =>
    columns.map((column, j) =>
      h(
        "button",
        {
          class: "lk-cell heat",
          type: "button",
          onfocus: () => look(i, j),
          onpointerenter: () => look(i, j),
          onclick: () => look(i, j),
        },
        h("b"),
        h("small"),
      ),
    ),
  );
  roam(cells);
  const A = matrix({
    name: "A",
    kind: "score",
    title: "weights",
    note: "rows read, columns are read",
    rows,
    columns,
    corner: "to \\ from",
    cell: (i, j) => cells[i][j],
  });
  const takenApart = h("div", { class: "lk-apart" });
  const update = (now, locked) => {
    const [i, j] = [ui.get("row"), ui.get("column")];
    rows.forEach((row, r) =>
      columns.forEach((column, c) => {
        const [open, weight] = [now.allowed[r][c], now.weights[r] && now.weights[r][c]];
        const [big, small] = locked ? ["?", ""] : weightText(weight, open);
        set(cells[r][c], {
          "data-off": !open,
          "data-hot": !locked && heat(weight),
          "aria-pressed": String(r === i && c === j),
          "data-line": r === i || c === j,
          style: { "--w": locked ? 0 : (weight ?? 0) },
          "aria-label": `destination ${row} reads source ${column}: weight ${big} ${small}`,
        });
        set(cells[r][c].firstChild, { text: big });
        set(cells[r][c].lastChild, { text: small });
      }),
    );
    takenApart.replaceChildren(...apart(now, i, j, locked));
  };
  return {
    parts: [
      h("div", { class: "main", style: { "--columns": columns.length } }, A.node),
      h("div", { class: "side wide" }, takenApart),
    ],
    update,
  };
}

/** One weight taken apart: query, key, products, dot product, score, exponential, denominator. */
function apart({ rows, columns, queries, keys, scores, allowed, weights }, i, j, locked) {
  const [q, k] = [queries[i], keys[j]];
  const products = q.map((x, c) => x * k[c]);
  const strip = (name, kind, numbers) =>
    h(
      "tr",
      {},
      h("th", { scope: "row", class: kind }, name),
      numbers.map((x) => h("td", { class: kind }, brief(x))),
    );
  const root = brief(Math.sqrt(q.length));
  const open = scores[i].map((s, c) => [s, c]).filter(([, c]) => allowed[i][c]);
  const steps = [
    ["q·k", `${products.map(brief).join(" + ")} = ${brief(sum(products))}`.replaceAll("+ −", "− ")],
    [
      "score",
      `${brief(sum(products))} / √${q.length} = ${brief(sum(products))} / ${root} = ${fixed(scores[i][j])}${logName(scores[i][j]) ? ` = ${logName(scores[i][j])}` : ""}`,
    ],
  ];
  if (!allowed[i][j])
    steps.push([
      "weight",
      `0: the mask blocks source ${columns[j]} for destination ${rows[i]}, so its score never reaches the softmax`,
    ]);
  else {
    const powers = open.map(([s]) => brief(Math.exp(s)));
    const total = sum(open.map(([s]) => Math.exp(s)));
    steps.push(
      ["denominator", `${powers.join(" + ")} = ${brief(total)}`],
      ["weight", locked ? "?" : `${brief(Math.exp(scores[i][j]))} / ${brief(total)} = ${exactly(weights[i][j])}`],
    );
  }
  return [
    h("h5", {}, `How destination ${rows[i]} weighs source ${columns[j]}`),
    h(
      "div",
      { class: "lk-scroll" },
      h(
        "table",
        { class: "lk-strip" },
        h(
          "tbody",
          {},
          strip(`query q${sub(i)}`, "query", q),
          strip(`key k${sub(j)}`, "key", k),
          strip("products", "", products),
        ),
      ),
    ),
    h(
      "dl",
      {},
      steps.flatMap(([name, text]) => [h("dt", {}, name), h("dd", {}, text)]),
    ),
  ];
}

const INTERVENTIONS = [
  ["none", "leave it"],
  ["zero", "zero it"],
  ["mean", "put its mean"],
  ["resample", "take another input's"],
];

const trained_model = {
  keys: ["shown", "layer", "head", "intervention"],
  looks: ["row", "column"],
  derive({ shown, layer, head, intervention }, model) {
    const { text, maps, base, changed } = model.get("texts")[shown];
    const after = intervention === "none" ? base : changed[intervention][layer][head];
    return { text, layer, head, intervention, base, after, weights: maps[layer][head], logits: after.logits };
  },
  truth: ({ weights, logits }) => ({ weights, logits }),
  parts: ({ text, weights, logits }) => [
    whole("the input", text),
    whole("the map that is drawn", weights),
    byRow("the predictions", logits, (i) => `the prediction after letter ${i + 1}`, "the other predictions"),
    whole("everything the model has learned", 0),
  ],
  spoken: ({ text, base, after }, model) => {
    const i = model.get("row");
    return `After ${text.slice(0, i + 1)} the model predicts ${after.top[i][0][0]}${after === base ? "" : `, without the intervention ${base.top[i][0][0]}`}.`;
  },
  help: "Choose with the mouse or with Tab and the arrow keys. Point at a cell of the map, or Tab into it, to choose the position that predicts.",
  build(ui) {
    const texts = ui.get("texts");
    const [layers, heads] = [texts[0].maps.length, texts[0].maps[0].length];
    const pick = (key, label, options) => choice({ label, options, onInput: (x) => ui.change(key, { [key]: x }) });
    const count = (n) => [...Array(n).keys()].map((i) => [i, String(i)]);
    const choices = {
      shown: choice({
        label: "input",
        options: texts.map(({ text }, k) => [k, text]),
        onInput: (k) => (ui.look({ row: texts[k].text.length - 2, column: 0 }), ui.change("shown", { shown: k })),
      }),
      layer: pick("layer", "layer", count(layers)),
      head: pick("head", "head", count(heads)),
      intervention: pick("intervention", "its output", INTERVENTIONS),
    };
    const place = h("div", { class: "main" });
    const predictions = h("div", { class: "lk-apart" });
    const node = h(
      "div",
      { class: "lk-model" },
      h(
        "div",
        { class: "lk-bar" },
        Object.values(choices).map((control) => control.node),
      ),
      h("div", { class: "lk-two" }, place, h("div", { class: "side wide" }, predictions)),
    );
    let [drawn, cells] = [null, []];
    const draw = (text) => {
      const names = [...text];
      const look = (i, j) => ui.look({ row: i, column: j });
      cells = names.map((_, i) =>
        names.map((_, j) =>
          h(
            "button",
            {
              class: "lk-cell heat small",
              type: "button",
              onfocus: () => look(i, j),
              onpointerenter: () => look(i, j),
              onclick: () => look(i, j),
            },
            h("b"),
          ),
        ),
      );
      roam(cells);
      place.replaceChildren(
        matrix({
          name: "A",
          kind: "score",
          title: "map of this head",
          note: "rows read, columns are read",
          rows: names,
          columns: names,
          corner: "to \\ from",
          cell: (i, j) => cells[i][j],
        }).node,
      );
      drawn = text;
    };
    const update = (now, _, locked) => {
      if (drawn !== now.text) draw(now.text);
      const [i, j] = [ui.get("row"), ui.get("column")];
      Object.entries(choices).forEach(([key, control]) => control.update(ui.get(key)));
      cells.forEach((row, r) =>
        row.forEach((cell, c) => {
          const weight = locked ? 0 : now.weights[r][c];
          set(cell, {
            style: { "--w": weight },
            "data-off": c > r,
            "data-hot": heat(weight),
            "data-line": r === i,
            "aria-pressed": String(r === i && c === j),
            "aria-label": `letter ${r + 1}, ${now.text[r]}, reads letter ${c + 1}, ${now.text[c]}: ${locked ? "?" : c > r ? "blocked" : fixed(weight, 2)}`,
          });
          set(cell.firstChild, {
            text: locked ? "?" : c > r ? "" : weight < 0.005 ? "0" : fixed(weight, 2).replace(/^0/, ""),
          });
        }),
      );
      predictions.replaceChildren(...predicted(now, i, locked));
    };
    return { node, update };
  },
};

/** What the model expects after one position, untouched and with the intervention. */
function predicted({ text, layer, head, intervention, base, after }, i, locked) {
  const truth = text[i + 1];
  const bars = (name, { top }) =>
    h(
      "div",
      { class: "lk-top" },
      h("b", {}, name),
      top[i].map(([letter, chance]) =>
        h(
          "div",
          { class: letter === truth ? "true" : "" },
          h("span", {}, locked ? "?" : letter === truth ? `${letter} ✓` : letter),
          h("i", { style: { width: `${locked ? 0 : 100 * chance}%` } }),
          h("span", {}, locked ? "" : fixed(chance, 2)),
        ),
      ),
    );
  const name = `L${layer}H${head}`;
  const verb = { zero: `${name} set to zero`, mean: `${name} set to its mean`, resample: `${name} from another input` }[
    intervention
  ];
  const columns = [bars("as trained", base), ...(verb ? [bars(verb, after)] : [])];
  const pair = (x, y) =>
    locked ? "?" : !verb ? fixed(x) : `${fixed(x)} → ${fixed(y)}  (${y > x ? "+" : ""}${fixed(y - x)})`;
  const facts =
    truth === undefined
      ? [["next letter", "none: this is the last position"]]
      : [
          ["true next letter", truth],
          ["its logit", pair(base.logits[i], after.logits[i])],
        ];
  if (base.mean !== null) facts.push(["mean logit where it repeats", pair(base.mean, after.mean)]);
  return [
    h("h5", {}, `After ${text.slice(0, i + 1)} the model expects`),
    h("div", { class: "lk-tops" }, columns),
    h(
      "dl",
      {},
      facts.flatMap(([term, said]) => [h("dt", {}, term), h("dd", {}, said)]),
    ),
  ];
}

const PANELS = { softmax_row, scores_and_values, mask_builder, two_heads, scale, map_gallery, trained_model };

/** Bring a panel alive without a kernel: `state` holds the traits. */
export function standalone(el, state) {
  const listeners = {};
  const model = {
    standalone: true,
    get: (key) => state[key],
    set: (key, value) => {
      if (same(state[key], value) && typeof value !== "object") return;
      state[key] = value;
      (listeners[`change:${key}`] ?? []).forEach((listener) => listener());
    },
    save_changes: () => {},
    on: (name, listener) => (listeners[name] ??= []).push(listener),
    off: (name, listener) => (listeners[name] = listeners[name].filter((other) => other !== listener)),
  };
  return render({ model, el });
}

export default { render };
