/* Runs before the first paint, so that a remembered theme never flashes. It also names the reader's time
   zone in a cookie, so that the server writes instants in it (portal/charts/zones.py). */
(function () {
  var root = document.documentElement;
  root.classList.add("js");
  try {
    var theme = localStorage.getItem("evenshare-theme");
    if (theme === "light" || theme === "dark") root.dataset.theme = theme;
  } catch (error) {
    /* storage is off: the system's preference holds */
  }
  try {
    var zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
    var kept = "evenshare-zone=" + zone;
    if (zone && document.cookie.split("; ").indexOf(kept) < 0)
      document.cookie = kept + ";path=/;max-age=31536000;samesite=lax" + (location.protocol === "https:" ? ";secure" : "");
  } catch (error) {
    /* no zone, or no cookies: instants are UTC */
  }
})();
