// The stepped picture of concepts/cache.md: what happens to each public sample in each round.
function showCache(root) {
  const { samples, duration, rules } = CACHE_STEPS;
  let rule = "refresh", round = 5;

  function kind(sample) {
    const step = rules[rule][round - 1];
    if (step.expired.includes(sample)) return "expired";
    if (step.requested.includes(sample)) return "miss";
    if (step.drawn.includes(sample)) return "hit";
    return "idle";
  }

  function draw() {
    const step = rules[rule][round - 1];
    const before = round > 1 ? rules[rule][round - 2].stamps : Array(samples).fill(null);
    const cells = [];
    for (let sample = 0; sample < samples; sample++) {
      const what = kind(sample);
      const stamp = before[sample];
      const age = stamp === null ? "no label" : `round ${stamp}, age ${round - stamp}`;
      const said = { hit: "hit", miss: "miss", expired: "expired", idle: "" }[what];
      cells.push(`<div class="cache-cell cache-${what}"><b>${sample}</b><span>${age}</span><em>${said}</em></div>`);
    }
    const sent = rules[rule].slice(0, round).reduce((sum, each) => sum + each.requested.length, 0);
    const drawn = rules[rule].slice(0, round).reduce((sum, each) => sum + each.drawn.length, 0);
    const hits = step.drawn.length - step.requested.length;
    root.querySelector(".cache-cells").innerHTML = cells.join("");
    root.querySelector(".cache-said").textContent =
      `Round ${round} of ${rules[rule].length}, D = ${duration}: ${step.drawn.length} samples are drawn, ${hits} are hits, ` +
      `${step.requested.length} are requested (${step.expired.length} of them had expired). ` +
      `So far clients sent ${sent} of ${drawn} soft-labels.`;
    root.querySelector("[data-do=back]").disabled = round === 1;
    root.querySelector("[data-do=next]").disabled = round === rules[rule].length;
    for (const each of root.querySelectorAll("[data-rule]")) each.setAttribute("aria-pressed", each.dataset.rule === rule);
  }

  root.innerHTML = `
    <div class="cache-buttons">
      <button class="md-button" data-do="back">Back</button>
      <button class="md-button md-button--primary" data-do="next">Next round</button>
      <span>expired labels: </span>
      <button class="md-button" data-rule="refresh">refresh</button>
      <button class="md-button" data-rule="delete">delete</button>
    </div>
    <p class="cache-said" aria-live="polite"></p>
    <div class="cache-cells"></div>`;
  root.addEventListener("click", (event) => {
    const { do: step, rule: other } = event.target.dataset;
    if (step === "next") round = Math.min(round + 1, rules[rule].length);
    if (step === "back") round = Math.max(round - 1, 1);
    if (other) rule = other;
    if (step || other) draw();
  });
  draw();
}

function showAll() {
  for (const root of document.querySelectorAll(".cache-steps:empty")) showCache(root);
}
if (typeof document$ === "undefined") document.addEventListener("DOMContentLoaded", showAll);
else document$.subscribe(showAll); // pages that are loaded without a reload
