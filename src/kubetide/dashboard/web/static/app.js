// Starts what the page needs: live regions, the long list, what-if, and a few keys.
import { follow } from "./live.js";
import { startTable } from "./table.js";
import { startWhatIf } from "./what-if.js";

const table = startTable();
follow(table);
startWhatIf();

document.getElementById("theme")?.addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  try { localStorage.setItem("kubetide-theme", root.dataset.theme); } catch { /* it then lasts for this page */ }
});

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button.copy");
  if (!button) return;
  const from = button.dataset.copyFrom;
  const text = from ? document.getElementById(from).textContent : button.dataset.copy;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Select and copy by hand";
  }
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
});

// Keys: / searches, j and k go through rows, g and a letter opens a page.
let going = false;
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement?.tagName ?? "");
  if (typing) {
    if (event.key === "Escape") document.activeElement.blur();
    return;
  }
  const pages = [...document.querySelectorAll("header.top nav a")];
  if (going) {
    going = false;
    const place = { o: 0, w: 1, n: 2, h: 3 }[event.key];
    if (place !== undefined) location.href = pages[place].href;
    return;
  }
  if (event.key === "g") going = true;
  if (event.key === "/") {
    const search = document.getElementById("q");
    if (search) search.focus();
    else location.href = pages[1].href;
    event.preventDefault();
  }
  if (event.key === "j" || event.key === "k") {
    const links = [...document.querySelectorAll("table.list tbody th a")];
    const at = links.indexOf(document.activeElement);
    links[Math.max(0, Math.min(links.length - 1, at + (event.key === "j" ? 1 : -1)))]?.focus();
  }
});
