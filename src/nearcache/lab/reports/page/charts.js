"use strict";
// What is drawn by hand: ratios, sizes, parts. Beside it stands curves.js, with what both need.
// Every function takes a host element and plain data, and replaces what is in it.
// Names come from a sample, which may come from anywhere: text is set, never parsed.

const SVG = "http://www.w3.org/2000/svg";
const LEAST_WIDTH = 240; // in a window that is not shown hosts have none

function shape(tag, attributes, text) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

function drawing(width, height, label) {
  // With a box to see through, so that it shrinks where there is less room: on paper.
  return shape("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
}

function short(value) {
  if (value === null || value === undefined || !isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size >= 10000) return Math.round(value).toLocaleString("en");
  if (size === 0) return "0";
  return value.toFixed(Math.min(3, Math.max(0, 2 - Math.floor(Math.log10(size)))));
}

const times = ratio => ratio >= 0.0995 ? short(ratio) : String(Number(ratio.toPrecision(2)));

// ---- ratio forest -----------------------------------------------------------------------

function forest(host, rows, baseline) {
  // rows: {name, colour, ratio: [middle, low, high], floor, verdict}
  const width = Math.max(LEAST_WIDTH, host.clientWidth), narrow = width < 560;
  const names = narrow ? 0 : Math.min(230, width * 0.3), values = narrow ? 0 : 150;
  const step = narrow ? 38 : 25, top = 6, height = top + rows.length * step + 34;
  const all = rows.flatMap(row => row.ratio ? [row.ratio[1], row.ratio[2], 1 / row.floor, row.floor] : [1]);
  const low = Math.min(...all, 0.9) * 0.94, high = Math.max(...all, 1.1) * 1.06;
  const left = names + 12, right = width - values - 12;
  const x = value => left + (right - left) * Math.log(value / low) / Math.log(high / low);
  const svg = drawing(width, height, "Ratio to " + baseline + " with 95 % intervals");
  for (const tick of logTicks(low, high)) {
    svg.append(shape("line", { class: "grid", x1: x(tick), x2: x(tick), y1: top, y2: height - 28 }));
    svg.append(shape("text", { class: "tick", x: x(tick), y: height - 12, "text-anchor": "middle" }, "×" + brief(tick)));
  }
  rows.forEach((row, number) => {
    const y = top + number * step + (narrow ? 26 : step / 2);
    const said = !row.ratio ? "baseline" : row.verdict === "same" ? "same" :
      `${times(row.ratio[0])} (${times(row.ratio[1])}–${times(row.ratio[2])})${row.verdict === "unclear" ? "?" : ""}`;
    if (row.floor)
      svg.append(shape("rect", { class: "band", x: x(1 / row.floor), width: x(row.floor) - x(1 / row.floor), y: top + number * step, height: step }));
    if (narrow) {
      svg.append(shape("text", { x: left - 8, y: y - 11 }, fitted(row.name, width * 0.55)));
      svg.append(shape("text", { class: "tick", x: width - 4, y: y - 11, "text-anchor": "end" }, said));
    } else {
      svg.append(shape("text", { x: names, y: y + 4, "text-anchor": "end" }, fitted(row.name, names)));
      svg.append(shape("text", { class: row.verdict === "same" || row.verdict === "unclear" ? "tick" : "", x: right + 14, y: y + 4 }, said));
    }
    if (!row.ratio) {
      svg.append(shape("rect", { x: x(1) - 4, y: y - 4, width: 8, height: 8, fill: row.colour, transform: `rotate(45 ${x(1)} ${y})` }));
      return;
    }
    const faint = row.verdict === "same" || row.verdict === "unclear" ? 0.5 : 1;
    const [middle, from, to] = row.ratio.map(x);
    svg.append(shape("line", { x1: from, x2: to, y1: y, y2: y, stroke: row.colour, "stroke-width": 2.4, opacity: faint }));
    for (const end of [from, to])
      svg.append(shape("line", { x1: end, x2: end, y1: y - 4, y2: y + 4, stroke: row.colour, "stroke-width": 1.6, opacity: faint }));
    svg.append(shape("circle", { cx: middle, cy: y, r: 4.6, fill: row.colour, opacity: faint }));
  });
  svg.append(shape("line", { class: "axis", x1: x(1), x2: x(1), y1: top, y2: height - 28 }));
  host.replaceChildren(svg);
}

// ---- size against time ------------------------------------------------------------------

function scatter(host, dots, unit) {
  // dots: {name, colour, x, y}
  const width = Math.max(LEAST_WIDTH, host.clientWidth), height = width < 560 ? 300 : 380;
  const left = 58, right = width - 16, top = 12, bottom = height - 40;
  const range = values => { const low = Math.min(...values), high = Math.max(...values); const room = Math.max(1.15, (high / low) ** 0.08); return [low / room, high * room]; };
  const [x0, x1] = range(dots.map(dot => dot.x)), [y0, y1] = range(dots.map(dot => dot.y));
  const x = value => left + (right - left) * Math.log(value / x0) / Math.log(x1 / x0);
  const y = value => bottom - (bottom - top) * Math.log(value / y0) / Math.log(y1 / y0);
  const svg = drawing(width, height, "Stored bytes against time");
  for (const tick of logTicks(x0, x1)) {
    svg.append(shape("line", { class: "grid", x1: x(tick), x2: x(tick), y1: top, y2: bottom }));
    svg.append(shape("text", { class: "tick", x: x(tick), y: bottom + 15, "text-anchor": "middle" }, brief(tick)));
  }
  for (const tick of logTicks(y0, y1)) {
    svg.append(shape("line", { class: "grid", x1: left, x2: right, y1: y(tick), y2: y(tick) }));
    svg.append(shape("text", { class: "tick", x: left - 6, y: y(tick) + 4, "text-anchor": "end" }, brief(tick)));
  }
  svg.append(shape("text", { class: "tick", x: right, y: bottom + 32, "text-anchor": "end" }, `${unit} per operation (left is faster)`));
  svg.append(shape("text", { class: "tick", x: left + 4, y: top + 8 }, "bytes stored (lower is smaller)"));
  const best = frontier(dots);
  if (best.length > 1)
    svg.append(shape("polyline", { class: "mark", fill: "none", points: best.map(dot => `${x(dot.x)},${y(dot.y)}`).join(" ") }));
  const taken = dots.map(dot => [x(dot.x) - 5, y(dot.y) - 5, 10, 10]);
  for (const dot of dots) {
    const circle = shape("circle", { cx: x(dot.x), cy: y(dot.y), r: 5, fill: dot.colour, opacity: 0.9 });
    circle.append(shape("title", {}, `${dot.name}: ${short(dot.x)} ${unit}, ${short(dot.y)} bytes`));
    svg.append(circle);
  }
  // Names where there is room for them; the best first, everyone has a tooltip.
  for (const dot of [...best, ...dots.filter(dot => !best.includes(dot))]) {
    const text = fitted(dot.name, 190);
    const box = placeBeside(x(dot.x), y(dot.y), text.length * 6.4, [left, right, top, bottom], taken);
    if (box) svg.append(shape("text", { class: "rim", x: box[0] + box[2] / 2, y: box[1] + 11, "text-anchor": "middle" }, text));
  }
  host.replaceChildren(svg);
  return best;
}

function frontier(dots) {
  // Nobody is both faster and smaller than these.
  let least = Infinity;
  return [...dots].sort((a, b) => a.x - b.x || a.y - b.y).filter(dot => dot.y < least && ((least = dot.y), true));
}

// ---- where the time goes ----------------------------------------------------------------

function attribution(host, rows, order, said, colours) {
  // rows: {name, parts: {part: ns}}
  const total = row => order.reduce((sum, part) => sum + Math.max(0, row.parts[part] || 0), 0);
  const longest = Math.max(...rows.map(total));
  const legend = make("div", { className: "legend" });
  order.forEach((part, number) => {
    const dot = make("i", { className: "dot" });
    dot.style.background = colours[number % colours.length];
    legend.append(make("span", {}, dot, part));
  });
  const stack = make("div", { className: "stack" });
  for (const row of rows) {
    const bar = make("div");
    order.forEach((part, number) => {
      const piece = make("b", { title: `${row.name}, ${part}: ${said(row.parts[part] || 0)}` });
      piece.style.width = `calc((100% - 78px) * ${Math.max(0, row.parts[part] || 0) / longest})`;
      piece.style.background = colours[number % colours.length];
      bar.append(piece);
    });
    bar.append(make("em", { textContent: said(total(row)) }));
    stack.append(make("span", { textContent: row.name, title: row.name }), bar);
  }
  host.replaceChildren(legend, stack);
}
