// The trajectory viewer: permalinks that load their page, loading at the end of what is shown, and expanding.
"use strict";

const PAGE = 50;
let goingTo = null;

function stepOfHash() {
  const match = /^#(?:step|pair)-(\d+)$/.exec(location.hash);
  return match ? Number(match[1]) : null;
}

function show(item) {
  item.focus({ preventScroll: true });
  item.scrollIntoView({ block: "start" });
}

// Show the step of the address; when it is not on the page, load the page of steps that holds it.
async function openHash() {
  const number = stepOfHash();
  const list = document.getElementById("steps");
  if (number === null || !list) return;
  const here = document.querySelector(location.hash);
  if (here) {
    show(here);
    return;
  }
  const from = Math.floor((number - 1) / PAGE) * PAGE + 1;
  const address = new URL(list.dataset.part, location.href);
  address.searchParams.set("from", String(from));
  await htmx.ajax("GET", address.pathname + address.search, { target: "#steps", swap: "innerHTML" });
  const loaded = document.getElementById(location.hash.slice(1));
  if (loaded) show(loaded);
}

function loadMore() {
  const more = document.querySelector("[data-more]");
  if (!more) return;
  const items = document.querySelectorAll("[data-item]");
  goingTo = items[items.length - 1];
  htmx.trigger(more, "more");
}

function swapped() {
  if (!goingTo) return;
  const items = [...document.querySelectorAll("[data-item]")];
  const next = items[items.indexOf(goingTo) + 1];
  if (next) {
    goingTo = null;
    next.focus({ preventScroll: true });
    next.scrollIntoView({ block: "nearest" });
  }
}

function expandAll() {
  document.querySelectorAll("[data-unfold]").forEach((button) => htmx.trigger(button, "click"));
}

document.addEventListener("relaxforge:past-end", loadMore);
document.addEventListener("htmx:afterSettle", swapped);
document.addEventListener("click", (event) => {
  if (event.target.closest("[data-expand]")) expandAll();
});
addEventListener("hashchange", openHash);
document.addEventListener("DOMContentLoaded", openHash);
