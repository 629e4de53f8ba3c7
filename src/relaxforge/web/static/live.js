// A run that is going on: every event of the server fetches the live part of the page anew, at most twice a second.
"use strict";

function follow(part) {
  const source = new EventSource(part.dataset.events);
  let waiting = false;
  const refresh = () => {
    if (waiting) return;
    waiting = true;
    setTimeout(() => {
      waiting = false;
      htmx.ajax("GET", part.dataset.part, { target: "#" + part.id, swap: "innerHTML" });
    }, 500);
  };
  for (const name of ["message", "trial", "run", "end"]) source.addEventListener(name, refresh);
  source.addEventListener("end", () => source.close());
  source.addEventListener("error", () => {
    const note = document.getElementById("live-state");
    if (note) note.textContent = "Connection lost, trying again";
  });
  source.addEventListener("open", () => {
    const note = document.getElementById("live-state");
    if (note) note.textContent = "Live";
  });
  addEventListener("pagehide", () => source.close());
}

document.addEventListener("DOMContentLoaded", () => document.querySelectorAll("[data-events]").forEach(follow));
