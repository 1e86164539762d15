"use strict";
// Draws the charts of a page. Without it the page has the tables of their points.

const data = JSON.parse(document.getElementById("data").textContent);
const TICK_PX = 54;

function draw(figure) {
  const chart = data[Number(figure.dataset.chart)];
  const host = figure.querySelector(".plot");
  const labels = new Map(chart.ticks);
  const legend = figure.querySelector(".legend");
  if (legend) legend.hidden = host.clientWidth > NAMES_FROM; // then names stand beside curves
  curves(host, {
    ...chart,
    lines: chart.lines.map(line => ({ ...line, bare: line.dashed, colour: css(`--${line.colour}`) })),
    yZero: true, yRoom: 0.16,
    xValue: value => labels.get(value) ?? "",
    xSplits: (u, index, low, high) => thinned(chart, low, high, host.clientWidth),
    yValue: value => `${brief(value)}${chart.y.includes("%") ? " %" : ""}`,
  });
}

function thinned(chart, low, high, width) {
  // Of ticks that would touch, only the first is written.
  const place = value => chart.xLog ? Math.log(value) : value;
  const room = TICK_PX * (place(high) - place(low)) / Math.max(1, width - 80);
  let last = -Infinity;
  return chart.ticks.map(([value]) => value).filter(value => {
    const fits = value >= low && value <= high && place(value) - last >= room;
    if (fits) last = place(value);
    return fits;
  });
}

const figures = [...document.querySelectorAll("figure[data-chart]")];
let width = 0;
function drawAll() {
  if (width === innerWidth) return; // a phone that scrolls only hides its address bar
  width = innerWidth;
  figures.forEach(draw);
}
addEventListener("resize", drawAll);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => figures.forEach(draw));
for (const figure of figures) {
  figure.classList.remove("undrawn");
  figure.querySelector("details").open = false;
}
drawAll();
