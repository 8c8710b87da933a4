// Asks every ten seconds whether the cluster can be read again, and only then loads the page anew.
async function ask() {
  try {
    const answer = await fetch(location.href, { headers: { Accept: "application/json" } });
    if (answer.status < 500) location.reload();
  } catch { /* the dashboard itself is away: ask again */ }
}
setInterval(ask, 10000);
