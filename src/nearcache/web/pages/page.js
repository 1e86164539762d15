// Fetches what changes of the page every two seconds and alters only what differs, so that
// nothing flashes, selections stay, and bars slide. Without scripts the page is as complete.
(() => {
  "use strict";
  const EVERY_MS = 2000, LONGEST_MS = 30000, READS = 100, AT_ONCE = 4;
  const live = document.getElementById("live");
  if (!live) return;
  const state = document.getElementById("state");
  const pause = document.getElementById("pause");
  const read = document.getElementById("read");
  let paused = false, timer = 0, wait = EVERY_MS, refreshes = 0;

  function alter(old, fresh) {
    if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName) {
      old.replaceWith(fresh.cloneNode(true));
      return;
    }
    if (old.nodeType === Node.TEXT_NODE) {
      if (old.data !== fresh.data) old.data = fresh.data;
      return;
    }
    for (const { name, value } of [...(fresh.attributes || [])])
      if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    for (const { name } of [...(old.attributes || [])])
      if (!fresh.hasAttribute(name) && old !== live) old.removeAttribute(name);
    const was = [...old.childNodes], is = [...fresh.childNodes];
    is.forEach((child, i) => was[i] ? alter(was[i], child) : old.append(child.cloneNode(true)));
    was.slice(is.length).forEach((child) => child.remove());
  }

  function say(kind, text) {
    state.className = "state " + kind;
    state.textContent = text;
  }

  async function refresh() {
    clearTimeout(timer);
    if (paused || document.hidden) return;
    try {
      const answer = await fetch("summary?format=fragment", { cache: "no-store" });
      const body = await answer.text();
      if (paused) return;  // meanwhile: who paused reads the numbers that stand there
      if (!answer.ok) throw new Error(body.trim().slice(0, 120));
      const fresh = document.createElement("main");
      fresh.innerHTML = body;
      alter(live, fresh);
      document.body.dataset.refreshes = ++refreshes;
      say("live", "live, " + new Date().toLocaleTimeString());
      wait = EVERY_MS;
    } catch (error) {
      if (paused) return;
      wait = Math.min(LONGEST_MS, wait * 2);
      say("broken", `no answer (${error.message}); again in ${wait / 1000} s`);
    }
    clearTimeout(timer);
    timer = setTimeout(refresh, wait);
  }

  async function hits(count) {
    for (let i = 0; i < count; i++) await (await fetch("random", { method: "POST", cache: "no-store" })).text();
  }

  pause.addEventListener("click", () => {
    paused = !paused;
    pause.textContent = paused ? "Go on" : "Pause";
    if (paused) say("", "paused"); else refresh();
  });
  read.addEventListener("click", async () => {
    read.disabled = true;
    try {
      await Promise.all(Array.from({ length: AT_ONCE }, () => hits(READS / AT_ONCE)));
    } catch (error) {
      say("broken", error.message);
    }
    read.disabled = false;
    refresh();
  });
  document.addEventListener("visibilitychange", refresh);
  pause.hidden = read.hidden = false;
  timer = setTimeout(refresh, EVERY_MS);
})();
