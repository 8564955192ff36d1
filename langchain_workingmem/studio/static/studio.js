// Live pages and keys. Every page works without this script.
"use strict";

const SECONDS = 1.5; // between two looks at a page that may change

// ------------------------------------------------------------ live

let isLeaving = false; // a form was sent: the answer is the next page
document.addEventListener("submit", () => (isLeaving = true));

function startLive(part) {
  let tag = "";
  const isBusy = () => isLeaving || document.hidden || !document.getSelection().isCollapsed || part.contains(document.activeElement?.closest("form"));
  async function look() {
    if (isBusy()) return;
    const answer = await fetch(location.href, { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store" });
    part.classList.remove("away");
    if (isLeaving) return;
    if (answer.status === 404) location.reload(); // it was deleted
    if (answer.status !== 200) return;
    const known = tag;
    tag = answer.headers.get("ETag") || "";
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = page.querySelector("[data-live]");
    if (!fresh || fresh.innerHTML === part.innerHTML || (!known && fresh.textContent === part.textContent)) return;
    const root = document.documentElement;
    const isAtEnd = root.scrollHeight - root.clientHeight - root.scrollTop < 80;
    const open = [...part.querySelectorAll("details")].map((one) => one.open);
    const ids = new Set([...part.querySelectorAll("li[id]")].map((one) => one.id));
    const focused = document.activeElement?.closest("[data-item]")?.id;
    part.replaceChildren(...fresh.childNodes);
    part.querySelectorAll("details").forEach((one, at) => (one.open = Boolean(open[at])));
    part.querySelectorAll("li[id]").forEach((one) => ids.has(one.id) || one.classList.add("new"));
    if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
    if (isAtEnd && "end" in part.dataset) root.scrollTop = root.scrollHeight;
  }
  setInterval(() => look().catch(() => part.classList.add("away")), SECONDS * 1000);
}

// ------------------------------------------------------------ keys

function step(by) {
  const items = [...document.querySelectorAll("[data-item]")];
  const at = items.indexOf(document.activeElement?.closest("[data-item]"));
  const next = items[at < 0 ? (by > 0 ? 0 : items.length - 1) : at + by];
  const target = next?.matches("[tabindex]") ? next : next?.querySelector("a, button, summary");
  target?.focus();
  next?.scrollIntoView({ block: "nearest" });
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select")) return;
  const keys = {
    "/": () => document.querySelector("[data-search]")?.focus(),
    j: () => step(1),
    k: () => step(-1),
    Enter: () => event.target.matches("[data-item]") && (event.target.querySelector("summary") || event.target.querySelector("a"))?.click(),
  };
  if (!keys[event.key]) return;
  if (event.key !== "Enter" || event.target.matches("[data-item]")) event.preventDefault();
  keys[event.key]();
});

const address = new URL(location.href);
if (address.searchParams.has("done")) {
  address.searchParams.delete("done"); // it was said once
  history.replaceState(null, "", address);
}
document.querySelectorAll("[data-live]").forEach(startLive);
if (document.querySelector("[data-end]") && !location.hash) document.documentElement.scrollTop = document.documentElement.scrollHeight;
