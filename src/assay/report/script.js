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
  const rows = [...document.querySelectorAll("a[data-observation]")].map((a) => a.closest("tr"));
  const darkly = window.matchMedia("(prefers-color-scheme: dark)");
  const coarse = window.matchMedia("(pointer: coarse)").matches;
  const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif';
  const COLOURED = new Set(["color", "fillcolor", "colorscale", "key", "arrowcolor"]);
  // Widths on paper, in pixels of CSS: half a page, and a whole one.
  const PRINTED = { narrow: 330, wide: 680 };
  const drawn = new Map();
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
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  };
  const SHAPES = { x: "M-4-4 4 4M4-4-4 4", "triangle-up": "M0-5 5 4H-5Z", "square-open": "M-4-4H4V4H-4Z", "diamond-open": "M0-5 5 0 0 5-5 0Z" };
  const swatch = (trace) => {
    const { marker = {}, line = {} } = trace;
    const first = (value) => (Array.isArray(value) ? value[0] : value);
    const ink = trace.key || first(line.color) || first(marker.color);
    const svg = element("svg", { viewBox: "-11 -6 22 12", width: 22, height: 12, opacity: trace.opacity || 1 });
    const area = trace.fillcolor || (trace.type === "bar" ? ink : line.width > 4 ? line.color : null);
    if (area) svg.append(element("rect", { x: -11, y: -4, width: 22, height: 8, fill: area }));
    else if ((trace.mode || "").startsWith("markers")) {
      const open = /open|^x$/.test(marker.symbol);
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

  const widthOf = (place) => {
    if (!printing) return place.clientWidth;
    return place.parentElement.classList.contains("wide") ? PRINTED.wide : PRINTED.narrow;
  };
  // Small panels have no room for numbers.
  const fitPairs = (layout, width, count) => {
    layout.height = Math.min(layout.height, Math.max(300, 0.95 * width));
    if (width / count > 90) return;
    for (const key of Object.keys(layout)) {
      if (!/^[xy]axis/.test(key)) continue;
      layout[key].showticklabels = false;
      layout[key].title.font = { size: 10 };
    }
  };
  // Panels without room beside each other stand below each other.
  const fitNear = (layout, width) => {
    if (width > 520) return;
    const keys = Object.keys(layout).filter((key) => key.startsWith("xaxis"));
    layout.height = 40 + 180 * keys.length;
    keys.forEach((key, i) => {
      layout[key].domain = [0.14, 0.98];
      layout[`y${key.slice(1)}`].domain = [1 - (i + 0.66) / keys.length, 1 - (i + 0.04) / keys.length];
    });
  };
  const draw = (id, figure) => {
    const place = byId(`plot-${id}`);
    if (!place || !figure) return;
    drawn.set(id, figure);
    drawIn(place, id, figure);
  };
  const drawIn = (place, id, figure) => {
    place.setAttribute("aria-label", figure.words);
    const width = widthOf(place);
    const layout = layoutOf(figure.layout);
    // On a screen a figure is as wide as its place, whatever that becomes.
    if (printing) layout.width = width;
    if (id === "pairs") fitPairs(layout, width, figure.columns.length - 1);
    if (id === "near") fitNear(layout, width);
    const traces = figure.data.map((trace) => themed(expanded(trace, figure.columns)));
    drawKey(place, traces);
    Plotly.react(place, traces, layout, CONFIG);
  };
  const redraw = () => { for (const [id, figure] of [...drawn]) draw(id, figure); drawPlaces(); };

  // The map, in the coordinates that are chosen.
  const places = data.places;
  const [across, upwards] = ["axis-x", "axis-y"].map(byId);
  // Where labels have room, clear of each other and of the rings; the one that is chosen first.
  const SIDES = { "top center": [-0.5, -1.5], "middle right": [0.3, -0.5], "middle left": [-1.3, -0.5], "bottom center": [-0.5, 0.5] };
  const ROOM = 0.09;
  // Axes end where most points lie; what lies farther out stands at their edge, with an arrow.
  const within = (column) => {
    const [low, high] = places.ends[column];
    return places.columns[column].map((v) => (v === null ? null : Math.min(high, Math.max(low, v))));
  };
  const beyond = (column, row) => {
    const [[low, high], v] = [places.ends[column], places.columns[column][row]];
    return v === null ? 0 : Number(v > high) - Number(v < low);
  };
  const onScale = (column) => (column === places.logarithmic ? Math.log10 : (v) => v);
  const mapAxis = (column) => {
    const [low, high] = places.ends[column].map(onScale(column));
    const room = ROOM * (high - low || 1);
    const scale = column === places.logarithmic ? { type: "log", dtick: "D2", tickformat: "~g" } : {};
    return { title: { text: places.names[column] }, range: [low - room, high + room], ...scale };
  };
  const ARROWS = { "1,0": "→", "-1,0": "←", "0,1": "↑", "0,-1": "↓", "1,1": "↗", "1,-1": "↘", "-1,1": "↖", "-1,-1": "↙" };
  const beside = (x, y) => `${["bottom", "middle", "top"][y + 1]} ${["left", "center", "right"][x + 1]}`;
  const arrows = (i, j, pick) => {
    const far = [...places.text.keys()].filter((row) => beyond(i, row) || beyond(j, row));
    const ways = far.map((row) => [beyond(i, row), beyond(j, row)]);
    return {
      type: "scatter", mode: "text", x: pick(far, i), y: pick(far, j), name: "farther out",
      text: ways.map((way) => ARROWS[way]), textposition: ways.map((way) => beside(...way)),
      textfont: { size: 18, color: "@ink" }, hoverinfo: "skip", showlegend: false, cliponaxis: false,
    };
  };
  const farOut = (row, columns) => columns.filter((column) => beyond(column, row)).map(
    (column) => `<br>farther out: ${places.names[column]} = ${Number(places.columns[column][row].toPrecision(2))}`).join("");
  const sidesOf = (i, j) => {
    const scale = (column, size) => {
      const value = onScale(column);
      const [low, high] = places.ends[column].map(value);
      return within(column).map((v) => (size * (value(v) - low)) / (high - low || 1));
    };
    // Less the numbers beside the axes, and their room.
    const at = [scale(i, (widthOf(byId("plot-places")) - 60) / (1 + 2 * ROOM)), scale(j, -360 / (1 + 2 * ROOM))];
    const taken = places.labels.map((_, row) => [at[0][row] - 9, at[1][row] - 9, 18, 18, row]);
    const free = (box, row) => taken.every(([x, y, w, h, of]) => of === row
      || box[0] > x + w || x > box[0] + box[2] || box[1] > y + h || y > box[1] + box[3]);
    const clear = {};
    const order = places.labels.map((_, row) => row).sort((a, b) => (b === current) - (a === current));
    for (const row of order) {
      const [w, h] = [7 * places.labels[row].replace(/&\w+;/g, "x").length, 16];
      for (const [side, [dx, dy]] of Object.entries(SIDES)) {
        const shift = side.startsWith("middle") ? [Math.sign(dx) * 8, 0] : [0, Math.sign(dy) * 8];
        const box = [at[0][row] + dx * w + shift[0], at[1][row] + dy * h + shift[1], w, h];
        if (!free(box, row)) continue;
        clear[row] = side;
        taken.push([...box, -1]);
        break;
      }
    }
    return clear;
  };
  const placesFigure = () => {
    const [i, j] = [Number(across.value), Number(upwards.value)];
    const shown = { [i]: within(i), [j]: within(j) };
    const pick = (rows_, column) => rows_.map((row) => shown[column][row]);
    const dots = (which, name, marker) => ({
      type: "scatter", mode: "markers", x: pick(which, i), y: pick(which, j), name, marker,
      hoverinfo: "skip", showlegend: which.length > 0,
    });
    const traces = [
      dots(places.simulated, "simulations", { color: "@band", size: 4, opacity: 0.5 }),
      dots(places.near[current], "near the selected observation", { color: "@ink", size: 5, opacity: 0.75 }),
    ];
    traces.push(...places.groups.map((group) => ({
      type: "scatter", mode: "markers",
      x: pick(group.rows, i), y: pick(group.rows, j), name: group.name,
      customdata: group.rows, hovertext: group.rows.map((row) => places.text[row] + farOut(row, [i, j])),
      hovertemplate: "%{hovertext}<extra></extra>",
      opacity: group.faint ? 0.55 : 1, cliponaxis: false,
      marker: { symbol: group.symbol, color: group.color, size: group.faint ? 8 : 13,
        line: { color: group.symbol === "circle-open" ? group.color : "@paper", width: group.symbol === "circle-open" ? 2 : 1 } },
    })));
    const own = places.labels.map((_, row) => row);
    const sides = sidesOf(i, j);
    traces.push({
      type: "scatter", mode: "markers+text", x: pick(own, i), y: pick(own, j),
      text: own.map((row) => (sides[row] ? places.labels[row] : "")),
      textposition: own.map((row) => sides[row] || "top center"),
      hoverinfo: "skip", showlegend: false, cliponaxis: false, marker: { size: 22, opacity: 0 },
    });
    traces.push({
      type: "scatter", mode: "markers", x: pick([current], i), y: pick([current], j),
      name: "selected", hoverinfo: "skip", cliponaxis: false,
      marker: { symbol: "circle-open", size: 22, color: "@ink", line: { color: "@ink", width: 2 } },
    });
    traces.push(arrows(i, j, pick));
    const at = places.line;
    const line = (column, way) => (column !== places.logarithmic ? [] : [{
      type: "line", line: { color: "@ink", width: 1, dash: "dash" },
      ...(way === "y" ? { x0: 0, x1: 1, xref: "paper", y0: at, y1: at } : { y0: 0, y1: 1, yref: "paper", x0: at, x1: at }),
    }]);
    return {
      data: traces, columns: [],
      words: `${places.words} Of ${places.simulated.length} simulations, ${places.near[current].length} are near the selected observation.`,
      layout: {
        xaxis: mapAxis(i), yaxis: mapAxis(j),
        height: 420, shapes: [...line(j, "y"), ...line(i, "x")],
      },
    };
  };
  const drawPlaces = () => {
    draw("places", placesFigure());
    drawn.delete("places");
  };

  // One observation is chosen at a time; the page says which.
  const choose = (which) => {
    const count = articles.length;
    current = ((which % count) + count) % count;
    articles.forEach((article, i) => { article.hidden = i !== current; });
    rows.forEach((row, i) => {
      if (i === current) row.setAttribute("aria-current", "true");
      else row.removeAttribute("aria-current");
    });
    byId("chosen").value = String(current);
    byId("heading-observation").textContent = `The selected observation: ${articles[current].dataset.label}`;
    byId("said").textContent = articles[current].dataset.said;
    const figures = data.observations[current];
    for (const id of data.own) {
      const place = byId(`plot-${id}`);
      if (place) place.parentElement.hidden = !(id in figures);
      if (!(id in figures)) drawn.delete(id);
    }
    const noise = byId("noise");
    if (noise) noise.hidden = !("pp" in figures);
    for (const [id, figure] of Object.entries(figures)) draw(id, figure);
    drawPlaces();
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
  // Paper holds every observation: the chosen one with all its figures, others with a few.
  let opened = [];
  const unfold = () => {
    opened = [...document.querySelectorAll("details:not([open])")];
    for (const one of opened) one.open = true;
    articles.forEach((article, i) => {
      article.hidden = false;
      if (i === current) return;
      for (const id of ["near", "bias", "width"].filter((key) => key in data.observations[i])) {
        const figure = document.createElement("figure");
        figure.className = id === "near" ? "printed wide" : "printed";
        const place = document.createElement("div");
        figure.append(place);
        article.append(figure);
        drawIn(place, id, data.observations[i][id]);
      }
    });
  };
  const fold = () => {
    for (const one of opened) one.open = false;
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
    const lines = [...document.querySelectorAll("#verdict table tr")].map(
      (row) => [...row.children].map((one) => cell(one.innerText.trim())).join(","));
    save("check.csv", "text/csv", `${lines.join("\n")}\n`);
  });
  for (const button of document.querySelectorAll("button[data-format]")) {
    button.addEventListener("click", () => {
      const { format, of } = button.dataset;
      const label = articles[current].dataset.label.replace(/[^\w-]+/g, "_");
      const name = data.own.includes(of) ? `${of}-${label}` : of;
      Plotly.downloadImage(byId(`plot-${of}`), { format, filename: name, scale: 2 });
    });
  }

  // Ways to choose.
  byId("chosen").addEventListener("change", (event) => choose(Number(event.target.value)));
  byId("previous").addEventListener("click", () => choose(current - 1));
  byId("next").addEventListener("click", () => choose(current + 1));
  for (const select of [across, upwards]) select.addEventListener("change", drawPlaces);
  document.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const busy = event.target.closest("input, select, textarea, .scroll, pre, nav");
    if (!step || busy || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    choose(current + step);
  });
  rows.forEach((row, i) => {
    row.dataset.row = String(i);
    row.addEventListener("click", (event) => {
      choose(i);
      if (event.target.closest("a")) {
        event.preventDefault();
        byId("observation").scrollIntoView();
        articles[i].querySelector("h3").focus({ preventScroll: true });
      }
    });
  });

  show(usual());
  across.value = "0";
  upwards.value = String(Math.min(1, places.names.length - 1));
  for (const [id, figure] of Object.entries(data.overall)) draw(id, figure);
  const asked = /^#observation-(\d+)$/.exec(window.location.hash);
  choose(asked && Number(asked[1]) < articles.length ? Number(asked[1]) : data.start);
  byId("plot-places").on("plotly_click", (event) => {
    const row = event.points[0].customdata;
    if (Number.isInteger(row) && row < places.count) choose(row);
  });
  // Tells anyone who waits that all is drawn.
  root.dataset.ready = "true";
  // Figures have moved what the address asks for.
  if (asked) byId("observation").scrollIntoView();
})();
