// A run that is going on: every event of the server fetches the live part of the page anew, at most twice a second.
"use strict";

const AT_MOST_EVERY_MS = 500;

function follow(part) {
  let source = null;
  let waiting = false;
  let ended = false;

  const say = (text) => {
    const note = document.getElementById("live-state");
    if (note) note.textContent = text;
  };

  const refresh = () => {
    if (waiting) return;
    waiting = true;
    setTimeout(() => {
      waiting = false;
      htmx.ajax("GET", part.dataset.part, { target: "#" + part.id, swap: "innerHTML" });
    }, AT_MOST_EVERY_MS);
  };

  const end = () => {
    ended = true;
    close();
    document.querySelectorAll("[data-while-live]").forEach((button) => button.remove());
    refresh();
  };

  const open = () => {
    if (source || ended) return;
    source = new EventSource(part.dataset.events);
    for (const name of ["trial", "run"]) source.addEventListener(name, refresh);
    source.addEventListener("end", end);
    source.addEventListener("open", () => say("Live"));
    source.addEventListener("error", () => {
      const refused = source && source.readyState === EventSource.CLOSED;
      say(refused ? "Not live any more: reload the page" : "Connection lost, trying again");
    });
  };

  const close = () => {
    if (source) source.close();
    source = null;
  };

  // A browser has few connections to one server: pages that nobody looks at give theirs back.
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  addEventListener("pagehide", close);
  open();
}

document.addEventListener("DOMContentLoaded", () => document.querySelectorAll("[data-events]").forEach(follow));
