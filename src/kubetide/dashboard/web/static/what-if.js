// Sliders that are answered from the replay: the last one asked for is shown, whichever order answers come in.

const WAIT_MS = 60;

export function startWhatIf() {
  const form = document.getElementById("what-if");
  const answer = document.getElementById("what-if-answer");
  if (!form) return;
  let waiting = 0;
  let asked = null;
  async function ask() {
    asked?.abort();
    asked = new AbortController();
    const query = new URLSearchParams(new FormData(form));
    try {
      const found = await fetch(`${form.action}?${query}`, { headers: { Accept: "text/html" }, signal: asked.signal });
      if (found.status === 401) { location.reload(); return; }
      const fresh = new DOMParser().parseFromString(await found.text(), "text/html");
      const shown = found.ok ? fresh.body.childNodes : fresh.querySelectorAll("[role=alert]");
      answer.replaceChildren(...shown);
      answer.dataset.of = query;
    } catch (error) {
      if (error.name !== "AbortError") answer.textContent = "The server does not answer.";
    }
  }
  form.addEventListener("submit", (event) => { event.preventDefault(); ask(); });
  form.addEventListener("input", (event) => {
    const slider = event.target;
    document.getElementById(`${slider.id}-out`).textContent = Math.round(slider.value * slider.dataset.scale);
    clearTimeout(waiting);
    waiting = setTimeout(ask, WAIT_MS);
  });
  ask();
}
