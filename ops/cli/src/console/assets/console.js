// Only what is more comfortable with it: every page works without.
"use strict";

const all = document.querySelector("[data-check-all]");
if (all) {
  const boxes = [...document.querySelectorAll("input[name=id]")];
  all.hidden = false;
  all.addEventListener("change", () => boxes.forEach((it) => (it.checked = all.checked)));
}

const count = document.querySelector("input[data-count]");
if (count) {
  const button = count.form.querySelector("button");
  const look = () => (button.disabled = count.value.trim() !== count.dataset.count);
  count.addEventListener("input", look);
  look();
}

// What moves is asked for again, unless nobody looks, and never under somebody's hands.
const every = 2000;
async function refresh() {
  const part = document.querySelector("[data-live]");
  if (!part) return;
  if (!document.hidden) {
    try {
      const answer = await fetch(location.href, { headers: { accept: "text/html" } });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const fresh = page.querySelector("[data-part]");
      const old = document.querySelector("[data-part]");
      const used = old && (old.contains(document.activeElement) || old.querySelector("input:not([type=hidden])")?.value);
      if (answer.ok && fresh && old && !used) old.replaceWith(fresh);
    } catch {
      // The console is away: the page keeps what it has.
    }
  }
  setTimeout(refresh, every);
}
setTimeout(refresh, every);
