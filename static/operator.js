/* The quota grid while it is typed in: what changed is marked, its column's sum follows, arrows
   move between rows. Without this script the page still works: the server marks what it gets.
   Prices at a use are worked out here while typing; what is saved is worked out exactly. */
(function () {
  "use strict";
  var grid = document.querySelector("[data-quotas]"), text = window.evenshare.text;

  function show(number, places) {
    var digits = { minimumFractionDigits: places, maximumFractionDigits: places };
    return number.toLocaleString(document.documentElement.lang, digits);
  }

  function mark(field) {
    var changed = field.value.trim() !== field.dataset.was;
    field.classList.toggle("changed-cell", changed);
    var old = field.parentElement.querySelector("s");
    if (old && field.matches("input")) {
      old.hidden = !changed;
      old.textContent = changed ? field.dataset.was || text("none") : "";
    }
    field.closest("tr").classList.toggle("drafted", field.closest("tr").querySelector(".changed-cell") !== null);
  }

  function sum(table) {
    var cell = table.querySelector("[data-sum]");
    if (!cell) return;
    var total = 0, capacity = Number(table.dataset.capacity);
    table.querySelectorAll("td.draft input").forEach(function (input) {
      total += /^[0-9]+$/.test(input.value.trim()) ? Number(input.value) : 0;
    });
    var left = capacity - total;
    cell.querySelector("span").textContent = text("{quota} of {capacity}", { quota: show(total), capacity: show(capacity) });
    var rest = { count: show(Math.abs(left)) };
    var short = text(left < 0 ? "{count} too many: scaled down" : "{count} unallocated", rest);
    cell.querySelector(".short").textContent = left ? short : "";
  }

  /* What was estimated is not what is typed now: the estimate says so, and cannot be saved. */
  function outdate() {
    var impact = document.getElementById("impact");
    var save = impact && impact.querySelector("button[value=save]");
    if (!save) return;
    save.disabled = true;
    save.textContent = text("Preview again: the draft has changed");
  }

  function move(field, step) {
    var cells = Array.prototype.slice.call(field.closest("table").querySelectorAll("tbody tr"));
    var row = field.closest("tr");
    var place = Array.prototype.indexOf.call(row.cells, field.closest("td,th"));
    var next = cells[cells.indexOf(row) + step];
    var input = next && next.cells[place] && next.cells[place].querySelector("input");
    if (input) { input.focus(); input.select(); }
    return Boolean(input);
  }

  if (grid) {
    grid.addEventListener("input", function (event) {
      var field = event.target;
      if (field.dataset.was === undefined) return;
      field.removeAttribute("aria-invalid");
      mark(field);
      sum(field.closest("table"));
      outdate();
    });
    grid.addEventListener("keydown", function (event) {
      var field = event.target;
      if (!field.matches("input[data-was]") || event.altKey || event.ctrlKey || event.metaKey) return;
      if (event.key === "ArrowDown" || event.key === "ArrowUp") {
        if (move(field, event.key === "ArrowDown" ? 1 : -1)) event.preventDefault();
      } else if (event.key === "Escape" && field.value !== field.dataset.was) {
        field.value = field.dataset.was;
        field.dispatchEvent(new Event("input", { bubbles: true }));
        event.preventDefault();
      }
    });
    grid.querySelectorAll("[data-was]").forEach(mark);
    grid.querySelectorAll("table").forEach(sum);
    document.body.addEventListener("htmx:afterSwap", function () {
      document.querySelectorAll("[data-invalid]").forEach(function (link) {
        var field = document.getElementById(link.dataset.invalid);
        if (field) field.setAttribute("aria-invalid", "true");
      });
    });
  }

  function reload(select) {
    var asked = [[select.dataset.reload, select.value]];
    var hours = select.form && select.form.elements.hours;
    if (hours) asked.push(["hours", hours.value]);
    location.search = new URLSearchParams(asked).toString();
  }
  document.querySelectorAll("[data-reload]").forEach(function (select) {
    select.addEventListener("change", function () { reload(select); });
    /* Chosen before this script was there, or brought back by the browser. */
    var shown = select.querySelector("option[selected]");
    if (shown && !shown.selected) reload(select);
  });

  /* A filter of settings by name: it opens the groups with a match, and hides the rest. */
  function find(box) {
    var wanted = box.value.trim().toLowerCase();
    box.form.querySelectorAll(".folds>details").forEach(function (group) {
      var some = false;
      group.querySelectorAll(".fld").forEach(function (field) {
        var label = field.querySelector("label"), input = field.querySelector("[name]");
        var names = (label.textContent + " " + input.name.replace(/_/g, " ")).toLowerCase();
        field.hidden = Boolean(wanted) && names.indexOf(wanted) < 0;
        some = some || !field.hidden;
      });
      if (group.dataset.was === undefined) group.dataset.was = group.open ? "open" : "";
      group.hidden = !some;
      group.open = wanted ? some : group.dataset.was === "open";
      if (!wanted) delete group.dataset.was;
    });
  }
  document.querySelectorAll("[data-find]").forEach(function (box) {
    box.addEventListener("input", function () { find(box); });
    box.addEventListener("keydown", function (event) { if (event.key === "Enter") event.preventDefault(); });
  });

  document.querySelectorAll("[data-price]").forEach(function (form) {
    form.addEventListener("input", function () {
      var base = Number(form.elements.base.value), theta = Number(form.elements.theta.value);
      form.querySelectorAll("[data-use]").forEach(function (cell) {
        var price = base * (Math.pow(theta, Number(cell.dataset.use)) - 1);
        cell.textContent = theta > 1 && base >= 0 ? show(price, 4) : "\u2013";
      });
    });
  });
})();
