"use strict";

// What the page is about: the options that vary, and the numbers of each variant. An index of no run has none.
const page = JSON.parse(document.getElementById("data")?.textContent ?? '{"counts":[],"axes":[],"variants":[]}');
const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];

const switchedOff = new Set(); // variants, by a click on the legend
const chosen = page.axes.map(() => null); // the value that is shown of each option; null: all
let count = 0; // which bytes are counted
const renewals = []; // what to do when something else is shown

// An option that a method does not have leaves the method as it is.
function matches(variant) {
  return page.axes.every((axis, i) => [null, variant.at[i]].includes(chosen[i]) || variant.at[i] === axis.without);
}

const isShown = (i) => !switchedOff.has(i) && matches(page.variants[i]);
const renew = () => renewals.forEach((each) => each());

// The legend: a variant, or all of a method.
const buttons = all(".legend button[value]");
renewals.push(() => {
  for (const button of buttons) {
    const i = Number(button.value);
    button.hidden = !matches(page.variants[i]);
    button.setAttribute("aria-pressed", String(!switchedOff.has(i)));
  }
  for (const group of all(".legend .group")) group.hidden = all("button[value]", group).every((each) => each.hidden);
  for (const row of all("tr[data-variant]")) row.hidden = !isShown(Number(row.dataset.variant));
});

function toggle(places) {
  const show = places.every((i) => switchedOff.has(i));
  for (const i of places) show ? switchedOff.delete(i) : switchedOff.add(i);
  renew();
}

for (const button of buttons) button.addEventListener("click", () => toggle([Number(button.value)]));
for (const button of all(".legend .all")) {
  const own = all("button[value]", button.parentElement);
  button.addEventListener("click", () => toggle(own.filter((each) => !each.hidden).map((each) => Number(each.value))));
}
for (const box of all(".filters select")) {
  box.addEventListener("change", () => {
    chosen[box.dataset.axis] = box.value === "" ? null : Number(box.value);
    renew();
  });
}

// A choice of what is counted shows the tables and figures that are for it.
for (const button of all(".choice button")) {
  button.addEventListener("click", () => {
    count = page.counts.indexOf(button.value);
    for (const other of all(".choice button")) other.setAttribute("aria-checked", String(other === button));
    for (const part of all("[data-count]")) part.hidden = part.dataset.count !== button.value;
    renew();
  });
}

// The configuration of a variant, and its copy. The clipboard may be out of reach for a page from disk.
const settings = document.getElementById("settings");
document.getElementById("of")?.addEventListener("change", (event) => {
  settings.textContent = page.variants[event.target.value].settings;
});
document.getElementById("copy")?.addEventListener("click", async (event) => {
  const said = event.target.nextElementSibling;
  try {
    await navigator.clipboard.writeText(settings.textContent);
    said.textContent = "copied";
  } catch {
    getSelection().selectAllChildren(settings);
    said.textContent = document.execCommand("copy") ? "copied" : "selected: press Ctrl+C";
  }
  setTimeout(() => (said.textContent = ""), 3000);
});

// The page of a run that goes on is read again, unless its reader has just used it.
let used = 0;
for (const event of ["input", "click", "keydown"]) addEventListener(event, () => (used = Date.now()));
if (document.body.dataset.refresh) {
  const seconds = Number(document.body.dataset.refresh);
  const written = new Date(document.lastModified).toLocaleTimeString();
  document.querySelector(".unfinished")?.append(` Written at ${written}, and read again while it goes on.`);
  setInterval(() => Date.now() - used > 1000 * seconds && location.reload(), 1000 * seconds);
}
