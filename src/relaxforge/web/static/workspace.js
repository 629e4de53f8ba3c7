// Keys, dialogs, the menu and copy buttons. Everything that a key does, a link or button on the page does too.
"use strict";

document.documentElement.classList.add("scripted");

function typing(target) {
  return target.closest("input, textarea, select, [contenteditable]") !== null;
}

function keysAreOn() {
  return localStorage.getItem("relaxforge-keys") !== "off";
}

function reducedMotion() {
  return matchMedia("(prefers-reduced-motion: reduce)").matches;
}

// Move focus along the items of the page: rows of a list, steps of a trajectory.
function move(by) {
  const items = [...document.querySelectorAll("[data-item]")];
  if (items.length === 0) return;
  const here = items.findIndex((item) => item.contains(document.activeElement));
  const next = here < 0 ? (by > 0 ? 0 : items.length - 1) : here + by;
  if (next >= items.length) {
    document.dispatchEvent(new CustomEvent("relaxforge:past-end"));
    return;
  }
  focusItem(items[Math.max(0, next)]);
}

function focusItem(item) {
  const target = item.matches("[tabindex]") ? item : item.querySelector("a, button");
  target.focus({ preventScroll: true });
  item.scrollIntoView({ block: "nearest", behavior: reducedMotion() ? "auto" : "smooth" });
}

function pressed(event) {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || !keysAreOn()) return;
  if (typing(event.target)) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (document.querySelector("dialog[open]")) return;
  if (event.key === "j" || event.key === "k") {
    move(event.key === "j" ? 1 : -1);
  } else {
    const target = document.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
    if (!target) return;
    if (target.matches("input")) target.focus();
    else target.click();
  }
  event.preventDefault();
}

async function copy(button) {
  const source = document.getElementById(button.dataset.copy);
  await navigator.clipboard.writeText(source.textContent.trim());
  const before = button.textContent;
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = before; }, 1500);
}

function clicked(event) {
  const button = event.target.closest("button");
  if (!button) return;
  if (button.dataset.opens) document.getElementById(button.dataset.opens).showModal();
  if (button.dataset.closes !== undefined) button.closest("dialog").close();
  if (button.dataset.copy) copy(button);
  if (button.dataset.toggles) {
    const open = document.getElementById(button.dataset.toggles).classList.toggle("open");
    button.setAttribute("aria-expanded", String(open));
  }
}

// A table that is wider than the window can be scrolled with the arrow keys, and is a stop for Tab only then.
function markWide() {
  for (const part of document.querySelectorAll(".scroll")) {
    if (part.scrollWidth > part.clientWidth) {
      part.tabIndex = 0;
      part.setAttribute("role", "group");
      part.setAttribute("aria-label", "Table, scrolls sideways");
    } else {
      part.removeAttribute("tabindex");
    }
  }
}

// A link to a dialog of a page opens it.
function openLinked() {
  const linked = document.getElementById(location.hash.slice(1));
  if (linked && linked.matches("dialog:not([open])")) linked.showModal();
}

addEventListener("resize", markWide);
addEventListener("hashchange", openLinked);
document.addEventListener("htmx:afterSettle", markWide);
document.addEventListener("keydown", pressed);
document.addEventListener("click", clicked);
document.addEventListener("change", (event) => {
  if (event.target.id === "keys-on") localStorage.setItem("relaxforge-keys", event.target.checked ? "on" : "off");
});
document.addEventListener("DOMContentLoaded", () => {
  markWide();
  openLinked();
  const box = document.getElementById("keys-on");
  if (box) box.checked = keysAreOn();
});
