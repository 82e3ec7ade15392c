"use strict";
(async () => {
  const root = document.documentElement;
  const byId = (id) => document.getElementById(id);
  if (!window.DecompressionStream) {
    byId("old").hidden = false;
    return;
  }
  const unpacked = (id) => {
    const bytes = Uint8Array.from(atob(byId(id).textContent), (letter) => letter.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  };
  const drawing = document.createElement("script");
  drawing.textContent = await unpacked("plotly");
  document.head.append(drawing);
  drawing.remove();
  const data = JSON.parse(await unpacked("data"));
  const articles = [...document.querySelectorAll("article")];
  const numbers = [...document.querySelectorAll(".rows")];
  const darkly = window.matchMedia("(prefers-color-scheme: dark)");
  const coarse = window.matchMedia("(pointer: coarse)").matches;
  const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif';
  const COLOURED = new Set(["color", "fillcolor", "colorscale", "key", "arrowcolor"]);
  // Widths on paper, in pixels of CSS: half a page, and a whole one.
  const PRINTED = { narrow: 330, wide: 680 };
  const plotted = new Map();
  let current = -1;
  let printing = false;

  // Colours are named by what they stand for; the scheme says what they are.
  const colour = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();
  const coloured = (value) =>
    Array.isArray(value) ? value.map(coloured)
      : typeof value === "string" && value[0] === "@" ? colour(value.slice(1)) : value;
  const themed = (value) => {
    if (Array.isArray(value)) return value.map(themed);
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(
      ([key, part]) => [key, COLOURED.has(key) && typeof part !== "number" ? coloured(part) : themed(part)]));
  };

  // Numbers that several traces share are written once, and named by their place.
  const expanded = (trace, columns) => {
    const at = (value) => (Number.isInteger(value) ? columns[value] : value);
    const full = { ...trace };
    for (const key of ["x", "y"]) if (key in full) full[key] = at(full[key]);
    if (full.marker) full.marker = { ...full.marker, color: at(full.marker.color) };
    return full;
  };

  const axisOf = (given) => ({
    gridcolor: colour("grid"), zerolinecolor: colour("grid"), linecolor: colour("rule"),
    tickfont: { color: colour("soft") }, automargin: true, ...given,
    title: { standoff: 8, ...given.title },
  });
  const layoutOf = (given) => {
    const layout = themed(given);
    for (const key of Object.keys(layout)) if (/^[xy]axis/.test(key)) layout[key] = axisOf(layout[key]);
    return {
      font: { family: FONT, size: 12, color: colour("ink") },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      margin: { l: 10, r: 12, t: 10, b: 10 },
      showlegend: false,
      hoverlabel: { bgcolor: colour("raised"), bordercolor: colour("soft"),
        font: { color: colour("ink"), family: FONT, size: 12 }, align: "left", namelength: -1 },
      hovermode: "closest", dragmode: coarse ? false : "zoom", ...layout,
    };
  };
  const CONFIG = {
    displaylogo: false, responsive: true, typesetMath: false, plotlyServerURL: "",
    showTips: false, displayModeBar: false,
  };

  // The key of a figure stands above it as text, so that names of any length have room.
  const element = (name, attributes) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    return node;
  };
  const SHAPES = { x: "M-4-4 4 4M4-4-4 4", "triangle-up": "M0-5 5 4H-5Z", "square-open": "M-4-4H4V4H-4Z", "x-thin-open": "M-3.5-3.5 3.5 3.5M3.5-3.5-3.5 3.5" };
  const swatch = (trace) => {
    const { marker = {}, line = {} } = trace;
    const first = (value) => (Array.isArray(value) ? value[0] : value);
    const ink = trace.key || first(line.color) || first(marker.color);
    const svg = element("svg", { viewBox: "-11 -6 22 12", width: 22, height: 12, opacity: trace.opacity || 1 });
    const area = trace.fillcolor || (trace.type === "bar" ? ink : line.width > 4 ? line.color : null);
    if (area) svg.append(element("rect", { x: -11, y: -4, width: 22, height: 8, fill: area }));
    else if ((trace.mode || "").startsWith("markers")) {
      const open = /open|^x/.test(marker.symbol);
      const paint = { fill: open ? "none" : ink, stroke: ink, "stroke-width": open ? 2 : 0 };
      const d = SHAPES[marker.symbol];
      svg.append(d ? element("path", { d, ...paint }) : element("circle", { r: 4.5, ...paint }));
    } else {
      const dashes = { dash: "5 3", dot: "1.5 2.5" }[line.dash] || "none";
      svg.append(element("path", { d: "M-11 0H11", stroke: ink, "stroke-width": Math.max(1.5, line.width), "stroke-dasharray": dashes }));
    }
    return svg;
  };
  const literal = (text) => text.replace(/&lt;/g, "<").replace(/&gt;/g, ">").replace(/&amp;/g, "&");
  const drawKey = (place, traces) => {
    let key = place.previousElementSibling;
    if (!key || !key.matches(".key")) {
      key = document.createElement("div");
      key.className = "key";
      key.setAttribute("aria-hidden", "true");
      place.before(key);
    }
    const named = new Map(traces.filter((t) => t.name && t.showlegend !== false).map((t) => [t.name, t]));
    key.replaceChildren(...[...named.values()].map((trace) => {
      const entry = document.createElement("span");
      entry.append(swatch(trace), literal(trace.name));
      return entry;
    }));
  };

  // Pixels of a forest around its rows.
  const AROUND_ROWS = 110;
  const widthOf = (place) => {
    if (!printing) return place.clientWidth;
    return place.parentElement.classList.contains("wide") ? PRINTED.wide : PRINTED.narrow;
  };
  // Small panels have no room for numbers.
  const fitPairs = (layout, width, count) => {
    layout.height = Math.min(layout.height, Math.max(260, 0.9 * width));
    if (width / count > 90) return;
    for (const key of Object.keys(layout)) {
      if (!/^[xy]axis/.test(key)) continue;
      layout[key].showticklabels = false;
      layout[key].title.font = { size: 10 };
    }
  };
  // Panels without room beside each other stand below each other, each with its own ordinate.
  const NARROW = 560;
  const BELOW_PANEL = 60;
  const stack = (layout, traces, width, tall) => {
    if (width > NARROW) return;
    const axes = Object.keys(layout).filter((key) => key.startsWith("xaxis"));
    const ordinate = layout.yaxis;
    const panel = tall + BELOW_PANEL;
    const whole = panel * axes.length;
    layout.height = whole + layout.margin.t + layout.margin.b;
    axes.forEach((key, i) => {
      const number = key.slice(5);
      const top = 1 - (i * panel) / whole;
      layout[key] = { ...layout[key], domain: [0, 1], anchor: `y${number}` };
      layout[`yaxis${number}`] = {
        ...(layout[`yaxis${number}`] || ordinate), domain: [top - tall / whole, top], anchor: `x${number}`,
      };
    });
    for (const trace of traces) trace.yaxis = trace.xaxis.replace("x", "y");
    for (const shape of layout.shapes || []) shape.yref = `${shape.xref.replace("x", "y")} domain`;
  };
  const draw = (id, figure) => {
    const place = byId(`plot-${id}`);
    if (!place || !figure) return;
    plotted.set(id, figure);
    // What is folded is plotted when it is opened.
    if (place.closest("details:not([open])")) return;
    drawIn(place, id, figure);
  };
  const drawIn = (place, id, figure) => {
    place.setAttribute("aria-label", figure.words);
    const width = widthOf(place);
    const layout = layoutOf(figure.layout);
    // On a screen a figure is as wide as its place, whatever that becomes.
    if (printing) layout.width = width;
    if (id === "pairs") fitPairs(layout, width, figure.columns.length - 1);
    const traces = figure.data.map((trace) => themed(expanded(trace, figure.columns || [])));
    if (id === "near") stack(layout, traces, width, 120);
    if (id === "forest") stack(layout, traces, width, layout.height - AROUND_ROWS);
    drawKey(place, traces);
    Plotly.react(place, traces, layout, CONFIG);
  };
  const redraw = () => { for (const [id, figure] of [...plotted]) draw(id, figure); };

  // The map: what is near the selected observation, and where it lies.
  const placesFigure = () => {
    const { groups, layout, own, simulated, near, words } = data.places;
    const pick = (from, rows) => from.map((column) => rows.map((row) => column[row]));
    const [x, y] = pick(simulated, near[current]);
    const [at_x, at_y] = pick(own, [current]);
    const dots = (name, xs, ys, marker) => ({
      type: "scatter", mode: "markers", name, x: xs, y: ys, marker, hoverinfo: "skip", cliponaxis: false,
    });
    const ring = { symbol: "circle-open", size: 22, color: "@ink", line: { color: "@ink", width: 2 } };
    return {
      data: [groups[0], dots("near the selected observation", x, y, { color: "@ink", size: 5 }), ...groups.slice(1),
        dots("selected", at_x, at_y, ring)],
      layout, words, columns: [],
    };
  };

  // One observation is chosen at a time; the page says which.
  const choose = (which) => {
    const count = articles.length;
    current = ((which % count) + count) % count;
    articles.forEach((article, i) => { article.hidden = i !== current; });
    numbers.forEach((part, i) => { part.hidden = i !== current; });
    for (const row of document.querySelectorAll("tr[data-observation]")) {
      if (Number(row.dataset.observation) === current) row.setAttribute("aria-current", "true");
      else row.removeAttribute("aria-current");
    }
    byId("announcement").textContent = articles[current].querySelector("h2").textContent;
    const figures = data.observations[current];
    for (const id of data.own) {
      const place = byId(`plot-${id}`);
      if (place) place.parentElement.hidden = !(id in figures);
      if (!(id in figures)) plotted.delete(id);
    }
    byId("picture").hidden = !("near" in figures);
    for (const [id, figure] of Object.entries(figures)) draw(id, figure);
    if (data.places) draw("places", placesFigure());
    if (root.dataset.ready) window.history.replaceState(null, "", `#observation-${current}`);
  };

  // Light or dark: as the system has it, until the button is used; paper is always light.
  const theme = byId("theme");
  let wanted = null;
  const show = (name) => {
    root.dataset.theme = name;
    theme.textContent = name === "dark" ? "Light" : "Dark";
    theme.setAttribute("aria-label", `Change to ${name === "dark" ? "light" : "dark"} colours`);
  };
  const usual = () => wanted || (darkly.matches ? "dark" : "light");
  const repaint = () => { show(printing ? "light" : usual()); redraw(); };
  theme.addEventListener("click", () => {
    wanted = root.dataset.theme === "dark" ? "light" : "dark";
    repaint();
  });
  darkly.addEventListener("change", repaint);
  for (const one of document.querySelectorAll("details")) one.addEventListener("toggle", redraw);

  // Paper holds every observation with its forest and its picture.
  const unfold = () => {
    articles.forEach((article, i) => {
      article.hidden = false;
      if (i === current) return;
      for (const id of ["forest", "near"].filter((key) => key in data.observations[i])) {
        const figure = document.createElement("figure");
        figure.className = "printed wide";
        const place = document.createElement("div");
        figure.append(place);
        article.append(figure);
        drawIn(place, id, data.observations[i][id]);
      }
    });
  };
  const fold = () => {
    for (const one of document.querySelectorAll("figure.printed")) one.remove();
    articles.forEach((article, i) => { article.hidden = i !== current; });
  };
  window.addEventListener("beforeprint", () => { printing = true; repaint(); unfold(); });
  window.addEventListener("afterprint", () => { printing = false; fold(); repaint(); });

  // Figures and numbers can be taken along.
  const save = (name, type, text) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    link.click();
    URL.revokeObjectURL(link.href);
  };
  const cell = (text) => (/[",\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text);
  byId("save-json").addEventListener("click", () => save("check.json", "application/json", JSON.stringify(data.record, null, 1)));
  byId("save-csv").addEventListener("click", () => {
    const lines = [["observation", "verdict", "kind", "parameters", "value", "lower", "upper"]];
    for (const at of data.record.observations) {
      for (const row of at.rows) {
        lines.push([at.label, at.verdict, row.kind, row.parameters.join(" "), row.value, row.lower, row.upper]);
      }
    }
    save("check.csv", "text/csv", `${lines.map((line) => line.map((part) => cell(String(part))).join(",")).join("\n")}\n`);
  });
  for (const button of document.querySelectorAll("button[data-format]")) {
    button.addEventListener("click", () => {
      const { format, of } = button.dataset;
      const label = articles[current].dataset.label.replace(/[^\w-]+/g, "_");
      const name = data.own.includes(of) ? `${of}-${label}` : of;
      Plotly.downloadImage(byId(`plot-${of}`), { format, filename: name, scale: 2 });
    });
  }

  // Ways to choose, and to sort.
  const order = () => [...document.querySelectorAll("tr[data-observation]")].map((row) => Number(row.dataset.observation));
  const step = (by) => {
    const all = order();
    choose(all.length ? all[(all.indexOf(current) + by + all.length) % all.length] : current);
  };
  if (byId("list")) {
    byId("previous").addEventListener("click", () => step(-1));
    byId("next").addEventListener("click", () => step(1));
    const body = document.querySelector("#table tbody");
    body.addEventListener("click", (event) => {
      const row = event.target.closest("tr");
      if (!row) return;
      choose(Number(row.dataset.observation));
      if (event.target.closest("a")) {
        event.preventDefault();
        byId("answer").scrollIntoView();
        articles[current].querySelector("h2").focus({ preventScroll: true });
      }
    });
    const value = (row, column) => {
      const text = row.children[column].textContent.trim();
      const number = Number(text.replace(/^< /, ""));
      return column === 1 ? Number(row.dataset.rank) : Number.isFinite(number) && text ? number : text;
    };
    for (const button of document.querySelectorAll("button.sort")) {
      button.addEventListener("click", () => {
        const column = Number(button.dataset.column);
        const head = button.parentElement;
        const down = head.getAttribute("aria-sort") === "ascending";
        for (const other of head.parentElement.children) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const rows = [...body.children].map((row) => [value(row, column), row]);
        rows.sort(([a], [b]) => (typeof a === typeof b ? (a > b) - (a < b) : typeof a === "number" ? -1 : 1));
        if (down) rows.reverse();
        body.append(...rows.map(([, row]) => row));
      });
    }
  }
  document.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const busy = event.target.closest("input, select, textarea, .scroll, pre");
    if (!by || busy || articles.length < 2 || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    step(by);
  });

  show(usual());
  const asked = /^#observation-(\d+)$/.exec(window.location.hash);
  choose(asked && Number(asked[1]) < articles.length ? Number(asked[1]) : data.start);
  for (const [id, figure] of Object.entries(data.average)) draw(id, figure);
  const map = byId("plot-places");
  if (map && map.on) {
    map.on("plotly_click", (event) => {
      const row = event.points[0].customdata;
      if (Number.isInteger(row)) choose(row);
    });
  }
  // Tells anyone who waits that all is plotted.
  root.dataset.ready = "true";
  if (asked) byId("answer").scrollIntoView();
})();
