// Runs before the page is drawn, so that a chosen theme does not flash. Without a choice the system decides.
"use strict";
(() => {
  let chosen = null;
  try { chosen = localStorage.getItem("kubetide-theme"); } catch { /* storage may be forbidden */ }
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
})();
