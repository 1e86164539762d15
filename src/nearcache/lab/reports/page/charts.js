"use strict";
// Drawing: every function takes a host element and plain data, and replaces what is in it.
// Names come from a sample, which may come from anywhere: text is set, never parsed.

const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const SVG = "http://www.w3.org/2000/svg";

function make(tag, properties = {}, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children.filter(child => child !== null));
  return node;
}

function shape(tag, attributes, text) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

function short(value) {
  if (value === null || value === undefined || !isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size >= 10000) return Math.round(value).toLocaleString("en");
  if (size === 0) return "0";
  return value.toFixed(Math.min(3, Math.max(0, 2 - Math.floor(Math.log10(size)))));
}

const times = ratio => ratio >= 0.0995 ? short(ratio) : String(Number(ratio.toPrecision(2)));

function brief(value) {
  // For ticks of an axis: no digits that say nothing.
  const digits = number => String(Number(number.toPrecision(3)));
  if (Math.abs(value) >= 1e6) return digits(value / 1e6) + "M";
  if (Math.abs(value) >= 1e4) return digits(value / 1e3) + "k";
  return digits(value);
}

function fitted(text, pixels) {
  // What tells names apart is often at their end, so the middle goes.
  const most = Math.max(5, Math.floor(pixels / 6.6));
  const head = Math.ceil((most - 1) / 2);
  return text.length > most ? text.slice(0, head) + "…" + text.slice(head + 1 - most) : text;
}

function logTicks(low, high) {
  const ticks = [];
  const factors = Math.log10(high / low) < 1.3 ? [1, 1.5, 2, 3, 5, 7] : Math.log10(high / low) < 4 ? [1, 2, 5] : [1];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++)
    for (const factor of factors) {
      const tick = factor * 10 ** power;
      if (tick >= low * 0.999 && tick <= high * 1.001) ticks.push(tick);
    }
  const step = Math.ceil(ticks.length / 9);
  return ticks.filter((_, index) => index % step === 0);
}

// ---- ratio forest -----------------------------------------------------------------------

function forest(host, rows, baseline) {
  // rows: {name, colour, ratio: [middle, low, high], floor, verdict}
  const width = host.clientWidth, narrow = width < 560;
  const names = narrow ? 0 : Math.min(230, width * 0.3), values = narrow ? 0 : 150;
  const step = narrow ? 38 : 25, top = 6, height = top + rows.length * step + 34;
  const all = rows.flatMap(row => row.ratio ? [row.ratio[1], row.ratio[2], 1 / row.floor, row.floor] : [1]);
  const low = Math.min(...all, 0.9) * 0.94, high = Math.max(...all, 1.1) * 1.06;
  const left = names + 12, right = width - values - 12;
  const x = value => left + (right - left) * Math.log(value / low) / Math.log(high / low);
  const svg = shape("svg", { width, height, role: "img", "aria-label": "Ratio to " + baseline + " with 95 % intervals" });
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

const MOST_NAMED = 14, NAME_ROOM = 190;

// ---- curves -----------------------------------------------------------------------------

function curves(host, chart) {
  // chart: {lines: [{name, colour, points | xs+ys, dashed, dots, step}], xLog, yLog, x, y,
  //         xValue, yValue, xSplits, marks: [[x, text, colour]]}
  host.replaceChildren();
  const lines = chart.lines.filter(line => line.points.length);
  if (!lines.length) { host.append(make("p", { className: "soft", textContent: "Nothing to draw: choose candidates above." })); return null; }
  const usable = lines.map(line => line.points.filter(([x, y]) => y !== null && (!chart.xLog || x > 0) && (!chart.yLog || y > 0)));
  const data = uPlot.join(usable.map(points => {
    const sorted = [...points].sort((a, b) => a[0] - b[0]);
    return [sorted.map(point => point[0]), sorted.map(point => point[1])];
  }));
  const soft = css("--soft"), grid = { stroke: css("--line"), width: 1 };
  const xValue = chart.xValue || brief, yValue = chart.yValue || brief;
  const tip = make("div", { className: "tip", hidden: true });
  // uPlot would leave out all but the powers of ten of a logarithmic axis.
  const axis = value => ({ stroke: soft, grid, ticks: grid, font: "11px system-ui", filter: (_, splits) => splits, values: (_, splits) => splits.map(s => s === null ? "" : value(s)) });
  const logSplits = (u, index, low, high) => logTicks(low, high);
  const narrow = host.clientWidth < 560;
  const marks = chart.marks || [];
  const joined = lines.filter(line => !line.dots);
  const named = host.clientWidth > 720 && joined.length > 0 && joined.length <= MOST_NAMED;
  const options = {
    width: host.clientWidth, padding: named ? [null, NAME_ROOM, null, null] : undefined, height: chart.height || (narrow ? 260 : 330),
    legend: { show: false }, focus: { alpha: 0.25 },
    cursor: { focus: { prox: 24 }, drag: { x: true, y: true, uni: 30 }, points: { size: 7 } },
    scales: { x: { time: false, distr: chart.xLog ? 3 : 1, range: rangeOf(chart.xLog, 0.02) }, y: { distr: chart.yLog ? 3 : 1, range: rangeOf(chart.yLog, 0.05, chart.yZero) } },
    axes: [
      { ...axis(xValue), label: chart.x, size: 32, labelSize: 18, labelFont: "12px system-ui", labelGap: 0, splits: chart.xSplits || (chart.xLog ? logSplits : undefined), space: narrow ? 46 : 60 },
      { ...axis(yValue), label: chart.y, labelSize: 20, labelFont: "12px system-ui", labelGap: 0, splits: chart.yLog ? logSplits : undefined, size: 58, space: 26 },
    ],
    series: [{}, ...lines.map(line => ({
      label: line.name, stroke: line.colour, width: line.dots ? 0 : 1.8, spanGaps: true,
      dash: line.dashed ? [5, 4] : undefined,
      points: { show: Boolean(line.dots) || (line.points.length < 13 && !line.step), size: line.dots ? 8 : 5, fill: line.colour },
      paths: line.step ? uPlot.paths.stepped({ align: 1 }) : undefined,
    }))],
    hooks: {
      setSeries: [(u, index) => { if (index === null) tip.hidden = true; }],
      setCursor: [u => point(u)],
      draw: [u => drawMarks(u, marks), u => named && drawNames(u, lines), u => drawDots(u, lines)],
    },
  };
  let focused = null;
  options.hooks.setSeries.push((u, index) => { focused = index; });
  function point(u) {
    const { left, top, idx } = u.cursor;
    if (focused === null || focused === undefined || left < 0 || idx === null) { tip.hidden = true; return; }
    const at = nearest(u.data[focused], idx);
    if (at === null) { tip.hidden = true; return; }
    tip.textContent = `${lines[focused - 1].name}: ${yValue(u.data[focused][at])} at ${xValue(u.data[0][at])}`;
    tip.hidden = false;
    const room = host.clientWidth - tip.offsetWidth - 4;
    tip.style.left = Math.max(0, Math.min(room, left + 66)) + "px";
    tip.style.top = Math.max(0, top - 26) + "px";
  }
  const plot = new uPlot(options, data, host);
  host.append(tip);
  return plot;
}

function drawNames(u, lines) {
  // At the right end of each curve, moved apart where ends are close.
  const { ctx, bbox } = u, ratio = devicePixelRatio, step = 13 * ratio;
  const places = [];
  lines.forEach((line, number) => {
    if (line.dots) return;
    const values = u.data[number + 1], at = nearest(values, values.length - 1);
    if (at !== null) places.push({ line, y: u.valToPos(values[at], "y", true) });
  });
  places.sort((a, b) => a.y - b.y);
  places.forEach((place, i) => { place.at = i ? Math.max(place.y, places[i - 1].at + step) : place.y; });
  const over = places.length ? places[places.length - 1].at - (bbox.top + bbox.height) : 0;
  if (over > 0) for (let i = places.length - 1, least = bbox.top + bbox.height; i >= 0; i--, least -= step)
    places[i].at = Math.min(places[i].at, least);
  ctx.save();
  ctx.font = `${11 * ratio}px system-ui`;
  ctx.textAlign = "left";
  ctx.textBaseline = "middle";
  for (const { line, at } of places) {
    ctx.fillStyle = line.colour;
    ctx.fillText(fitted(line.name, NAME_ROOM - 10), bbox.left + bbox.width + 8 * ratio, at);
  }
  ctx.restore();
}

function drawDots(u, lines) {
  // Beside a dot its name, where there is room; the tip names them all.
  const { ctx, bbox } = u, ratio = devicePixelRatio, taken = [];
  const dots = lines.flatMap((line, number) => line.dots
    ? [...u.data[number + 1].keys()].filter(i => typeof u.data[number + 1][i] === "number").map(i => ({
        line, x: u.valToPos(u.data[0][i], "x", true), y: u.valToPos(u.data[number + 1][i], "y", true) }))
    : []);
  for (const dot of dots) taken.push([dot.x - 5 * ratio, dot.y - 5 * ratio, 10 * ratio, 10 * ratio]);
  ctx.save();
  ctx.font = `${11 * ratio}px system-ui`;
  ctx.textBaseline = "middle";
  for (const { line, x, y } of dots) {
    const text = fitted(line.name, 190), wide = ctx.measureText(text).width;
    const flip = x + wide + 12 * ratio > bbox.left + bbox.width;
    const box = [flip ? x - wide - 9 * ratio : x + 9 * ratio, y - 7 * ratio, wide, 14 * ratio];
    if (box[0] < bbox.left || taken.some(other => overlap(box, other))) continue;
    taken.push(box);
    ctx.fillStyle = line.colour;
    ctx.textAlign = "left";
    ctx.fillText(text, box[0], y);
  }
  ctx.restore();
}

function nearest(values, index) {
  for (let away = 0; away < values.length; away++) {
    if (values[index - away] !== null && values[index - away] !== undefined) return index - away;
    if (values[index + away] !== null && values[index + away] !== undefined) return index + away;
  }
  return null;
}

function rangeOf(isLog, margin, fromZero) {
  return (u, low, high) => {
    if (low === null || high === null) return [1, 10];
    if (isLog) {
      const room = Math.max(1.02, (high / low) ** margin);
      return [low / room, high * room];
    }
    const room = (high - low || Math.abs(high) || 1) * margin;
    return [fromZero ? 0 : low - room, high + room];
  };
}

function drawMarks(u, marks) {
  const { ctx, bbox } = u, ratio = devicePixelRatio;
  ctx.save();
  ctx.font = `${11 * ratio}px system-ui`;
  marks.forEach(([x, text, colour], number) => {
    const at = u.valToPos(x, "x", true);
    if (at < bbox.left - 1 || at > bbox.left + bbox.width + 1) return;
    ctx.strokeStyle = ctx.fillStyle = colour || css("--soft");
    ctx.setLineDash([4 * ratio, 4 * ratio]);
    ctx.beginPath(); ctx.moveTo(at, bbox.top); ctx.lineTo(at, bbox.top + bbox.height); ctx.stroke();
    if (!text) return;
    const leftwards = at > bbox.left + bbox.width * 0.7;
    ctx.textAlign = leftwards ? "right" : "left";
    ctx.fillText(text, at + (leftwards ? -5 : 5) * ratio, bbox.top + (13 + 14 * (number % 4)) * ratio);
  });
  ctx.restore();
}

// ---- size against time ------------------------------------------------------------------

function scatter(host, dots, unit) {
  // dots: {name, colour, x, y}
  const width = host.clientWidth, height = width < 560 ? 300 : 380;
  const left = 58, right = width - 16, top = 12, bottom = height - 40;
  const range = values => { const low = Math.min(...values), high = Math.max(...values); const room = Math.max(1.15, (high / low) ** 0.08); return [low / room, high * room]; };
  const [x0, x1] = range(dots.map(dot => dot.x)), [y0, y1] = range(dots.map(dot => dot.y));
  const x = value => left + (right - left) * Math.log(value / x0) / Math.log(x1 / x0);
  const y = value => bottom - (bottom - top) * Math.log(value / y0) / Math.log(y1 / y0);
  const svg = shape("svg", { width, height, role: "img", "aria-label": "Stored bytes against time" });
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
    const text = fitted(dot.name, 190), wide = text.length * 6.4;
    const flip = x(dot.x) + 9 + wide > right;
    const box = [flip ? x(dot.x) - 9 - wide : x(dot.x) + 9, y(dot.y) - 7, wide, 14];
    if (box[0] < left || taken.some(other => overlap(box, other))) continue;
    taken.push(box);
    svg.append(shape("text", { x: flip ? x(dot.x) - 9 : x(dot.x) + 9, y: y(dot.y) + 4, "text-anchor": flip ? "end" : "start" }, text));
  }
  host.replaceChildren(svg);
}

const overlap = (a, b) => a[0] < b[0] + b[2] && b[0] < a[0] + a[2] && a[1] < b[1] + b[3] && b[1] < a[1] + a[3];

function frontier(dots) {
  // Nobody is both faster and smaller than these.
  let least = Infinity;
  return [...dots].sort((a, b) => a.x - b.x || a.y - b.y).filter(dot => dot.y < least && ((least = dot.y), true));
}

// ---- where the time goes ----------------------------------------------------------------

const PARTS = ["#3b82f6", "#f59e0b", "#10b981", "#ef4444", "#8b5cf6", "#06b6d4", "#ec4899", "#84cc16", "#a16207", "#64748b"];

function attribution(host, rows, order, write) {
  // rows: {name, parts: {part: ns}}
  const total = row => order.reduce((sum, part) => sum + Math.max(0, row.parts[part] || 0), 0);
  const longest = Math.max(...rows.map(total));
  const legend = make("div", { className: "legend" });
  order.forEach((part, number) => {
    const dot = make("i", { className: "dot" });
    dot.style.background = PARTS[number % PARTS.length];
    legend.append(make("span", {}, dot, part));
  });
  const stack = make("div", { className: "stack" });
  for (const row of rows) {
    const bar = make("div");
    order.forEach((part, number) => {
      const piece = make("b", { title: `${row.name}, ${part}: ${write(row.parts[part] || 0)}` });
      piece.style.width = `calc((100% - 78px) * ${Math.max(0, row.parts[part] || 0) / longest})`;
      piece.style.background = PARTS[number % PARTS.length];
      bar.append(piece);
    });
    bar.append(make("em", { textContent: write(total(row)) }));
    stack.append(make("span", { textContent: row.name, title: row.name }), bar);
  }
  host.replaceChildren(legend, stack);
}
