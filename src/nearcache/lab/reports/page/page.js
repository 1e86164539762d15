"use strict";
// State and controls: which candidates, which operation and payload, which chart.
// Without this script the page shows all of its tables, one after the other.

const data = JSON.parse(document.getElementById("data").textContent);
const who = data.candidates;
const sheetNodes = [...document.querySelectorAll(".sheet")];
const SHOWN_AT_FIRST = 8;
const state = { on: new Set(), sheet: 0, tab: "ratio", dist: "percentiles", time: "rounds" };

const best = [...data.order].slice(0, SHOWN_AT_FIRST);
function startWith(numbers) {
  state.on = new Set(numbers);
  if (data.baseline !== null) state.on.add(data.baseline);
}
startWith(data.order.length > SHOWN_AT_FIRST + 4 ? best : data.order);

// What is shown is in the address, so that a link to the file can point at one chart of it.
const KEPT = ["tab", "dist", "time"];
function restore() {
  const said = new URLSearchParams(location.hash.slice(1));
  for (const name of KEPT) if (said.has(name)) state[name] = said.get(name);
  if (!(state.tab in TABS)) state.tab = "ratio";
  const found = data.sheets.findIndex(each => each.operation === said.get("operation") && each.payload === said.get("payload"));
  state.sheet = Math.max(0, found);
}
function keep() {
  const said = new URLSearchParams({ operation: sheet().operation, payload: sheet().payload });
  for (const name of KEPT) said.set(name, state[name]);
  history.replaceState(null, "", "#" + said);
}

const sheet = () => data.sheets[state.sheet];
const rows = () => sheet().rows.filter(row => state.on.has(row.c));
const scaled = value => value === null || value === undefined ? null : value / sheet().factor;
const said = value => `${short(scaled(value))} ${sheet().unit}`;

// ---- controls ---------------------------------------------------------------------------

function pressed(button, isOn) { button.setAttribute("aria-pressed", String(isOn)); }

function buildChips() {
  const host = document.getElementById("chips");
  who.forEach((candidate, number) => {
    const dot = make("i", { className: "dot" });
    dot.style.background = candidate.colour;
    const chip = make("button", { type: "button", className: "chip", title: candidate.family }, dot, candidate.name);
    chip.dataset.number = number;
    chip.onclick = () => { state.on.has(number) ? state.on.delete(number) : state.on.add(number); refresh(); };
    host.append(chip);
  });
  const sets = document.getElementById("sets");
  const named = { all: data.order, none: [], [`best ${SHOWN_AT_FIRST}`]: best };
  for (const [name, numbers] of Object.entries(named)) {
    if (name.startsWith("best") && data.order.length <= SHOWN_AT_FIRST) continue;
    const button = make("button", { type: "button", textContent: name });
    button.onclick = () => { numbers.length ? startWith(numbers) : state.on.clear(); refresh(); };
    sets.append(button);
  }
}

function buildChoice(kind) {
  const values = [...new Set(data.sheets.map(each => each[kind]))].filter(value => value !== "-");
  if (values.length < 2) return;
  const host = document.getElementById("choices");
  const row = make("div", { className: "choice" }, make("span", { textContent: kind }));
  for (const value of values) {
    const title = kind === "payload" && data.payloads[value] !== value ? data.payloads[value] : "";
    const button = make("button", { type: "button", textContent: title ? `${value}: ${fitted(title, 200)}` : value, title: title || value });
    button.dataset.kind = kind;
    button.dataset.value = value;
    button.onclick = () => choose(kind, value);
    row.append(button);
  }
  host.append(row);
}

function choose(kind, value) {
  const other = kind === "operation" ? "payload" : "operation";
  const wanted = sheet()[other];
  const fitting = data.sheets.filter(each => each[kind] === value);
  const found = fitting.find(each => each[other] === wanted) || fitting[0];
  state.sheet = data.sheets.indexOf(found);
  refresh();
  keep();
}

const TABS = { ratio: "Ratio", spread: "Distribution", time: "Over time", size: "Size against time", parts: "Where the time goes" };

function has(tab) {
  if (tab === "ratio") return sheet().rows.some(row => row.ratio);
  if (tab === "spread") return sheet().rows.some(row => row.curve);
  if (tab === "size") return sheet().rows.some(row => row.stored);
  if (tab === "parts") return sheet().parts.length > 0;
  return true;
}

function buildTabs() {
  const host = document.getElementById("tabs");
  for (const [tab, title] of Object.entries(TABS)) {
    const button = make("button", { type: "button", textContent: title });
    button.dataset.tab = tab;
    button.onclick = () => { state.tab = tab; refresh(); keep(); };
    host.append(button);
  }
}

function variants(kind, names) {
  const row = make("div", { className: "choice" });
  for (const name of names) {
    const button = make("button", { type: "button", textContent: name });
    pressed(button, state[kind] === name);
    button.onclick = () => { state[kind] = name; refresh(); keep(); };
    row.append(button);
  }
  return row;
}

// ---- charts -----------------------------------------------------------------------------

const depth = rank => -Math.log10(Math.max(1 - rank / 100, 1e-9));
const rankOf = at => 100 * (1 - 10 ** -at);

function lineOf(row, points, more = {}) {
  const candidate = who[row.c];
  return { name: candidate.name, colour: candidate.colour, dashed: candidate.twin, points, ...more };
}

function drawRatio(host, caption) {
  const shown = rows().filter(row => row.ratio || row.c === data.baseline);
  forest(host, shown.map(row => ({ ...row, name: who[row.c].name, colour: who[row.c].colour })), who[data.baseline] ? who[data.baseline].name : "");
  caption.textContent = `How many times the cost of ${who[data.baseline].name}, round by round, with its 95 % interval; left is better. ` +
    "The band is the noise floor: one configuration under two names was that far apart, so what lies in it is called the same.";
}

function drawSpread(host, caption) {
  const unit = sheet().unit;
  const yValue = value => brief(value) + " " + unit;
  const plot = make("div", { className: "plot" });
  host.replaceChildren(variants("dist", ["percentiles", "histogram"]), plot);
  if (state.dist === "percentiles") {
    const lines = rows().filter(row => row.curve).map(row => lineOf(row, row.curve.map((value, i) => [depth(data.ranks[i]), scaled(value)])));
    curves(plot, {
      lines, yLog: true, x: "percentile", y: unit, yValue,
      xValue: at => "P" + Number(rankOf(at).toPrecision(4)),
      xSplits: (u, index, low, high) => [1, 50, 90, 99, 99.9, 99.99].map(depth).filter(at => at >= low && at <= high),
    });
    caption.textContent = "To the right the rarer, upward the slower; both axes are logarithmic. Each curve ends where single samples begin.";
  } else {
    const edges = sheet().edges;
    const lines = rows().filter(row => row.bins).map(row => lineOf(row, histogram(row.bins, edges), { step: true }));
    curves(plot, { lines, xLog: true, yZero: true, x: unit, y: "% of samples", xValue: yValue, yValue: value => brief(value) + "%" });
    caption.textContent = "Share of the samples in bins of equal width on a logarithmic axis, up to P99.9. Two humps are two ways to be answered.";
  }
}

function histogram(bins, edges) {
  // From the bin before the first with something in it to the one behind the last.
  const first = bins.findIndex(share => share > 0), last = bins.findLastIndex(share => share > 0);
  const below = edges[0] ** 2 / edges[1]; // nothing lies before the first bin: curves rise from zero
  return [0, ...bins, 0].map((share, i) => [scaled(i ? edges[i - 1] : below), share * 100]).slice(first, last + 3);
}

function drawTime(host, caption) {
  const unit = sheet().unit;
  const yValue = value => brief(value) + " " + unit;
  const plot = make("div", { className: "plot" });
  const hasCourse = sheet().rows.some(row => row.course);
  host.replaceChildren(hasCourse ? variants("time", ["rounds", "first round"]) : "", plot);
  if (state.time === "rounds" || !hasCourse) {
    const lines = rows().map(row => lineOf(row, row.points.map((value, i) => [i + 1, scaled(value)])));
    const marks = [];
    const longest = rows().reduce((a, row) => !a || row.points.length > a.points.length ? row : a, null);
    let at = 0.5;
    if (longest) longest.sets.forEach((size, i) => { if (i) marks.push([at, i === 1 ? "fresh processes" : ""]); at += size; });
    curves(plot, { lines, marks, x: "round", y: unit, yLog: true, yValue, xValue: value => Number.isInteger(value) ? String(value) : "" });
    caption.textContent = "What each round counts as, in the order of the run. Lines that move together show the machine, not the candidate.";
  } else {
    const shown = rows().filter(row => row.course);
    const lines = shown.map(row => lineOf(row, row.course.map((value, i) => [100 * (i + 0.5) / row.course.length, scaled(value)])));
    const marks = shown.filter(row => row.cut > 0).map(row => [100 * row.cut / row.course.length, "warm-up: " + who[row.c].name, who[row.c].colour]);
    curves(plot, { lines, marks, x: "% of the first round of the first processes", y: unit, yLog: true, yValue, xValue: value => brief(value) + "%" });
    caption.textContent = "Medians of equal blocks of samples. What lies left of a candidate's dashed line was found to be warm-up (MSER-5) and left out; those without a line had none.";
  }
}

function drawSize(host, caption) {
  const dots = rows().filter(row => row.stored && !who[row.c].twin).map(row => ({ name: who[row.c].name, colour: who[row.c].colour, x: scaled(row.level), y: row.stored }));
  if (!dots.length) { host.replaceChildren(make("p", { className: "soft", textContent: "Nothing to draw: choose candidates above." })); return; }
  const best = scatter(host, dots, sheet().unit);
  caption.textContent = "Both axes logarithmic. " + (best.length > 1
    ? "The dashed line joins those that nobody beats in both."
    : `Of these, ${best[0].name} is both the fastest and the smallest.`);
}

function drawParts(host, caption) {
  const shown = rows().filter(row => row.parts).map(row => ({ name: who[row.c].name, parts: row.parts }));
  attribution(host, shown, sheet().parts, said, data.palette);
  caption.textContent = "Medians over the rounds, taken beside the timed loops, all bars on one scale. What was not measured is in no bar.";
}

const DRAW = { ratio: drawRatio, spread: drawSpread, time: drawTime, size: drawSize, parts: drawParts };

// ---- all together -----------------------------------------------------------------------

function refresh() {
  for (const chip of document.querySelectorAll(".chip")) pressed(chip, state.on.has(Number(chip.dataset.number)));
  const names = new Set([...state.on].map(number => who[number].name));
  for (const row of document.querySelectorAll("tr[data-name]"))
    row.classList.toggle("off", state.on.size > 0 && !names.has(row.dataset.name));
  rescaleBars();
  if (!data.sheets.length) return;
  if (!has(state.tab)) state.tab = Object.keys(TABS).find(has);
  for (const button of document.querySelectorAll("#choices button")) pressed(button, sheet()[button.dataset.kind] === button.dataset.value);
  for (const button of document.querySelectorAll("#tabs button")) {
    pressed(button, button.dataset.tab === state.tab);
    button.hidden = !has(button.dataset.tab);
  }
  sheetNodes.forEach((node, number) => { node.hidden = number !== state.sheet; });
  document.getElementById("chart-title").textContent = sheet().title;
  DRAW[state.tab](document.getElementById("chart"), document.getElementById("chart-caption"));
}

function rescaleBars() {
  // Bars fill the room there is, whoever is left out.
  for (const table of document.querySelectorAll(".sheet table")) {
    const bars = [...table.querySelectorAll("tr:not(.off) td.bar i")];
    const share = bar => Number(bar.dataset.share || (bar.dataset.share = parseFloat(bar.style.width)));
    const longest = Math.max(...bars.map(share));
    for (const bar of bars) bar.style.width = 100 * share(bar) / longest + "%";
  }
}

function drawViews() {
  document.querySelectorAll(".view-chart").forEach(host => {
    const chart = data.charts[Number(host.dataset.chart)];
    const lines = chart.lines.map((line, i) => ({ ...line, colour: line.colour || data.palette[i % data.palette.length] }));
    const legend = make("div", { className: "legend" });
    for (const line of lines) {
      const dot = make("i", { className: "dot" });
      dot.style.background = line.colour;
      legend.append(make("span", {}, dot, line.name));
    }
    const plot = make("div", { className: "plot" });
    host.replaceChildren(plot, legend);
    legend.hidden = areNamed(plot.clientWidth, lines) && !lines.some(line => line.dots);
    curves(plot, { ...chart, lines });
  });
}

function makeSortable(table) {
  const heads = [...table.querySelectorAll("thead th")];
  const number = text => { const found = parseFloat(text.replace(/[(,]/g, "")); return isNaN(found) ? Infinity : found; };
  heads.forEach((head, column) => {
    head.classList.add("sortable");
    head.onclick = () => {
      const body = table.tBodies[0], turn = head.dataset.turn === "1" ? -1 : 1;
      heads.forEach(other => delete other.dataset.turn);
      head.dataset.turn = String(turn);
      const of = row => row.cells[column].textContent.trim();
      const byText = !column || head.classList.contains("text");
      body.append(...[...body.rows].sort((a, b) => turn * (byText ? of(a).localeCompare(of(b)) : number(of(a)) - number(of(b)))));
    };
  });
}

if (data.sheets.length) {
  document.querySelector(".controls").hidden = false;
  document.getElementById("charts").hidden = false;
  buildChips();
  buildChoice("operation");
  buildChoice("payload");
  buildTabs();
  restore();
}
refresh();
drawViews();
document.querySelectorAll("table.sorts").forEach(makeSortable);
let waiting = 0, lastWidth = innerWidth;
addEventListener("resize", () => {
  if (innerWidth === lastWidth) return;
  lastWidth = innerWidth;
  cancelAnimationFrame(waiting);
  waiting = requestAnimationFrame(() => { refresh(); drawViews(); });
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { refresh(); drawViews(); });

const copy = document.getElementById("copy");
if (copy && navigator.clipboard) {
  copy.hidden = false;
  copy.onclick = async () => {
    await navigator.clipboard.writeText(document.getElementById("block").textContent);
    copy.textContent = "Copied";
  };
}
