"use strict";
// Curves with uPlot, and what all drawing shares. A host element and plain data go in; what was in
// the host is replaced. Names may come from anywhere: text is set, never parsed.

const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function make(tag, properties = {}, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children.filter(child => child !== null));
  return node;
}

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
  const decades = Math.log10(high / low);
  if (decades < 0.5) return evenTicks(low, high);
  const ticks = [];
  const factors = decades < 1.3 ? [1, 1.5, 2, 3, 5, 7] : decades < 4 ? [1, 2, 5] : [1];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++)
    for (const factor of factors) {
      const tick = factor * 10 ** power;
      if (tick >= low * 0.999 && tick <= high * 1.001) ticks.push(tick);
    }
  const step = Math.ceil(ticks.length / 9);
  return ticks.filter((_, index) => index % step === 0);
}

function evenTicks(low, high) {
  // So short a piece of a logarithmic axis is nearly even, and would have one tick or none.
  const rough = (high - low) / 6, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map(factor => factor * power).find(each => each >= rough);
  const first = Math.ceil(low / step), count = Math.floor(high / step) - first + 1;
  return Array.from({ length: count }, (_, i) => Number(((first + i) * step).toPrecision(12)));
}

function write(ctx, text, x, y) {
  // With a rim of the ground's colour: it stays readable where a curve runs through it.
  ctx.lineJoin = "round";
  ctx.lineWidth = 3 * devicePixelRatio;
  ctx.strokeStyle = css("--card");
  ctx.strokeText(text, x, y);
  ctx.fillText(text, x, y);
}

const MOST_NAMED = 24, MANY = 14, NAME_ROOM = 216, NAMES_FROM = 720;

function areNamed(width, lines) {
  // Whether curves have their names beside them; who draws needs a legend otherwise.
  const joined = lines.filter(line => !line.dots);
  return width > NAMES_FROM && joined.length > 0 && joined.length <= MOST_NAMED;
}

// ---- curves -----------------------------------------------------------------------------

function curves(host, chart) {
  // chart: {lines: [{name, colour, points | xs+ys, dashed, dots, step,
  //         bare}], xLog, yLog, x, y, xValue, yValue, xSplits, yZero, yRoom, marks: [[x, text, colour]]}
  host.replaceChildren();
  host.style.background = css("--card"); // printed, too: what was drawn on dark is not readable on white
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
  const named = areNamed(host.clientWidth, lines);
  const tall = named && lines.length > MANY ? 430 : narrow ? 260 : 330;
  const options = {
    width: host.clientWidth, padding: named ? [null, NAME_ROOM, null, null] : undefined, height: chart.height || tall,
    legend: { show: false }, focus: { alpha: 0.25 },
    cursor: { focus: { prox: 24 }, drag: { x: true, y: true, uni: 30 }, points: { size: 7 } },
    scales: { x: { time: false, distr: chart.xLog ? 3 : 1, range: rangeOf(chart.xLog, 0.02) }, y: { distr: chart.yLog ? 3 : 1, range: rangeOf(chart.yLog, chart.yRoom || 0.05, chart.yZero) } },
    axes: [
      { ...axis(xValue), label: chart.x, size: 32, labelSize: 18, labelFont: "12px system-ui", labelGap: 0, splits: chart.xSplits || (chart.xLog ? logSplits : undefined), space: narrow ? 46 : 60 },
      { ...axis(yValue), label: chart.y, labelSize: 20, labelFont: "12px system-ui", labelGap: 0, splits: chart.yLog ? logSplits : undefined, size: 58, space: 26 },
    ],
    series: [{}, ...lines.map(line => ({
      label: line.name, stroke: line.colour, width: line.dots ? 0 : 1.8, spanGaps: true,
      dash: line.dashed ? [5, 4] : undefined,
      points: { show: Boolean(line.dots) || (line.points.length < 13 && !line.step && !line.bare), size: line.dots ? 8 : 5, fill: line.colour },
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
  // Right of each curve's end, moved apart where ends are close, and joined to it. The text is not
  // in the curve's colour: few colours are dark enough for small letters on white.
  const { ctx, bbox } = u, ratio = devicePixelRatio, step = 13 * ratio;
  const places = [];
  lines.forEach((line, number) => {
    if (line.dots) return;
    const values = u.data[number + 1], at = nearest(values, values.length - 1);
    if (at !== null) places.push({ line, x: u.valToPos(u.data[0][at], "x", true), y: u.valToPos(values[at], "y", true) });
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
  const edge = bbox.left + bbox.width;
  for (const { line, x, y, at } of places) {
    ctx.strokeStyle = line.colour;
    ctx.fillStyle = css("--ink");
    ctx.setLineDash(line.dashed ? [3 * ratio, 2 * ratio] : []);
    ctx.lineWidth = 3 * ratio;
    ctx.beginPath(); ctx.moveTo(edge + 10 * ratio, at); ctx.lineTo(edge + 20 * ratio, at); ctx.stroke();
    // All histograms end at nothing: a join would say nothing.
    if (!line.step) {
      // Dotted and faint: where a curve ends early its join must not be taken for more of it.
      ctx.setLineDash([ratio, 3 * ratio]);
      ctx.globalAlpha = 0.6;
      ctx.lineWidth = 1.3 * ratio;
      ctx.beginPath(); ctx.moveTo(x, y); ctx.lineTo(edge + 10 * ratio, at); ctx.stroke();
      ctx.globalAlpha = 1;
    }
    ctx.fillText(fitted(line.name, NAME_ROOM - 26), edge + 24 * ratio, at);
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
  ctx.fillStyle = css("--ink");
  ctx.textAlign = "left";
  const room = [bbox.left, bbox.left + bbox.width, bbox.top, bbox.top + bbox.height];
  for (const { line, x, y } of dots) {
    const text = fitted(line.name, 190);
    const box = placeBeside(x, y, ctx.measureText(text).width, room, taken, ratio);
    if (box) write(ctx, text, box[0], box[1] + box[3] / 2);
  }
  ctx.restore();
}

function placeBeside(x, y, wide, [left, right, top, bottom], taken, ratio = 1) {
  // Where the name of a dot has room: right, left, above or below of it; null if nowhere.
  const away = 9 * ratio, high = 14 * ratio;
  const tried = [[x + away, y - high / 2], [x - away - wide, y - high / 2], [x - wide / 2, y - away - high], [x - wide / 2, y + away]];
  for (const [at, from] of tried) {
    const box = [at, from, wide, high];
    if (at < left || at + wide > right || from < top || from + high > bottom || taken.some(other => overlap(box, other))) continue;
    taken.push(box);
    return box;
  }
  return null;
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
    ctx.strokeStyle = colour || css("--soft");
    ctx.fillStyle = css("--soft");
    ctx.lineWidth = 1.5 * ratio;
    ctx.setLineDash([4 * ratio, 4 * ratio]);
    ctx.beginPath(); ctx.moveTo(at, bbox.top); ctx.lineTo(at, bbox.top + bbox.height); ctx.stroke();
    if (!text) return;
    ctx.setLineDash([]);
    const leftwards = at > bbox.left + bbox.width * 0.7;
    ctx.textAlign = leftwards ? "right" : "left";
    write(ctx, text, at + (leftwards ? -5 : 5) * ratio, bbox.top + (13 + 14 * (number % 4)) * ratio);
  });
  ctx.restore();
}

const overlap = (a, b) => a[0] < b[0] + b[2] && b[0] < a[0] + a[2] && a[1] < b[1] + b[3] && b[1] < a[1] + a[3];
