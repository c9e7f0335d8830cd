/* A job's output: follows its end, stands still while somebody reads higher up or selects. */
(function () {
  "use strict";
  var SLACK = 24;
  var held = null;

  function box() { return document.getElementById("log-lines"); }
  function atEnd(lines) { return lines.scrollHeight - lines.scrollTop - lines.clientHeight < SLACK; }
  function selecting(lines) {
    var selection = getSelection();
    return Boolean(selection && !selection.isCollapsed && lines.contains(selection.anchorNode));
  }
  function toEnd() { var lines = box(); if (lines) lines.scrollTop = lines.scrollHeight; }
  function isLog(element) { return element && element.id === "job-log"; }

  document.body.addEventListener("htmx:beforeRequest", function (event) {
    if (document.hidden && isLog(event.detail.elt)) event.preventDefault();
  });
  document.body.addEventListener("htmx:beforeSwap", function (event) {
    var lines = box();
    if (!isLog(event.detail.target) || !lines) return;
    var reads = !atEnd(lines) || selecting(lines);
    held = { lines: reads ? lines : null, top: lines.scrollTop, focused: document.activeElement === lines };
  });
  document.body.addEventListener("htmx:afterSwap", function () {
    if (!held) return;
    var kept = held;
    held = null;
    if (kept.lines && box() && box() !== kept.lines) {
      box().replaceWith(kept.lines);
      kept.lines.scrollTop = kept.top;
      document.getElementById("log-held").hidden = false;
    } else toEnd();
    if (kept.focused && box()) box().focus({ preventScroll: true });
  });
  toEnd();
})();
