/* Charts to explore (templates/components/chart.html, docs/look.md "Charts").

   - plotly.js is fetched once, when the first chart comes near the window.
   - A chart is drawn from the JSON beside it (.chart-data). A region that refreshes brings new
     JSON; htmx keeps .chart-draw itself (hx-preserve), and the figure is updated in place.
   - What the reader chose (range, zoom, series switched off) is kept here, by the chart's id, and
     applied to whatever is drawn next.
   - Colours are names of the stylesheet, looked up at each drawing: another theme draws anew. */
(function () {
  "use strict";
  var source = document.currentScript.dataset.plotly;
  var text = window.evenshare.text;
  var root = document.documentElement;
  var charts = new Map();
  var loading = null;

  function make(name, css, parent, content) {
    var element = document.createElement(name);
    if (css) element.className = css;
    if (content) element.textContent = content;
    if (parent) parent.appendChild(element);
    return element;
  }
  function say(news) {
    var box = document.getElementById("say");
    if (box) box.textContent = news;
  }

  /* ---- the library ---- */
  /* An element of this id keeps the bundle from inserting the style rules of its maps. */
  var MAP_RULES = "9f215cf04c5486422605d13261cb87401f4e7763b6296af81e98efbc0130da53";
  function library() {
    if (!loading) loading = new Promise(function (done, failed) {
      make("meta", "", document.head).id = MAP_RULES;
      var script = make("script");
      script.src = source;
      script.onload = done;
      script.onerror = failed;
      document.head.appendChild(script);
    });
    return loading;
  }

  /* ---- colours: "var(--accent)", "var(--t3-fill)" as rgb, by the present theme ---- */
  var probe = make("span", "sr");
  probe.hidden = true;
  var pixel = make("canvas");
  pixel.width = pixel.height = 1;
  function color(name, known) {
    if (known[name]) return known[name];
    var tenant = /^var\(--(t\d+|tx)-(fill|str)\)$/.exec(name);
    probe.className = tenant ? tenant[1] : "";
    probe.style.color = tenant ? "var(--" + tenant[2] + ")" : name;
    var pen = pixel.getContext("2d", { willReadFrequently: true });
    pen.fillStyle = getComputedStyle(probe).color;
    pen.fillRect(0, 0, 1, 1);
    var rgb = pen.getImageData(0, 0, 1, 1).data;
    known[name] = "rgb(" + rgb[0] + "," + rgb[1] + "," + rgb[2] + ")";
    return known[name];
  }
  function colored(value, known) {
    if (typeof value === "string") return value.slice(0, 6) === "var(--" ? color(value, known) : value;
    if (Array.isArray(value)) return value.length && typeof value[0] !== "object" ? value : value.map(function (one) { return colored(one, known); });
    if (!value || typeof value !== "object") return value;
    var copy = {};
    Object.keys(value).forEach(function (key) { copy[key] = colored(value[key], known); });
    return copy;
  }

  /* ---- one chart ---- */
  function read(box) {
    var raw = box.querySelector(".chart-data").textContent;
    var shown = charts.get(box.id);
    if (shown && shown.text === raw) return shown.data;
    var data = JSON.parse(raw);
    data.figure.data.forEach(function (trace) {
      if (!data.sideways) trace.x = data.axes[trace.x];
    });
    data.raw = raw;
    return data;
  }
  /* A number with the marks of the page's language, for readers; CSV has it as it is. */
  function marked(chart, value) {
    var comma = chart.data.figure.layout.separators.charAt(0) === ",";
    return comma && /^-?\d+\.\d+$/.test(value) ? String(value).replace(".", ",") : value;
  }
  /* plotly.js has the names of months and the order of dates in English only. */
  function dates() {
    return {
      shortMonths: text("Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec").split(" "),
      dayMonth: text("%b %-d"),
      dayMonthYear: text("%b %-d, %Y")
    };
  }
  /* plotly.js reads a number as a time of day of the reader's zone; charts are UTC on the pool's clock. */
  function utc(at) { return typeof at === "number" ? new Date(at).toISOString().slice(0, -1) : at; }
  function inUtc(figure) {
    var layout = figure.layout, known = new Map();
    figure.data.forEach(function (trace) {
      if (!known.has(trace.x)) known.set(trace.x, trace.x.map(utc));
      trace.x = known.get(trace.x);
    });
    layout.shapes.concat(layout.annotations).forEach(function (mark) {
      if (mark.xref === "paper") return;
      ["x", "x0", "x1"].forEach(function (name) { if (name in mark) mark[name] = utc(mark[name]); });
    });
    if (layout.xaxis.range) layout.xaxis.range = layout.xaxis.range.map(utc);
  }
  function narrow(box) { return box.clientWidth < 480; }
  function figureOf(chart) {
    var figure = colored(chart.data.figure, {});
    var across = chart.data.sideways ? null : figure.layout.xaxis;
    figure.data.forEach(function (trace) {
      trace.visible = !chart.hidden.has(trace.meta.key) || "legendonly";
      if (trace.customdata) trace.customdata = trace.customdata.map(function (row) { return row.map(function (one) { return marked(chart, one); }); });
    });
    if (across) {
      var range = chart.zoom || (chart.span && chart.data.end ? [chart.data.end - chart.span * 1000, chart.data.end] : null);
      across.autorange = !range;
      if (range) across.range = range.slice();
      if (across.type === "date") inUtc(figure);
      if (narrow(chart.box)) across.nticks = 4;
    }
    if (narrow(chart.box)) {
      figure.layout.font.size = 12;
      figure.layout.margin.l = 46;
      /* Long names beside the lines would leave no room for them: the legend has them too. */
      if (figure.layout.margin.r > 90) {
        figure.layout.margin.r = 12;
        figure.layout.annotations = figure.layout.annotations.filter(function (one) { return one.xref !== "paper" || one.x !== 1; });
      }
    }
    /* Rows of bars stay as high as a line of text each. */
    if (chart.data.sideways) chart.plot.style.height = Math.max(300, 70 + 13 * figure.data.length * figure.data[0].y.length) + "px";
    /* A finger scrolls the page; it does not cut a stretch out of the chart. */
    if (matchMedia("(pointer:coarse)").matches) figure.layout.dragmode = false;
    return figure;
  }
  function draw(chart) {
    if (!window.Plotly || !chart.box.isConnected) return;
    var figure = figureOf(chart);
    var config = { displayModeBar: false, responsive: true, showTips: false, doubleClick: false, locale: root.lang, locales: {} };
    config.locales[root.lang] = { format: dates() };
    chart.plot.setAttribute("aria-label", chart.data.title + ". " + text("Use the arrow keys to read each point."));
    if (document.activeElement === chart.plot) chart.at = null;
    chart.busy = Plotly.react(chart.plot, figure.data, figure.layout, config).then(function () {
      chart.drawn = (chart.drawn || 0) + 1;
      var still = chart.plot.querySelector(".chart-still");
      if (still) still.remove();
      chart.plot.dataset.drawn = chart.drawn;
      listen(chart);
    });
  }
  function listen(chart) {
    if (chart.listens) return;
    chart.listens = true;
    chart.plot.on("plotly_relayout", function (change) {
      if (!("xaxis.range[0]" in change)) return;
      chart.zoom = [change["xaxis.range[0]"], change["xaxis.range[1]"]];
      press(chart);
    });
    chart.plot.on("plotly_doubleclick", function () { choose(chart, null); });
  }

  /* ---- its buttons: ranges, series, downloads ---- */
  function button(parent, name, css, act) {
    var made = make("button", css, parent, name);
    made.type = "button";
    made.addEventListener("click", act);
    return made;
  }
  function choose(chart, span) {
    chart.span = span;
    chart.zoom = null;
    press(chart);
    draw(chart);
  }
  function press(chart) {
    chart.bar.querySelectorAll("[data-span]").forEach(function (one) {
      one.setAttribute("aria-pressed", String(!chart.zoom && Number(one.dataset.span) === (chart.span || 0)));
    });
  }
  function controls(chart) {
    var data = chart.data, bar = chart.bar;
    var wanted = JSON.stringify([data.ranges, data.figure.data.map(function (one) { return [one.meta.key, one.name]; })]);
    if (chart.controls === wanted) return;
    chart.controls = wanted;
    bar.textContent = "";
    var ranges = make("div", "chart-ranges", bar);
    ranges.setAttribute("role", "group");
    ranges.setAttribute("aria-label", text("Range"));
    data.ranges.forEach(function (one) {
      button(ranges, one[0], "btn min", function () { choose(chart, one[1] || null); }).dataset.span = one[1];
    });
    var keys = make("div", "chart-keys", bar);
    keys.setAttribute("role", "group");
    keys.setAttribute("aria-label", text("Series"));
    if (data.figure.data.length > 1) data.figure.data.forEach(function (trace) { toggle(chart, keys, trace); });
    var saves = make("div", "chart-saves", bar);
    button(saves, "PNG", "btn min", function () { savePng(chart); }).setAttribute("aria-label", text("Download as PNG"));
    var csv = button(saves, "CSV", "btn min", function () { saveCsv(chart); });
    csv.title = text("Download as CSV: all series, whole range");
    csv.setAttribute("aria-label", csv.title);
    press(chart);
  }
  function toggle(chart, parent, trace) {
    var made = button(parent, "", "chart-key", function () {
      var off = !chart.hidden.has(trace.meta.key);
      if (off) chart.hidden.add(trace.meta.key); else chart.hidden.delete(trace.meta.key);
      made.setAttribute("aria-pressed", String(!off));
      draw(chart);
    });
    made.setAttribute("aria-pressed", String(!chart.hidden.has(trace.meta.key)));
    made.appendChild(flag(trace));
    make("span", "", made, trace.name);
  }
  var SVG = "http://www.w3.org/2000/svg";
  function svg(name, attributes, parent) {
    var element = document.createElementNS(SVG, name);
    Object.keys(attributes).forEach(function (key) { element.setAttribute(key, attributes[key]); });
    if (parent) parent.appendChild(element);
    return element;
  }
  var DASHES = { dash: "6 4", dot: "2 3", dashdot: "6 3 2 3", longdash: "10 4", longdashdot: "10 3 2 3" };
  /* What the series looks like; the patterns of areas are those of the page (patterns.html). */
  function flag(trace) {
    var meta = trace.meta || {}, css = meta.swatch ? " " + meta.swatch : "";
    var box = svg("svg", { viewBox: "0 0 26 14", width: 26, height: 14, "class": "chart-flag" + css, "aria-hidden": "true" });
    if (meta.line) {
      var line = svg("path", { d: "M0 7H26" }, box);
      line.style.stroke = trace.line.color.replace(/^var\(--t[x\d]+-/, "var(--");
      line.style.strokeDasharray = DASHES[trace.line.dash] || "none";
      return box;
    }
    var hatched = (trace.fillpattern || (trace.marker && trace.marker.pattern) || {}).path;
    var area = svg("rect", { x: 0.5, y: 0.5, width: 25, height: 13 }, box);
    if (meta.swatch) area.setAttribute("fill", "url(#p-" + meta.swatch + ")");
    else if (hatched) area.setAttribute("fill", "url(#p-bor)");
    else area.style.fill = trace.fillcolor || trace.marker.color;
    return box;
  }

  /* ---- by keyboard: the values of one point after the other ---- */
  function keysOf(trace, sideways) { return sideways ? trace.y : trace.x; }
  function valuesOf(trace, sideways) { return sideways ? trace.x : trace.y; }
  function keyText(key) { return typeof key === "number" && key > 1e10 ? new Date(key).toISOString().slice(0, 19) + "Z" : String(key); }
  function instant(at) { return typeof at === "string" ? Date.parse(at.replace(" ", "T") + "Z") : at; }
  function isShown(chart, key) {
    var range = chart.data.sideways ? null : chart.plot.layout.xaxis.range;
    if (!range || typeof key === "string") return true;
    return key >= instant(range[0]) && key <= instant(range[1]);
  }
  function step(chart, event) {
    var by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!by || !window.Plotly) return;
    event.preventDefault();
    var rows = rowsOf(chart.data, function (trace) { return !chart.hidden.has(trace.meta.key); });
    rows.keys = rows.keys.filter(function (key) { return isShown(chart, key); });
    if (!rows.keys.length) return;
    var last = rows.keys.length - 1;
    chart.at = chart.at === null || chart.at === undefined ? (by > 0 ? 0 : last) : Math.min(last, Math.max(0, chart.at + by));
    var key = rows.keys[chart.at];
    Plotly.Fx.hover(chart.plot, chart.data.sideways ? { yval: chart.at } : { xval: key }, "xy");
    var said = rows.series.map(function (one) { return one.values.has(key) ? one.name + " " + marked(chart, one.values.get(key)) : ""; });
    say(marked(chart, keyText(key)) + ": " + said.filter(Boolean).join(", "));
  }

  /* ---- downloads ---- */
  function rowsOf(data, wanted) {
    var seen = new Map(), series = [];
    data.figure.data.filter(wanted).forEach(function (trace) {
      var values = new Map(), keys = keysOf(trace, data.sideways), mine = valuesOf(trace, data.sideways);
      keys.forEach(function (key, place) {
        seen.set(key, true);
        if (mine[place] === null || mine[place] === undefined) values.delete(key); else values.set(key, mine[place]);
      });
      series.push({ name: trace.name, column: trace.meta.column, values: values });
      (trace.meta.also || []).forEach(function (column, more) {
        var texts = new Map();
        keys.forEach(function (key, place) { texts.set(key, trace.customdata[place][more]); });
        series.push({ name: trace.meta.names[more], column: column, values: texts });
      });
    });
    var keys = Array.from(seen.keys());
    if (!data.sideways) keys.sort(function (a, b) { return a - b; });
    return { keys: keys, series: series };
  }
  /* A name that begins like a formula is no formula. */
  function cell(value) {
    var shown = String(value);
    var isNumber = /^-?\d+(\.\d+)?(e[-+]?\d+)?$/i.test(shown);
    if (/^'*[=+\-@\t\r]/.test(shown) && !isNumber) shown = "'" + shown;
    return /[",\n\r]/.test(shown) ? '"' + shown.replace(/"/g, '""') + '"' : shown;
  }
  function save(blob, name) {
    var link = make("a");
    link.href = URL.createObjectURL(blob);
    link.download = name;
    link.click();
    setTimeout(function () { URL.revokeObjectURL(link.href); }, 10000);
    say(text("{name} is being saved.", { name: name }));
  }
  function saveCsv(chart) {
    var data = chart.data, rows = rowsOf(data, function () { return true; });
    var lines = [[data.column].concat(rows.series.map(function (one) { return one.column; }))];
    rows.keys.forEach(function (key) {
      lines.push([keyText(key)].concat(rows.series.map(function (one) { return one.values.has(key) ? one.values.get(key) : ""; })));
    });
    var table = lines.map(function (line) { return line.map(cell).join(",") + "\r\n"; }).join("");
    save(new Blob([table], { type: "text/csv;charset=utf-8" }), data.file + ".csv");
  }
  /* plotly.js draws its PNG from a blob: address, which our Content-Security-Policy refuses for
     images; from data: it may. An image alone sees no font of the page, so ours is put into it. */
  function fontRule() {
    var found = null;
    Array.prototype.forEach.call(document.styleSheets, function (sheet) {
      Array.prototype.forEach.call(sheet.cssRules, function (rule) {
        var url = rule.type === CSSRule.FONT_FACE_RULE && rule.style.fontFamily.indexOf("Source Sans 3") >= 0 && /url\("?([^")]+)"?\)/.exec(rule.style.getPropertyValue("src"));
        if (url) found = new URL(url[1], sheet.href).href;
      });
    });
    if (!found) return Promise.resolve("");
    return fetch(found).then(function (answer) { return answer.blob(); }).then(function (blob) {
      return new Promise(function (done) {
        var reader = new FileReader();
        reader.onload = function () { done('@font-face{font-family:"Source Sans 3";font-weight:200 900;src:url("' + reader.result + '")}'); };
        reader.readAsDataURL(blob);
      });
    });
  }
  /* The title speaks of every series: a picture without some of them has to say so. */
  function pngTitle(chart) {
    var left = chart.data.figure.data.filter(function (trace) { return chart.hidden.has(trace.meta.key); });
    if (!left.length) return chart.data.title;
    var said = { title: chart.data.title, name: left[0].name, other: left[left.length - 1].name, count: left.length };
    if (left.length > 2) return text("{title}, without {count} series", said);
    return text(left.length > 1 ? "{title}, without {name} and {other}" : "{title}, without {name}", said);
  }
  function savePng(chart) {
    var figure = figureOf(chart), data = chart.data, width = 1200, height = 640;
    figure.layout.title = { text: pngTitle(chart).replace(/&/g, "&amp;").replace(/</g, "&lt;"), x: 0, xref: "paper", xanchor: "left", font: { size: 20, color: color("var(--ink)", {}) } };
    figure.layout.margin = { l: 64, r: figure.layout.margin.r + 12, t: 64, b: 72 };
    figure.layout.showlegend = figure.data.length > 1;
    figure.layout.legend = { orientation: "h", y: -0.12, x: 0 };
    Promise.all([Plotly.toImage(figure, { format: "svg", width: width, height: height }), fontRule()]).then(function (made) {
      var drawing = decodeURIComponent(made[0].slice(made[0].indexOf(",") + 1));
      drawing = drawing.replace(/(<svg[^>]*>)/, "$1<style>" + made[1] + "</style>");
      var image = new Image();
      image.onload = function () {
        var sheet = make("canvas");
        sheet.width = 2 * width;
        sheet.height = 2 * height;
        sheet.getContext("2d").drawImage(image, 0, 0, sheet.width, sheet.height);
        sheet.toBlob(function (blob) { save(blob, data.file + ".png"); });
      };
      image.src = "data:image/svg+xml," + encodeURIComponent(drawing);
    });
  }

  /* ---- coming and going ---- */
  var near = new IntersectionObserver(function (entries) {
    entries.forEach(function (entry) {
      if (!entry.isIntersecting) return;
      near.unobserve(entry.target);
      library().then(function () { show(entry.target.closest("[data-chart]")); });
    });
  }, { rootMargin: "400px" });
  function begin(box) {
    var place = box.querySelector(".chart-draw");
    var data = read(box), chart = { box: box, text: data.raw, data: data, hidden: new Set(), span: data.first, zoom: null, at: null };
    data.figure.data.forEach(function (trace) { if (trace.visible === "legendonly") chart.hidden.add(trace.meta.key); });
    chart.bar = make("div", "chart-bar", place);
    chart.plot = make("div", "chart-plot", place);
    /* Shown until the first drawing: on paper and in pictures of the page no chart is missing. */
    var still = place.querySelector(".chart-still");
    if (still) chart.plot.appendChild(still);
    chart.plot.tabIndex = 0;
    chart.plot.setAttribute("role", "img");
    chart.plot.addEventListener("keydown", function (event) { step(chart, event); });
    chart.plot.addEventListener("blur", function () { if (window.Plotly && chart.drawn) Plotly.Fx.unhover(chart.plot); });
    chart.plot.setAttribute("aria-label", data.title);
    charts.set(box.id, chart);
    controls(chart);
    near.observe(chart.plot);
  }
  function show(box) {
    var chart = box && charts.get(box.id);
    if (!chart) return;
    chart.seen = true;
    draw(chart);
  }
  /* After a refresh: the same drawing beside new numbers. Charts that are gone are let go. */
  function settle() {
    charts.forEach(function (chart, id) {
      if (document.getElementById(id)) return;
      if (window.Plotly) Plotly.purge(chart.plot);
      near.unobserve(chart.plot);
      charts.delete(id);
    });
    document.querySelectorAll("[data-chart]").forEach(function (box) {
      var chart = charts.get(box.id);
      if (!chart || !box.contains(chart.plot)) {
        var kept = chart;
        begin(box);
        chart = charts.get(box.id);
        if (kept) { chart.hidden = kept.hidden; chart.span = kept.span; chart.zoom = kept.zoom; press(chart); }
        return;
      }
      chart.box = box;
      var data = read(box);
      if (data === chart.data) return;
      chart.text = data.raw;
      chart.data = data;
      controls(chart);
      if (chart.seen) draw(chart);
    });
  }
  function redraw() { charts.forEach(function (chart) { if (chart.seen) draw(chart); }); }

  document.body.appendChild(probe);
  document.body.addEventListener("htmx:afterSettle", settle);
  new MutationObserver(redraw).observe(root, { attributes: true, attributeFilter: ["data-theme"] });
  matchMedia("(prefers-color-scheme:dark)").addEventListener("change", redraw);
  /* Paper is light: the theme of the reader comes back after printing. */
  var before;
  window.addEventListener("beforeprint", function () { before = root.dataset.theme; root.dataset.theme = "light"; redraw(); });
  window.addEventListener("afterprint", function () { if (before) root.dataset.theme = before; else delete root.dataset.theme; redraw(); });
  document.fonts.ready.then(redraw);
  settle();
})();
