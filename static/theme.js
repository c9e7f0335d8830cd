/* Runs before the first paint, so that a remembered theme never flashes. Nothing else is here. */
(function () {
  var root = document.documentElement;
  root.classList.add("js");
  try {
    var theme = localStorage.getItem("evenshare-theme");
    if (theme === "light" || theme === "dark") root.dataset.theme = theme;
  } catch (error) {
    /* storage is off: the system's preference holds */
  }
})();
