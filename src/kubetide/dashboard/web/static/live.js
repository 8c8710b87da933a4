// Hears of new looks at the cluster by server-sent events and renews the regions of the page that differ.

const AGAIN_MS = 3000;
const tags = new Map();
let latest = 0;

/** Fetch a part of a page; null where it has not changed, or a later question overtook this one. */
export async function fetchPart(url) {
  const turn = ++latest;
  const headers = { Accept: "text/html" };
  if (tags.has(url)) headers["If-None-Match"] = tags.get(url);
  const answer = await fetch(url, { headers, credentials: "same-origin" });
  if (answer.status === 304) return null;
  if (answer.status === 401) { location.reload(); return null; }
  if (!answer.ok) throw new Error(`status ${answer.status}`);
  const text = await answer.text();
  if (turn !== latest) return null;
  tags.clear();
  tags.set(url, answer.headers.get("ETag"));
  return text;
}

function renew(text) {
  const fresh = new DOMParser().parseFromString(text, "text/html");
  for (const region of document.querySelectorAll("[data-region]")) {
    const other = fresh.getElementById(region.id);
    if (!other || other.innerHTML === region.innerHTML) continue;
    if (window.getSelection()?.containsNode(region, true) && !window.getSelection().isCollapsed) continue;
    const focused = region.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    region.replaceChildren(...other.childNodes);
    if (focused) region.querySelector(`[href="${CSS.escape(focused)}"]`)?.focus();
  }
}

/** Follow the cluster; `table` renews itself, everything else is renewed by region. */
export function follow(table) {
  const where = document.body.dataset.live;
  const state = document.getElementById("live");
  const text = document.getElementById("live-text");
  if (!where || !state) return;
  let busy = false;
  let again = false;
  async function refresh() {
    if (busy) { again = true; return; }
    busy = true;
    try {
      const part = table ? await table.refresh() : await fetchPart(location.href);
      if (part) renew(part);
    } catch (error) {
      state.dataset.state = "lost";
    }
    busy = false;
    if (again) { again = false; refresh(); }
  }
  let source = null;
  let shown = 0;
  function open() {
    source = new EventSource(where);
    source.addEventListener("look", (event) => {
      const look = JSON.parse(event.data);
      state.dataset.state = "live";
      text.textContent = look.at;
      if (shown && look.version !== shown) refresh();
      shown = look.version;
    });
    source.addEventListener("problem", (event) => {
      state.dataset.state = "lost";
      state.title = JSON.parse(event.data).text;
      refresh();
    });
    source.addEventListener("expired", () => location.reload());
    source.onerror = () => {
      state.dataset.state = "lost";
      // After a refusal the browser does not try again by itself: whoever has to log in is told so by the page.
      if (source.readyState === EventSource.CLOSED) setTimeout(() => { if (source) { open(); refresh(); } }, AGAIN_MS);
    };
  }
  // A page that nobody sees asks for nothing.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) { source?.close(); source = null; }
    else if (!source) { open(); refresh(); }
  });
  open();
}
