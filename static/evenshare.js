/* Evenshare in the browser: small, without eval, without inline style.

   How a page stays live
   ---------------------
   1. The round line (#round-line) asks its own URL every 2 s by htmx. We send If-None-Match with
      the ETag of what is shown; 304 means "nothing new" and changes nothing on the page. A hidden
      tab does not ask; it asks at once when it is shown again. Nor does it ask what a job uses.
   2. When the answered line carries another data-round than the one shown, we trigger
      `round-changed` on <body>, once per round.
   3. Regions listen to it: <section hx-get="..." hx-trigger="round-changed from:body"
      hx-swap="outerHTML">. base.html wraps a page's headline and content in one such region,
      #live, when the view passes live=True; it fetches the page itself and takes #live out of it.
      The server sends #live alone, or 304 when it says the same but for what ticks.
   4. Nothing jumps: a region with an open note or a field in use waits until that is closed;
      the focus, scroll positions of inner scrollers and open <details> (with ids) are kept. An element
      with an id and data-flash="value" flashes once when its value differs from before, or
      when it is new.
   5. Server gone: when polls fail for 5 s the line says "stale since 14:06, wall clock"
      (the last answer), the countdown and the lease bars stop; the first answer brings all of it back.
      An answer that is not our fragment (a login page after the session ended) counts as failed.

   What ticks
   ----------
   .lease[data-left][data-scale], [data-ago][data-scale], [data-due]: seconds as they were when
   the element arrived here, so that the reader's clock may be wrong by hours without harm. */
(function () {
  "use strict";
  var STALE_AFTER_MS = 5000;
  var body = document.body;
  var born = new WeakMap();
  var waiting = new Set();
  var remembered = new Map();
  var lastAnswer = Date.now();
  var etag = null;
  var liveEtag = null;
  var shownRound = null;
  var stale = false;

  function line() { return document.getElementById("round-line"); }
  function each(root, selector, act) {
    if (root.matches && root.matches(selector)) act(root);
    root.querySelectorAll(selector).forEach(act);
  }
  function age(element) {
    if (!born.has(element)) born.set(element, performance.now());
    return (performance.now() - born.get(element)) / 1000;
  }
  function put(element, text) {
    if (element && element.textContent !== text) element.textContent = text;
  }

  /* ---- texts: in the page's language, from portal/site/script_texts.py ---- */
  var texts = document.getElementById("script-texts");
  texts = texts ? JSON.parse(texts.textContent) : {};
  function text(english, values) {
    return (texts[english] || english).replace(/\{(\w+)\}/g, function (all, name) { return values[name]; });
  }
  window.evenshare = { text: text };

  /* ---- words: the same rules as portal/charts/figures.py and bars.py ---- */
  function coarse(seconds) {
    var total = Math.floor(Math.abs(seconds));
    if (total >= 86400) return Math.floor(total / 86400) + " d";
    if (total >= 3600) return Math.floor(total / 3600) + " h";
    if (total >= 60) return Math.floor(total / 60) + " min";
    return total + " s";
  }
  function relative(ago) {
    if (Math.abs(ago) < 1) return text("now");
    return text(ago > 0 ? "{time} ago" : "in {time}", { time: coarse(ago) });
  }
  function leaseText(left) {
    if (left <= 0) return text("ends now");
    if (left < 60) return text("{time} left", { time: Math.floor(left) + " s" });
    if (left < 36000) return text("{time} left", { time: Math.floor(left / 60) + " min" });
    return null;
  }
  function hhmm(ms) { return sinceText(new Date(ms), new Date(ms).toLocaleString("sv-SE")); }

  /* ---- what ticks ---- */
  function tickLease(bar) {
    var total = Number(bar.dataset.total);
    var left = Number(bar.dataset.left) - age(bar) * Number(bar.dataset.scale);
    var gone = Math.min(Math.max(total - left, 0), total);
    var unit = 120 / total;
    var shield = Math.max(Number(bar.dataset.shield) - gone, 0);
    bar.querySelector(".gone").setAttribute("width", (gone * unit).toFixed(1));
    bar.querySelector(".shield").setAttribute("x", (1 + gone * unit).toFixed(1));
    bar.querySelector(".shield").setAttribute("width", (shield * unit).toFixed(1));
    var words = leaseText(left);
    if (words !== null) put(bar.querySelector(".left"), words);
    bar.classList.toggle("over", left <= 0);
  }
  function tickAgo(element) {
    put(element, relative(Number(element.dataset.ago) + age(element) * Number(element.dataset.scale || 1)));
  }
  function tickDue(element) {
    var left = Number(element.dataset.due) - age(element);
    var interval = Number(element.dataset.interval) || 60;
    put(element.querySelector(".due"), text(left >= 1 ? "next round in {time}" : "next round due", { time: coarse(left) }));
    var gone = Math.max(0, Math.min(12, Math.floor((1 - left / interval) * 12)));
    var bar = element.querySelector(".tick .gone");
    if (bar) bar.setAttribute("width", String(gone * 10));
  }
  function tick() {
    var shown = line();
    checkStale(shown);
    var stopped = stale || (shown && shown.dataset.state === "paused");
    document.querySelectorAll(".lease[data-left],[data-ago],[data-due]").forEach(function (element) {
      if (element.matches("[data-ago]") && !(stopped && Number(element.dataset.scale) !== 1)) tickAgo(element);
      else if (stopped) return;
      else if (element.matches("[data-due]")) tickDue(element);
      else if (element.matches(".lease")) tickLease(element);
    });
  }

  /* an instant that the server wrote in UTC, in the reader's zone; the rules of portal/charts/zones.py */
  var MONTHS = text("Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec").split(" ");
  function showZone(element) {
    var at = new Date(element.dateTime), style = element.dataset.zone;
    element.removeAttribute("data-zone");
    if (isNaN(at)) return;
    var full = at.toLocaleString("sv-SE"); /* 2026-11-20 14:06:00 */
    if (style === "viewer") put(element, sinceText(at, full));
    else put(element, { full: full, seconds: full.slice(11), clock: full.slice(11, 16) }[style]);
  }
  function sinceText(at, full) {
    var now = new Date(), day = at.getDate() + " " + MONTHS[at.getMonth()];
    if (at.getFullYear() !== now.getFullYear()) return day + " " + at.getFullYear();
    return (at.toDateString() === now.toDateString() ? "" : day + " ") + full.slice(11, 16);
  }

  /* ---- live and stale ---- */
  function say(text) { put(document.getElementById("say"), text); }
  function answered() {
    lastAnswer = Date.now();
    if (!stale) return;
    stale = false;
    if (line()) line().classList.remove("stale");
    say(text("Live again."));
    htmx.trigger(body, "round-changed", { round: shownRound });
  }
  function checkStale(shown) {
    if (!shown || document.hidden || Date.now() - lastAnswer < STALE_AFTER_MS) return;
    if (!stale) {
      say(text("The server does not answer since {time}. What you see may be out of date.", { time: hhmm(lastAnswer) }));
    }
    stale = true;
    put(shown.querySelector(".since"), text("since {time}, wall clock", { time: hhmm(lastAnswer) }));
    shown.classList.add("stale");
  }
  function roundShown(shown) {
    if (!shown) return;
    var round = shown.dataset.round;
    var changed = shownRound !== null && round !== shownRound;
    shownRound = round;
    if (changed) htmx.trigger(body, "round-changed", { round: round });
  }
  function isLine(element) { return element && element.id === "round-line"; }

  /* ---- regions: wait while in use, keep places, flash once ---- */
  function inUse(region) {
    if (region.querySelector(":popover-open,[name=job]:checked")) return true;
    var active = document.activeElement;
    return Boolean(active && region.contains(active) && active.matches("input:not([type=submit]),select,textarea"));
  }
  function release() {
    waiting.forEach(function (id) {
      var region = document.getElementById(id);
      if (region && inUse(region)) return;
      waiting.delete(id);
      if (region) htmx.trigger(region, "round-changed");
    });
  }
  function remember(root) {
    each(root, "[data-flash][id]", function (row) { remembered.set(row.id, row.dataset.flash); });
  }
  /* Who goes through a region by keyboard stays where they are. htmx itself keeps what has an id. */
  function stops(region) {
    return Array.prototype.slice.call(region.querySelectorAll("a[href],button,summary,[tabindex]"));
  }
  /* What a stop leads to or does: a form's button is told apart by what its form would send. */
  function targetOf(stop) {
    if (!stop.form) return stop.getAttribute("href") || "";
    var sent = new URLSearchParams(new FormData(stop.form));
    sent.delete("csrfmiddlewaretoken");
    return [stop.form.action, sent, stop.name, stop.value].join(" ");
  }
  function focusIn(region) {
    var active = document.activeElement, at = stops(region).indexOf(active);
    if (at < 0 || active.id) return null;
    return { at: at, target: targetOf(active), text: active.textContent.trim(), acts: Boolean(active.form) };
  }
  /* The same place, if it leads to the same or, changing nothing, says the same; or else wherever
     the same is now. No button of another row: Enter would do to that row what was not meant. */
  function focusAgain(region, focus) {
    var all = stops(region), here = all[focus.at];
    var same = function (stop) { return Boolean(stop && focus.target && targetOf(stop) === focus.target); };
    var alike = here && !here.form && !focus.acts && here.textContent.trim() === focus.text;
    var found = same(here) || alike ? here : all.filter(same)[0];
    if (found) found.focus({ preventScroll: true });
  }
  function keepPlaces(region) {
    var kept = { open: [], scroll: [], region: region.id, focus: focusIn(region) };
    each(region, "details[open][id]", function (box) { kept.open.push(box.id); });
    each(region, ".tblw[id],.scrollx[id],.fig-row[id]", function (box) { kept.scroll.push([box.id, box.scrollLeft]); });
    return kept;
  }
  function restorePlaces(kept) {
    kept.open.forEach(function (id) { var box = document.getElementById(id); if (box) box.open = true; });
    kept.scroll.forEach(function (pair) { var box = document.getElementById(pair[0]); if (box) box.scrollLeft = pair[1]; });
    var region = document.getElementById(kept.region);
    if (kept.focus && region) focusAgain(region, kept.focus);
  }
  function flash(region) {
    each(region, "[data-flash][id]", function (row) {
      if (remembered.get(row.id) === row.dataset.flash) return;
      remembered.set(row.id, row.dataset.flash);
      row.classList.add("changed");
      setTimeout(function () { row.classList.remove("changed"); }, 1700);
    });
  }
  function settleScrollers(root) {
    each(root, "[data-scroll]", function (box) {
      var now = box.dataset.scroll === "now" ? box.querySelector(".now") : null;
      var at = now ? now.getBoundingClientRect().left - box.getBoundingClientRect().left + box.scrollLeft : Infinity;
      box.scrollLeft = Math.min(at - 0.6 * box.clientWidth, box.scrollWidth);
    });
  }

  /* ---- htmx ---- */
  var places = null;
  body.addEventListener("htmx:configRequest", function (event) {
    if (isLine(event.detail.elt) && etag) event.detail.headers["If-None-Match"] = etag;
    if (event.detail.elt.id === "live" && liveEtag) event.detail.headers["If-None-Match"] = liveEtag;
  });
  body.addEventListener("htmx:beforeRequest", function (event) {
    var source = event.detail.elt;
    if (document.hidden && (isLine(source) || source.id === "usage")) event.preventDefault();
  });
  body.addEventListener("htmx:beforeSwap", function (event) {
    var xhr = event.detail.xhr, target = event.detail.target, source = event.detail.requestConfig.elt;
    if (isLine(source)) {
      if (xhr.status === 304) { answered(); event.detail.shouldSwap = false; return; }
      if (xhr.status !== 200 || xhr.responseText.indexOf('id="round-line"') < 0) { event.detail.shouldSwap = false; return; }
      etag = xhr.getResponseHeader("ETag");
      answered();
      return;
    }
    if (!target || !target.id || !event.detail.shouldSwap) return;
    if (xhr.responseText.indexOf('id="' + target.id + '"') < 0) { event.detail.shouldSwap = false; return; }
    if (inUse(target)) { event.detail.shouldSwap = false; waiting.add(target.id); return; }
    if (target.id === "live") liveEtag = xhr.getResponseHeader("ETag");
    remember(target);
    places = keepPlaces(target);
  });
  body.addEventListener("htmx:afterSwap", function () {
    if (places) { restorePlaces(places); places = null; }
    if (line()) line().classList.toggle("stale", stale);
    roundShown(line());
  });
  body.addEventListener("htmx:load", function (event) {
    var root = event.detail.elt;
    if (!root || !root.querySelectorAll) return;
    if (root !== body) flash(root);
    each(root, "time[data-zone]", showZone);
    settleScrollers(root);
    tick();
  });

  /* ---- theme, copy, notes ---- */
  function toggleTheme() {
    var root = document.documentElement;
    var dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme:dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    try { localStorage.setItem("evenshare-theme", root.dataset.theme); } catch (error) { /* not kept */ }
  }
  function copy(button) {
    var box = document.getElementById(button.dataset.copy);
    if (!box) return;
    var done = function (word) {
      var before = button.dataset.text || button.textContent;
      button.dataset.text = before;
      button.textContent = word;
      say(word + ".");
      setTimeout(function () { button.textContent = before; }, 1600);
    };
    var select = function () { getSelection().selectAllChildren(box); done(text("Selected")); };
    if (!navigator.clipboard) { select(); return; }
    navigator.clipboard.writeText(box.textContent.trim()).then(function () { done(text("Copied")); }, select);
  }
  /* all check boxes of a name, or none if all are checked */
  function selectAll(name) {
    var boxes = Array.prototype.slice.call(document.querySelectorAll('[type=checkbox][name="' + name + '"]'));
    var on = boxes.some(function (box) { return !box.checked; });
    boxes.forEach(function (box) { box.checked = on; });
    say(text(on ? "{count} selected." : "None selected.", { count: boxes.length }));
    release();
  }
  document.addEventListener("click", function (event) {
    var button = event.target.closest("[data-act]");
    if (!button) return;
    if (button.dataset.act === "theme") toggleTheme();
    if (button.dataset.act === "copy") copy(button);
    if (button.dataset.act === "print") print();
    if (button.dataset.act === "select") selectAll(button.dataset.select);
    if (button.dataset.act === "dismiss") button.closest(".toast").remove();
  });
  /* a closed note lets its region catch up; focus returns to the number by the browser itself */
  document.addEventListener("toggle", function () { setTimeout(release, 0); }, true);
  document.addEventListener("focusout", function () { setTimeout(release, 0); });
  document.addEventListener("visibilitychange", function () {
    if (document.hidden) return;
    lastAnswer = Math.max(lastAnswer, Date.now() - STALE_AFTER_MS + 3000);
    if (line()) htmx.trigger(line(), "round-poll");
  });

  if (line()) { shownRound = line().dataset.round; etag = line().dataset.etag || null; }
  remember(body);
  each(document, "time[data-zone]", showZone);
  settleScrollers(document);
  tick();
  setInterval(tick, 1000);
})();
