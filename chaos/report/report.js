// Draws the plots with the page's palette, keeps their time axes together, and makes them usable by keyboard.
"use strict";
(() => {
  const figures = new Map(JSON.parse(document.getElementById("figures").textContent).map((one) => [one.name, one]));
  const canvases = () => [...document.querySelectorAll(".canvas.drawn")];
  const narrow = (canvas) => canvas.clientWidth < 560;
  const NARROW_LABEL = 13; // characters of a category that fit beside a plot on a phone

  // "--placed" in a figure stands for the value of that custom property: light and dark have one source, style.css.
  function coloured(value, style) {
    if (typeof value === "string") return value.startsWith("--") ? style.getPropertyValue(value).trim() || value : value;
    if (Array.isArray(value)) return value.length && typeof value[0] === "number" ? value : value.map((one) => coloured(one, style));
    if (value && typeof value === "object")
      return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, coloured(one, style)]));
    return value;
  }

  function fitted(canvas, figure) {
    const { data, layout } = coloured({ data: figure.data, layout: figure.layout }, getComputedStyle(document.documentElement));
    layout.dragmode = "zoom";
    if (narrow(canvas)) {
      layout.dragmode = false; // a finger scrolls the page
      layout.margin = { ...layout.margin, l: 40, r: 8 };
      layout.font = { ...layout.font, size: 11 };
      layout.xaxis.nticks = 5;
      const axis = layout.yaxis;
      if (axis.type === "category") {
        axis.tickvals = axis.categoryarray;
        axis.ticktext = axis.categoryarray.map((name) => name.replace(" connection", "").replace(/^API, /, "API ").replace("Leader of ", "").replace(", row ", " ").replace("rule ", ""));
        axis.tickfont = { size: 9 };
      }
      for (const trace of data) if (trace.mode === "markers+text") trace.mode = "markers";
    }
    return { data, layout };
  }

  const config = {
    responsive: true,
    displaylogo: false,
    displayModeBar: false,
    doubleClick: "reset",
    showTips: false,
  };

  async function draw(canvas) {
    const figure = figures.get(canvas.dataset.plot);
    if (!figure || !canvas.clientWidth) return;
    const { data, layout } = fitted(canvas, figure);
    const first = !canvas.classList.contains("drawn");
    if (!first) {
      layout.xaxis.range = canvas.layout.xaxis.range.slice();
      data.forEach((trace, index) => { trace.visible = canvas.data[index].visible; });
    }
    await Plotly.react(canvas, data, layout, config);
    if (!first) return;
    canvas.classList.add("drawn");
    if (figure.linked) canvas.on("plotly_relayout", (change) => follow(canvas, change));
    canvas.addEventListener("keydown", (event) => steer(canvas, figure, event));
    document.documentElement.dataset.drawn = canvases().length;
  }

  let following = false;
  async function follow(from, change) {
    const moved = Object.keys(change).some((name) => name.startsWith("xaxis."));
    if (following || !moved) return;
    following = true;
    const range = from.layout.xaxis.range.slice();
    const others = canvases().filter((one) => one !== from && figures.get(one.dataset.plot).linked);
    try {
      await Promise.all(others.map((one) => Plotly.relayout(one, { "xaxis.range": range })));
    } finally {
      following = false;
    }
  }

  function steer(canvas, figure, event) {
    const moves = { ArrowLeft: [-0.2, 1], ArrowRight: [0.2, 1], "+": [0, 0.6], "=": [0, 0.6], "-": [0, 1.7], 0: null };
    if (!(event.key in moves) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    if (moves[event.key] === null) {
      Plotly.relayout(canvas, { "xaxis.range": figure.layout.xaxis.range.slice() });
      return;
    }
    const [shift, zoom] = moves[event.key];
    const date = figure.layout.xaxis.type === "date";
    const number = (value) => (typeof value === "string" && date ? Date.parse(value.replace(" ", "T") + "Z") : Number(value));
    const [begin, end] = canvas.layout.xaxis.range.map(number);
    const middle = (begin + end) / 2 + shift * (end - begin);
    const half = ((end - begin) * zoom) / 2;
    Plotly.relayout(canvas, { "xaxis.range": [middle - half, middle + half] });
  }

  function toggle(button) {
    const canvas = document.querySelector(`.canvas[data-plot="${button.dataset.plot}"]`);
    const shown = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(shown));
    const traces = button.dataset.traces.split(",").filter(Boolean).map(Number);
    if (traces.length) Plotly.restyle(canvas, { visible: shown }, traces);
  }

  // A link into something folded away unfolds it.
  function unfold() {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    let opened = false;
    for (let fold = target.closest("details"); fold; fold = fold.parentElement.closest("details")) {
      opened = opened || !fold.open;
      fold.open = true;
    }
    if (opened) target.scrollIntoView();
  }

  // Plots are drawn when they come near the window: the verdict must not wait for the last picture.
  const nearing = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      nearing.unobserve(entry.target);
      draw(entry.target);
    }
  }, { rootMargin: "800px 0px" });

  for (const button of document.querySelectorAll(".keys button")) button.addEventListener("click", () => toggle(button));
  for (const canvas of document.querySelectorAll(".canvas")) nearing.observe(canvas);
  addEventListener("beforeprint", () => document.querySelectorAll(".canvas:not(.drawn)").forEach(draw));
  addEventListener("hashchange", unfold);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => canvases().forEach(draw));
  unfold();
  document.documentElement.dataset.ready = "true";
})();
