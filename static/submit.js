/* The submit page: which side was edited last, the line numbers, and what must not be replaced
   under somebody's hands. The rest is htmx: see templates/jobs/submit.html. */
(function () {
  "use strict";
  var form = document.getElementById("spec");
  if (!form) return;
  var answer = document.getElementById("answer");
  var changed = document.getElementById("changed");
  /* Whether an edit has no answer yet: the next answer is about it, even if a round asks. */
  var edited = false, isOpen = false;
  /* Edits so far, and how many of them the request under way contains. */
  var edits = 0, sent = 0;

  function side(name) { form.querySelector('[name=side][value=' + name + ']').checked = true; }

  /* Numbers for as many lines as there are; `hot` is cleared, because somebody types here now. */
  function number(text) {
    var gutter = document.getElementById("gutter");
    var lines = Math.max(text.value.replace(/\n$/, "").split("\n").length, 1);
    while (gutter.children.length > lines) gutter.lastChild.remove();
    while (gutter.children.length < lines) {
      var line = document.createElement("span");
      line.textContent = String(gutter.children.length + 1);
      gutter.append(line);
    }
    gutter.querySelectorAll(".hot").forEach(function (line) { line.classList.remove("hot"); });
    text.rows = lines;
  }
  /* What is wrong is said to screen readers too. */
  function mark() {
    form.querySelectorAll(".amiss").forEach(function (box) {
      var field = document.getElementById("f-" + box.id.slice(4));
      if (!field) return;
      if (box.children.length) {
        field.setAttribute("aria-invalid", "true");
        var group = box.closest("details");
        if (group) group.open = true;
      }
      else field.removeAttribute("aria-invalid");
    });
  }

  /* On a phone the answer is short while its place is below the screen; what marks that place stands
     before it, so that its size moves no mark. */
  var pinned = form.querySelector(".pinned"), place = document.createElement("span");
  pinned.before(place);
  new IntersectionObserver(function (entries) {
    pinned.classList.toggle("stuck", !entries[entries.length - 1].isIntersecting);
    /* A place above the screen counts as seen, also after a jump over it. */
  }, { rootMargin: "100000px 0px -25% 0px" }).observe(place);

  form.addEventListener("input", function (event) {
    var field = event.target;
    if (field.name === "yaml") { side("yaml"); changed.value = ""; number(field); }
    else if (field.name && field.name !== "side") { side("form"); changed.value = field.name; }
    edited = true;
    edits += 1;
    /* An answer, here or under way, is about what stood here before; the server asks again. */
    document.getElementById("submit").disabled = false;
  });
  document.body.addEventListener("htmx:beforeRequest", function (event) {
    if (event.detail.requestConfig.elt === answer) sent = edits;
  });
  form.addEventListener("click", function (event) {
    var button = event.target.closest("button[name=use]");
    if (!button) return;
    event.preventDefault();
    var gpus = document.getElementById("f-gpus");
    gpus.value = button.value;
    gpus.dispatchEvent(new Event("input", { bubbles: true }));
    gpus.focus();
  });
  /* A round that changes nothing for this job is not announced. */
  document.body.addEventListener("htmx:beforeSwap", function (event) {
    if (event.detail.requestConfig.elt !== answer) return;
    /* Ignored and not aborted: an abort would be an error in the browser's console. */
    if (sent < edits) {
      event.detail.shouldSwap = false;
      return;
    }
    isOpen = Boolean(form.querySelector("#answer-more[open]"));
    var byEdit = edited;
    edited = false;
    if (byEdit) return;
    var fresh = new DOMParser().parseFromString(event.detail.xhr.responseText, "text/html");
    var says = fresh.getElementById("answer-says");
    var shown = document.getElementById("answer-says");
    if (says && shown && says.dataset.says === shown.dataset.says) event.detail.shouldSwap = false;
  });
  document.body.addEventListener("htmx:oobBeforeSwap", function (event) {
    var target = event.detail.target, active = document.activeElement;
    if (active && active !== document.body && target.contains(active)) event.detail.shouldSwap = false;
  });
  document.body.addEventListener("htmx:afterSettle", function () {
    mark();
    /* What somebody opened stays open in the next answer. */
    var more = document.getElementById("answer-more");
    if (more && isOpen) more.open = true;
    isOpen = false;
  });
})();
