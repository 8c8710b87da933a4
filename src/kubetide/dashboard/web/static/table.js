// A list of any length: only the rows in sight are in the page, the rest is room above and below them.
import { fetchPart } from "./live.js";

const OVERSCAN = 20;
const WAIT_MS = 120;

export function startTable() {
  const scroll = document.getElementById("scroll");
  const body = document.getElementById("rows");
  const search = document.getElementById("q");
  if (!scroll || !body || !search) return null;
  const query = new URLSearchParams(location.search);
  let total = Number(scroll.dataset.rows);
  let start = Number(query.get("start") ?? 0);
  let height = 0;
  let waiting = 0;

  const room = (pixels) => {
    const row = document.createElement("tr");
    row.setAttribute("aria-hidden", "true");
    row.className = "room";
    const cell = row.insertCell();
    cell.colSpan = 9;
    cell.style.height = `${pixels}px`;
    return row;
  };
  const real = () => [...body.querySelectorAll("tr[aria-rowindex]")];
  function frame() {
    const rows = real();
    if (!rows.length) return;
    height ||= rows[0].getBoundingClientRect().height;
    body.querySelectorAll("tr.room").forEach((row) => row.remove());
    if (start > 0) body.prepend(room(start * height));
    const below = total - start - rows.length;
    if (below > 0) body.append(room(below * height));
  }
  const address = (from, count) => {
    query.set("start", from);
    query.set("count", count);
    return `?${query}`;
  };
  async function load(from, count) {
    const text = await fetchPart(address(from, count));
    if (text === null) return null;
    const fresh = new DOMParser().parseFromString(text, "text/html");
    const focused = body.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    start = from;
    total = Number(fresh.getElementById("scroll").dataset.rows);
    scroll.dataset.rows = total;
    scroll.querySelector("table").setAttribute("aria-rowcount", total);
    body.replaceChildren(...fresh.getElementById("rows").childNodes);
    if (focused) body.querySelector(`[href="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
    frame();
    return text;
  }
  // The next look at the cluster asks again.
  const lost = () => { document.getElementById("live").dataset.state = "lost"; };
  function sight() {
    const count = Math.ceil(scroll.clientHeight / (height || 44)) + 2 * OVERSCAN;
    const first = Math.max(0, Math.floor(scroll.scrollTop / (height || 44)) - OVERSCAN);
    return [Math.min(first, Math.max(0, total - 1)), Math.max(40, count)];
  }
  scroll.addEventListener("scroll", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      const [from, count] = sight();
      const last = start + real().length;
      const low = Math.floor(scroll.scrollTop / (height || 44));
      const high = low + Math.ceil(scroll.clientHeight / (height || 44));
      if (low < start || (high > last && last < total)) load(from, count).catch(lost);
    }, WAIT_MS);
  });
  let typing = 0;
  search.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(async () => {
      query.set("q", search.value);
      scroll.scrollTop = 0;
      const text = await load(0, sight()[1]).catch(lost);
      if (text) {
        const fresh = new DOMParser().parseFromString(text, "text/html");
        document.getElementById("counts").replaceChildren(...fresh.getElementById("counts").childNodes);
      }
      const shown = new URLSearchParams(query);
      shown.delete("start");
      shown.delete("count");
      history.replaceState(null, "", `?${shown}`);
    }, 150);
  });
  search.form.addEventListener("submit", (event) => {
    event.preventDefault();
    search.dispatchEvent(new Event("input"));
  });
  frame();
  return { refresh: () => load(...sight()) };
}
